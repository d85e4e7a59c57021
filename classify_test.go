package resilienthttp_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// clockOfServer is far from the clock of a bubble, which starts in the year 2000.
var clockOfServer = time.Date(2035, time.March, 4, 5, 6, 7, 0, time.UTC)

// onceThen answers first with the status and the headers, and then with 200.
func onceThen(status int, header ...string) puppet {
	var asked atomic.Int64
	return func(req *http.Request) (*http.Response, error) {
		if asked.Add(1) == 1 {
			return puppetAnswer(req, status, header...), nil
		}
		return puppetAnswer(req, http.StatusOK), nil
	}
}

// TestRetryAfter is §4.11: what the server asks for is a minimum, in every form,
// and the backoff comes on top.
func TestRetryAfter(t *testing.T) {
	const backoff = 250 * time.Millisecond
	date := clockOfServer.Format(http.TimeFormat)
	at := func(d time.Duration, layout string) string { return clockOfServer.Add(d).Format(layout) }
	for _, row := range []struct {
		name   string
		status int
		header []string
		want   time.Duration // of the server's part
	}{
		{"nothing", 503, nil, 0},
		{"seconds", 503, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 429", 429, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 500", 500, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 408", 408, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 529", 529, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 403", 403, []string{"Retry-After", "7"}, 7 * time.Second},
		{"fraction", 503, []string{"Retry-After", "1.5"}, 1500 * time.Millisecond},
		{"0", 503, []string{"Retry-After", "0"}, 0},
		{"milliseconds", 503, []string{"Retry-After-Ms", "1234"}, 1234 * time.Millisecond},
		{"milliseconds, Azure's", 503, []string{"X-Ms-Retry-After-Ms", "1234"}, 1234 * time.Millisecond},
		{"milliseconds before seconds", 503, []string{"Retry-After", "9", "Retry-After-Ms", "8100"}, 8100 * time.Millisecond},
		{"IMF date", 503, []string{"Date", date, "Retry-After", at(30*time.Second, http.TimeFormat)}, 30 * time.Second},
		{"RFC 850 date", 503, []string{"Date", date, "Retry-After", at(30*time.Second, "Monday, 02-Jan-06 15:04:05 GMT")}, 30 * time.Second},
		{"asctime date", 503, []string{"Date", date, "Retry-After", at(30*time.Second, time.ANSIC)}, 30 * time.Second},
		{"date that is over", 503, []string{"Date", date, "Retry-After", at(-time.Hour, http.TimeFormat)}, 0},
		{"date of the year 1970", 503, []string{"Date", date, "Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT"}, 0},
		{"date, by our clock where the server has none", 503, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:20 GMT"}, 20 * time.Second},
		{"exactly the most", 503, []string{"Retry-After", "60"}, time.Minute},
		{"negative", 503, []string{"Retry-After", "-1"}, 0},
		{"exponent", 503, []string{"Retry-After", "1e308"}, 0},
		{"not a number", 503, []string{"Retry-After", "NaN"}, 0},
		{"soon", 503, []string{"Retry-After", "soon"}, 0},
		{"empty", 503, []string{"Retry-After", ""}, 0},
		{"reset of a quota", 429, []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "12s"}, 12 * time.Second},
		{"longest reset of the quotas", 429, []string{
			"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "2s",
			"X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "40s",
		}, 40 * time.Second},
		{"reset of a quota that is left", 429, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "12"}, 0},
		{"Retry-After before the reset", 429, []string{"Retry-After", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "12"}, 3 * time.Second},
	} {
		t.Run("§4.11 "+row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := bareTransport(onceThen(row.status, row.header...), 2)
				transport.Policy.Backoff = func(int, time.Duration) time.Duration { return backoff }
				start := time.Now()
				attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
				require.Len(t, attempts, 2)
				require.Equal(t, backoff+row.want, attempts[0].Wait)
				require.Equal(t, backoff+row.want, time.Since(start))
				require.NoError(t, attempts[0].Stop)
			})
		})
	}
	t.Run("§4.11 jitter only adds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			different := map[time.Duration]bool{}
			for range 200 {
				transport := bareTransport(onceThen(503, "Retry-After", "5"), 2)
				transport.Policy.Backoff = nil
				attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
				wait := attempts[0].Wait
				require.GreaterOrEqual(t, wait, 5*time.Second)
				require.LessOrEqual(t, wait, 5*time.Second*3/2, "up to half of it")
				different[wait] = true
			}
			require.Greater(t, len(different), 100)
		})
	})
	t.Run("§4.11 with the limiter on, it is not waited for twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(onceThen(503, "Retry-After", "5"), 2)
			transport.RateLimit = nil
			start := time.Now()
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
			require.Less(t, time.Since(start), 5500*time.Millisecond)
		})
	})
	t.Run("§4.11 each attempt has its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answers := []string{"3", "0", "11"}
			n := -1
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				if n++; n < len(answers) {
					return puppetAnswer(req, 429, "Retry-After", answers[n]), nil
				}
				return puppetAnswer(req, 200), nil
			}), 4)
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Len(t, attempts, 4)
			for i, want := range []time.Duration{3 * time.Second, 0, 11 * time.Second} {
				require.Equal(t, want, attempts[i].Wait)
			}
		})
	})
}

