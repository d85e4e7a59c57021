package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// respond makes a request and reports its response.
func respond(t *testing.T, l *Limiter, path string, status int, header ...string) *Rejection {
	e := newExchange(t.Context(), l)
	e.Path, e.status = path, status
	for i := 0; i < len(header); i += 2 {
		e.header.Set(header[i], header[i+1])
	}
	if refused := e.enter(); refused != nil {
		return refused
	}
	e.done()
	return nil
}

func quotaHeader(limit, remaining, reset int) []string {
	return []string{"RateLimit-Limit", strconv.Itoa(limit), "RateLimit-Remaining", strconv.Itoa(remaining), "RateLimit-Reset", strconv.Itoa(reset)}
}

// A hedge, which may not wait, is sent only while at least half of each quota is left, and not
// within a minute after a 429.
func TestNoWait_spendsNoShortQuota(t *testing.T) {
	for _, row := range []struct {
		name     string
		status   int
		header   []string
		inFlight int
		after    time.Duration
		sent     bool
	}{
		{"nothing is known: sent", 200, nil, 0, 0, true},
		{"half is left: sent", 200, quotaHeader(10, 5, 60), 0, 0, true},
		{"less than half is left: not sent", 200, quotaHeader(10, 4, 60), 0, 0, false},
		{"requests in flight count: not sent", 200, quotaHeader(10, 5, 60), 1, 0, false},
		{"the reset has come: sent", 200, quotaHeader(10, 4, 60), 0, 61 * time.Second, true},
		{"few tokens are left: not sent", 200, []string{"x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "400", "x-ratelimit-reset-tokens", "60s"}, 0, 0, false},
		{"a 429: not sent", 429, nil, 0, 0, false},
		{"a 429, 59 s later: not sent", 429, nil, 0, 59 * time.Second, false},
		{"a 429, a minute later: sent", 429, nil, 0, time.Minute + time.Second, true},
		{"a 503: sent", 503, nil, 0, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{})
				require.Nil(t, respond(t, l, "/", row.status, row.header...))
				for range row.inFlight {
					require.Nil(t, newExchange(t.Context(), l).enter())
				}
				time.Sleep(row.after)
				e := newExchange(t.Context(), l)
				e.NoWait = true
				refused := e.enter()
				require.Equal(t, row.sent, refused == nil)
				if !row.sent {
					require.Equal(t, MaxWaitExceeded, refused.Reason)
				}
				e.NoWait = false
				require.Nil(t, e.enter(), "the call itself is sent")
			})
		})
	}
}

// Fields that cannot be true delay no request.
func TestImplausibleFields(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		header []string
	}{
		{"0 of 0: too many in flight (Okta)", http.StatusTooManyRequests, quotaHeader(0, 0, 60)},
		{"a reset in the past", http.StatusTooManyRequests, quotaHeader(10, 0, 0)},
		{"many remaining, and a 429 with Retry-After: 1 (Azure)", http.StatusTooManyRequests, append(quotaHeader(600, 500, 40), "Retry-After", "1")},
		{"remaining without a reset (Jira)", http.StatusOK, []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{MaxWait: -1})
				require.Nil(t, respond(t, l, "/", row.status, row.header...))
				require.Nil(t, respond(t, l, "/", http.StatusOK))
			})
		})
	}
}

// If calls would be rejected for an exhaustion that no rejection has proved for their route, the
// second call is sent as a probe.
func TestProbe(t *testing.T) {
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	type call struct {
		path   string
		status int // of the response; 0: the call is rejected
		header []string
	}
	none := quotaHeader(10, 0, 60)
	for _, row := range []struct {
		name  string
		calls []call
	}{
		{"the probe is served: the server was wrong", []call{
			{"/", ok, none}, {"/", 0, nil}, {"/", ok, none}, {"/", ok, nil}, {"/", ok, nil},
		}},
		{"the probe is rejected: it was right", []call{
			{"/", ok, none}, {"/", 0, nil}, {"/", limited, none}, {"/", 0, nil}, {"/", 0, nil},
		}},
		{"a rejection has shown it: no probe of that route", []call{
			{"/", limited, none}, {"/", 0, nil}, {"/", 0, nil}, {"/", 0, nil},
		}},
		{"another route is served: it has a quota of its own", []call{
			{"/", limited, none}, {"/other", 0, nil}, {"/other", ok, quotaHeader(10, 9, 60)}, {"/", 0, nil}, {"/other", ok, nil},
		}},
		{"another route is rejected too: one probe a window", []call{
			{"/", limited, none}, {"/other", 0, nil}, {"/other", limited, none}, {"/other", 0, nil}, {"/third", 0, nil},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{MaxWait: -1})
				for i, c := range row.calls {
					refused := respond(t, l, c.path, c.status, c.header...)
					require.Equal(t, c.status == 0, refused != nil, "call %d", i)
				}
			})
		})
	}
	t.Run("a reset has brought what was announced: no probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			require.Nil(t, respond(t, l, "/", ok, none...))
			time.Sleep(61 * time.Second)
			require.Nil(t, respond(t, l, "/", ok, quotaHeader(10, 9, 60)...))
			require.Nil(t, respond(t, l, "/", ok, none...))
			for range 4 {
				require.NotNil(t, respond(t, l, "/", ok))
			}
		})
	})
}
