package resilienthttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// §4.17: a Transport of a package may be used in several testing/synctest bubbles, which all begin
// in the year 2000, and before outside of them. Calls wait for the fixed limit as in the first one.
func TestRateLimit_clockThatGoesBack(t *testing.T) {
	const calls, interval = 5, 10 * time.Second
	transport := func() http.RoundTripper {
		return &resilienthttp.Transport{
			RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1},
			Base:      roundTripper(status(200)),
		}
	}
	// waits makes calls, and returns the time that they take.
	waits := func(t *testing.T, tr http.RoundTripper) time.Duration {
		t.Helper()
		start := time.Now()
		for range calls {
			readAll(t, roundTrip(t, tr, get(t)))
		}
		return time.Since(start)
	}
	bubble := func(t *testing.T, tr http.RoundTripper, pause time.Duration) (took time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			took = waits(t, tr)
			time.Sleep(pause)
		})
		return took
	}
	for _, tt := range []struct {
		name  string
		first func(*testing.T, http.RoundTripper)
	}{
		{"a bubble", func(t *testing.T, tr http.RoundTripper) { bubble(t, tr, 0) }},
		{"a bubble of an hour", func(t *testing.T, tr http.RoundTripper) { bubble(t, tr, time.Hour) }},
		{"outside of bubbles", func(t *testing.T, tr http.RoundTripper) {
			readAll(t, roundTrip(t, tr, get(t)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := transport()
			tt.first(t, tr)
			for range 2 {
				took := bubble(t, tr, time.Minute)
				require.GreaterOrEqual(t, took, (calls-1)*interval, "the limit holds")
				require.LessOrEqual(t, took, calls*interval+time.Second, "one more, because the bucket may be empty")
			}
		})
	}
}