// TestRetryAfterTooLong is §4.11: above MaxRetryAfter the call stops at once with
// what it has.
func TestRetryAfterTooLong(t *testing.T) {
	const year = 365 * 24 * time.Hour
	date := clockOfServer.Format(http.TimeFormat)
	for _, row := range []struct {
		name   string
		header []string
		most   time.Duration
		want   time.Duration
	}{
		{"a second more than the default", []string{"Retry-After", "61"}, 0, 61 * time.Second},
		{"a bit more", []string{"Retry-After", "60.000001"}, 0, time.Minute + time.Microsecond},
		{"a smaller limit", []string{"Retry-After", "2"}, time.Second, 2 * time.Second},
		{"overflows a Duration", []string{"Retry-After", "9223372037"}, 0, year},
		{"overflows an int64", []string{"Retry-After", "99999999999999999999999999"}, 0, year},
		{"overflows in milliseconds", []string{"Retry-After-Ms", "9223372036854775807"}, 0, year},
		{"the year 9999", []string{"Date", date, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}, 0, year},
		{"reset of a quota", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 0, time.Hour},
	} {
		t.Run("§4.11 "+row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := bareTransport(puppetStatus(429, row.header...), 3)
				transport.Policy.MaxRetryAfter = row.most
				start := time.Now()
				resp, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
				require.NoError(t, err)
				require.Zero(t, time.Since(start), "at once")
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "body", string(body), "unread")
				require.NoError(t, resp.Body.Close())
				attempts := resilienthttp.Attempts(resp)
				require.Len(t, attempts, 1)
				require.Equal(t, resilienthttp.ErrRetryAfter, attempts[0].Stop)
				require.Equal(t, row.want, attempts[0].Wait)
			})
		})
	}
	t.Run("§4.11 no limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(onceThen(503, "Retry-After", "86400"), 2)
			transport.Policy.MaxRetryAfter = -1
			start := time.Now()
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
			require.Equal(t, 24*time.Hour, time.Since(start))
		})
	})
	t.Run("§4.11 no limit and no end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(onceThen(503, "Retry-After", "99999999999999999999"), 2)
			transport.Policy.MaxRetryAfter = -1
			transport.Policy.Backoff = func(int, time.Duration) time.Duration { return 1<<63 - 1 }
			start := time.Now()
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
			require.Equal(t, 2*year, time.Since(start))
		})
	})
	t.Run("§4.11 later calls on the scope are refused while it is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(onceThen(429, "Retry-After", "600", "RateLimit-Remaining", "0"), 3)
			transport.RateLimit = nil
			start := time.Now()
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
			require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
			var e *resilienthttp.Error
			require.ErrorAs(t, err, &e)
			require.WithinDuration(t, start.Add(600*time.Second), e.NotBefore, 0)
			require.Zero(t, time.Since(start))
			other := newCall(t.Context(), t, http.MethodGet, "")
			other.URL.Host = "other.test"
			require.Len(t, tripped(t, transport, other), 1, "another scope is not concerned")
			time.Sleep(600 * time.Second)
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 1)
		})
	})
	t.Run("§4.11 after a retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n int
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				if n++; n == 2 {
					return puppetAnswer(req, 429, "Retry-After", "3600"), nil
				}
				return puppetAnswer(req, 503), nil
			}), 4)
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Len(t, attempts, 2)
			require.Equal(t, resilienthttp.ErrRetryAfter, attempts[1].Stop)
			require.Equal(t, time.Hour, attempts[1].Wait)
			require.NoError(t, attempts[0].Stop)
		})
	})
	t.Run("§4.12 a wait beyond the deadline is not begun", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			attempts := tripped(t, bareTransport(puppetStatus(503, "Retry-After", "10"), 3), newCall(ctx, t, http.MethodGet, ""))
			require.Zero(t, time.Since(start))
			require.Len(t, attempts, 1)
			require.Equal(t, resilienthttp.ErrDeadline, attempts[0].Stop)
			require.Equal(t, 10*time.Second, attempts[0].Wait)
		})
	})
	t.Run("§4.11 the body is left on the wire", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := faulttest.NewInMemory(t, faulttest.Reply{Status: 429, RetryAfter: time.Hour, Body: strings.Repeat("x", 1<<20)})
			client := &http.Client{Transport: bareTransport(server.Transport(), 3)}
			resp, err := client.Get(server.URL)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Len(t, body, 1<<20)
			require.NoError(t, resp.Body.Close())
			server.AssertAttempts(t, 1)
		})
	})
}

