package quota

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// The reset is between the bounds, for any clocks and latencies, if the server is right or rounds
// up.
func TestObservation_boundsReset(t *testing.T) {
	for _, d := range quotaDialects()[:7] {
		t.Run(d.name, func(t *testing.T) {
			for range 400 {
				skew := time.Duration(rand.Int64N(int64(2*time.Hour))) - time.Hour
				begin := time.Date(2026, 1, 1, 0, 0, 0, rand.IntN(1e9), time.UTC) // by the server's clock
				s := quotaSaying{limit: 10, left: 3, window: 10 * time.Second, reset: begin.Add(10 * time.Second)}
				var clock serverClock
				var all []observation
				for at := time.Duration(0); at < 9*time.Second; at += rand.N(3 * time.Second) {
					s.now = begin.Add(at)
					h := http.Header{"Date": {s.now.UTC().Format(http.TimeFormat)}}
					d.say(h, s)
					r := observation{longest: time.Hour, sent: s.now.Add(-skew - rand.N(100*time.Millisecond)), now: s.now.Add(-skew + rand.N(100*time.Millisecond))}
					state, ok := ratelimitheader.Parse(h, r.now)
					require.True(t, ok)
					date, err := http.ParseTime(h.Get("Date"))
					require.NoError(t, err)
					require.True(t, clock.observe(date, r.sent, r.now))
					r.read(&state.Dimensions[0], &clock)
					all = append(all, r)
				}
				reset := s.reset.Add(-skew)
				for _, r := range all {
					require.False(t, r.end.early.After(reset), "early %v, reset %v", r.end.early, reset)
					require.False(t, r.end.reset.Before(reset), "late %v, reset %v", r.end.reset, reset)
					require.LessOrEqual(t, r.window, 11*time.Second)
				}
			}
		})
	}
}
