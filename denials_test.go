package resilienthttp_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// A server that counts ten requests in each ten seconds and rounds the rest down
// says "Retry-After: 0" in the last second. Those are not denials after a wait,
// and one client by himself uses up what there is.
func TestDenialsOfServerThatRoundsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = 10 * time.Second
		start, current, used, served := time.Now(), 0, 0, 0
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			at := time.Since(start)
			if n := int(at / window); n != current {
				current, used = n, 0
			}
			if used == 10 {
				left := time.Duration(current+1)*window - at
				return response(r, http.StatusTooManyRequests, "", "Retry-After", strconv.Itoa(int(left/time.Second))), nil
			}
			used++
			served++
			return response(r, http.StatusOK, ""), nil
		})}
		for time.Since(start) < 5*time.Minute {
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err)
			_ = readAll(t, resp)
			time.Sleep(300 * time.Millisecond)
		}
		require.GreaterOrEqual(t, served, 280, "of the 300 that the quota has in five minutes")
	})
}

// The wait that a denial is doubled to is known at once. If it passes the
// deadline, it is not begun, and the caller gets the 429.
func TestDenialsDoubledBeyondDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := script(status(http.StatusTooManyRequests, "Retry-After", "1"))
		tr := &resilienthttp.Transport{Base: base, Policy: every(0)}
		resp, err := tr.RoundTrip(get(t)) // four denials: the next wait is four seconds, and up to a quarter
		require.NoError(t, err)
		_ = readAll(t, resp)
		time.Sleep(5 * time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // and that after the fifth is eight
		defer cancel()
		begun := time.Now()
		resp, err = tr.RoundTrip(get(t).WithContext(ctx))
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		last := lastOf(t, resp)
		require.ErrorIs(t, last.Stop, resilienthttp.ErrDeadline)
		require.Equal(t, time.Second, last.Wait, "what the server asked")
		_ = readAll(t, resp)
		require.Zero(t, time.Since(begun))
		base.requireBalance(t)
	})
}

// Nor is one begun that would end at a scope which is closed for longer than
// MaxRetryAfter.
func TestDenialsDoubledBeyondMaxRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := script(status(http.StatusTooManyRequests, "Retry-After", "2"))
		policy := every(0)
		policy.MaxRetryAfter = 3 * time.Second
		tr := &resilienthttp.Transport{Base: base, Policy: policy}
		resp, err := tr.RoundTrip(get(t)) // four denials
		require.NoError(t, err)
		_ = readAll(t, resp)
		time.Sleep(10 * time.Second)

		begun := time.Now()
		resp, err = tr.RoundTrip(get(t)) // the fifth closes for sixteen seconds
		require.NoError(t, err)
		require.ErrorIs(t, lastOf(t, resp).Stop, resilienthttp.ErrRetryAfter)
		_ = readAll(t, resp)
		require.Zero(t, time.Since(begun))
		base.requireBalance(t)
	})
}