// TestHostileAnswers is §4.11 and the bad input: no header value makes a
// panic, a hang or a hot loop.
func TestHostileAnswers(t *testing.T) {
	names := []string{
		"Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "Date", "Stripe-Should-Retry", "X-Should-Retry", "Age",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy",
	}
	values := []string{
		"", "0", "-1", "1", "1e308", "NaN", "+Inf", "9223372037", "9223372036854775807", "-9223372036854775808", "0.0000000000001",
		"Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z", "253402300799", "true", "false",
		"\x00", strings.Repeat("9", 5000), `"p";r=0;t=99999999999999`, "limit=1, remaining=0, reset=1e99",
	}
	random := rand.New(rand.NewPCG(1, 2))
	synctest.Test(t, func(t *testing.T) {
		for range 400 {
			var header []string
			for range 1 + random.IntN(5) {
				header = append(header, names[random.IntN(len(names))], values[random.IntN(len(values))])
			}
			statuses := []int{200, 403, 429, 500, 503}
			transport := bareTransport(puppetStatus(statuses[random.IntN(len(statuses))], header...), 3)
			transport.RateLimit = nil
			start := time.Now()
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.NotEmpty(t, attempts)
			require.LessOrEqual(t, len(attempts), 3)
			require.LessOrEqual(t, time.Since(start), 6*time.Minute, "%q", header)
		}
	})
}

// RetrieveError has the name and the fields of golang.org/x/oauth2's, which is not
// among what this module requires.
type RetrieveError struct { //nolint:errname // the name is what it is known by
	Response  *http.Response
	Body      []byte
	ErrorCode string
}

func (e *RetrieveError) Error() string { return "oauth2: " + string(e.Body) }

// permanentError is a Base's word that there is no use in asking again.
type permanentError struct{}

func (permanentError) Error() string   { return "this signer has no key" }
func (permanentError) Permanent() bool { return true }

// TestBaseThatFailsForGood is §4.9 and §4.15 for who answers in the server's place:
// it is asked once, and the server is not blamed.
func TestBaseThatFailsForGood(t *testing.T) {
	refusing := func(status string) *http.Transport {
		address, _ := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
		})
		base := resilienthttp.NewBase()
		base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: address})
		t.Cleanup(base.CloseIdleConnections)
		return base
	}
	withoutHook := func(base *http.Transport) *http.Transport {
		base.OnProxyConnectResponse = nil
		return base
	}
	token := func(status int, code string) http.RoundTripper {
		return puppet(func(*http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: "https://api.test/", Err: &RetrieveError{
				Response: &http.Response{StatusCode: status}, Body: []byte(`{"hint":"s3cret"}`), ErrorCode: code,
			}}
		})
	}
	for _, row := range []struct {
		name     string
		base     http.RoundTripper
		attempts int
		blamed   bool
	}{
		{"wrong OAuth client", token(401, "invalid_client"), 1, false},
		{"withdrawn OAuth grant", token(400, "invalid_grant"), 1, false},
		{"token endpoint is down for a moment", token(503, ""), 2, false},
		{"marked", puppet(func(*http.Request) (*http.Response, error) { return nil, permanentError{} }), 1, false},
		{"proxy says 407", refusing("407 Proxy Authentication Required"), 1, false},
		{"proxy says 407 in its own words", refusing("407 Who are you?"), 1, false},
		{"proxy says 403", refusing("403 Forbidden"), 1, false},
		{"proxy says 407 to a plain http.Transport", withoutHook(refusing("407 Proxy Authentication Required")), 1, false},
		{"proxy says 403 to a plain http.Transport", withoutHook(refusing("403 Forbidden")), 1, false},
		{"proxy does not reach the server", refusing("502 Bad Gateway"), 2, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := bareTransport(row.base, 2)
			tr.Breaker = &resilienthttp.Breaker{MinRequests: 2}
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "https://api.test/", "charge"))
			failed := asError(t, err)
			require.Len(t, failed.Attempts, row.attempts)
			require.NotContains(t, err.Error(), "s3cret")
			state := resilienthttp.StateClosed
			if row.blamed {
				state = resilienthttp.StateOpen
			}
			require.Equal(t, state, tr.Breaker.State("api.test"))
			if row.attempts == 1 {
				require.Equal(t, resilienthttp.VerdictPermanent, failed.Attempts[0].Verdict)
				require.NoError(t, failed.Attempts[0].Stop)
			}
		})
	}
}
