package resilienthttp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// An invalid policy, of SetPolicy or WithPolicy, sends nothing and changes nothing (§4.27).
func TestSetPolicy_invalid(t *testing.T) {
	for _, row := range []struct {
		name   string
		give   resilienthttp.Policy
		margin time.Duration
		want   string // "": valid
	}{
		{"zero", resilienthttp.Policy{}, 0, ""},
		{"a number without a unit", resilienthttp.Policy{AttemptTimeout: 5}, 0, "Policy.AttemptTimeout"},
		{"less than the margin of the header", resilienthttp.Policy{AttemptTimeout: time.Second}, time.Second, "DeadlineHeader.Margin"},
		{"more than the margin of the header", resilienthttp.Policy{AttemptTimeout: 2 * time.Second}, time.Second, ""},
		{"all errors", resilienthttp.Policy{ReadTimeout: 5, MaxRetryAfter: 5}, 0, "Policy.MaxRetryAfter"},
		{"errors of the policy and of the margin", resilienthttp.Policy{AttemptTimeout: 5}, time.Second, "DeadlineHeader.Margin"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			sent := 0
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				sent++
				return puppetAnswer(req, 500), nil
			}), 3)
			transport.DeadlineHeader.Margin = row.margin
			_, errOfCall := transport.RoundTrip(newCall(resilienthttp.WithPolicy(t.Context(), row.give), t, http.MethodGet, ""))
			sentByCall := sent
			err := transport.SetPolicy(row.give)
			if row.want == "" {
				require.NoError(t, errOfCall)
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, errOfCall, row.want)
			require.ErrorContains(t, errOfCall, strings.ReplaceAll(err.Error(), "\n", "; "), "the same error, in a line")
			require.Zero(t, sentByCall)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, resilienthttp.ErrorType(errOfCall), resilienthttp.ErrorType(err))
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 3, "the policy of before")

			fresh := bareTransport(puppetStatus(200), 1)
			fresh.Policy, fresh.DeadlineHeader = row.give, transport.DeadlineHeader
			require.ErrorContains(t, fresh.Validate(), row.want, "Validate knows the same errors")
			require.Error(t, fresh.SetPolicy(resilienthttp.Policy{}), "an invalid Transport stays invalid")
		})
	}
}

// A call keeps the policy with which it began; breaker and budget keep their state (§4.27).
func TestSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Base: puppetStatus(500), Budget: tokens(100), Breaker: never(),
			Policy: resilienthttp.Policy{MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Second)},
		}
		attempts := func() int { return len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))) }
		done := make(chan int)
		go func() { done <- attempts() }()
		time.Sleep(time.Second / 2)
		require.NoError(t, transport.SetPolicy(resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce}))
		require.Equal(t, 2, attempts())
		require.Equal(t, 3, <-done)
		require.Equal(t, 3, transport.Policy.MaxAttempts, "the field is not written")

		state := transport.State()
		require.InDelta(t, 3, state.Scopes[0].Budget.Used, .1, "the tokens of both calls")
		require.Equal(t, 2, state.Policy.MaxAttempts)
		require.Equal(t, time.Minute, state.Policy.MaxRetryAfter, "with its defaults")
		_, err := json.Marshal(state)
		require.NoError(t, err)
		require.NoError(t, transport.SetPolicy(transport.State().Policy), "what State shows may be set again")
	})
}

// Calls, states and new policies at the same time (§4.21).
func TestSetPolicy_concurrent(t *testing.T) {
	transport := bareTransport(puppetStatus(500), 2)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 200 {
				assert.NoError(t, transport.SetPolicy(resilienthttp.Policy{MaxAttempts: 1 + n%3, Backoff: atOnce}))
				made := len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")))
				assert.True(t, 1 <= made && made <= 3)
				assert.NotZero(t, transport.State().Policy.MaxAttempts)
			}
		})
	}
	all.Wait()
}
