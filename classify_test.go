package resilienthttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// clockOfServer is far from the clock of a bubble, which starts in the year 2000.
var clockOfServer = time.Date(2035, time.March, 4, 5, 6, 7, 0, time.UTC)

// onceThen responds first with the status and the headers, and then with 200.
func onceThen(status int, header ...string) puppet {
	var asked atomic.Int64
	return func(req *http.Request) (*http.Response, error) {
		if asked.Add(1) == 1 {
			return response(req, status, "body", header...), nil
		}
		return response(req, http.StatusOK, "body"), nil
	}
}

// §4.11: the wait that the server asks for is a minimum in every form, and the backoff is added. retryafter.TestParse has the
// forms.
func TestRetryAfter(t *testing.T) {
	const backoff = 250 * time.Millisecond
	date := clockOfServer.Format(http.TimeFormat)
	at := func(d time.Duration, layout string) string { return clockOfServer.Add(d).Format(layout) }
	for _, row := range []struct {
		name   string
		status int
		header []string
		want   time.Duration // the wait of the server
	}{
		{"nothing", 503, nil, 0},
		{"seconds", 503, []string{"Retry-After", "7"}, 7 * time.Second},
		{"seconds, on 403", 403, []string{"Retry-After", "7"}, 7 * time.Second},
		{"0", 503, []string{"Retry-After", "0"}, 0},
		{"milliseconds", 503, []string{"Retry-After-Ms", "1234"}, 1234 * time.Millisecond},
		{"IMF date", 503, []string{"Date", date, "Retry-After", at(30*time.Second, http.TimeFormat)}, 30 * time.Second},
		{"date that is over", 503, []string{"Date", date, "Retry-After", at(-time.Hour, http.TimeFormat)}, 0},
		{"date, by our clock where the server has none", 503, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:20 GMT"}, 20 * time.Second},
		{"exactly the most", 503, []string{"Retry-After", "60"}, time.Minute},
		{"reset of a quota", 429, []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "12s"}, 12 * time.Second},
		{"longest reset of the quotas", 429, []string{
			"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "2s",
			"X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "40s",
		}, 40 * time.Second},
		{"reset of a quota that is left", 429, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "12"}, 0},
		{"Retry-After before the reset", 429, []string{"Retry-After", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "12"}, 3 * time.Second},
	} {
		bubble.Run(t, "§4.11 "+row.name, func(t *testing.T) {
			transport := bareTransport(onceThen(row.status, row.header...), 2)
			transport.Policy.Backoff = func(int, time.Duration) time.Duration { return backoff }
			start := time.Now()
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Len(t, attempts, 2)
			require.Equal(t, backoff+row.want, attempts[0].RetryWait)
			require.Equal(t, backoff+row.want, time.Since(start))
			require.NoError(t, attempts[0].StopReason)
		})
	}
	bubble.Run(t, "§4.11 jitter only adds", func(t *testing.T) {
		different := map[time.Duration]bool{}
		for range 200 {
			transport := bareTransport(onceThen(503, "Retry-After", "5"), 2)
			transport.Policy.Backoff = nil
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			wait := attempts[0].RetryWait
			require.GreaterOrEqual(t, wait, 5*time.Second)
			require.LessOrEqual(t, wait, 5*time.Second*3/2, "jitter is at most half of the wait")
			different[wait] = true
		}
		require.Greater(t, len(different), 100)
	})
	bubble.Run(t, "§4.11 with the limiter on, it is not waited for twice", func(t *testing.T) {
		transport := bareTransport(onceThen(503, "Retry-After", "5"), 2)
		transport.RateLimit = nil
		start := time.Now()
		require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
		require.Less(t, time.Since(start), 5500*time.Millisecond)
	})
}

// §4.11: above MaxRetryAfter, the call returns its response at once.
func TestRetryAfterTooLong(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, row := range []struct {
		name   string
		header []string
		most   time.Duration
		want   time.Duration
	}{
		{"a second more than the default", []string{"Retry-After", "61"}, 0, 61 * time.Second},
		{"a bit more", []string{"Retry-After", "60.000001"}, 0, time.Minute + time.Microsecond},
		{"a smaller limit", []string{"Retry-After", "2"}, time.Second, 2 * time.Second},
		{"overflows an int64", []string{"Retry-After", "99999999999999999999999999"}, 0, year},
		{"reset of a quota", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 0, time.Hour},
	} {
		bubble.Run(t, "§4.11 "+row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(429, row.header...), 3)
			transport.Policy.MaxRetryAfter = row.most
			start := time.Now()
			resp := roundTrip(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Zero(t, time.Since(start), "at once")
			require.Equal(t, "body", readAll(t, resp), "unread")
			attempts := resilienthttp.Attempts(resp)
			require.Len(t, attempts, 1)
			require.Equal(t, resilienthttp.ErrRetryAfter, attempts[0].StopReason)
			require.Equal(t, row.want, attempts[0].RetryWait)
		})
	}
	for _, row := range []struct {
		name, asks string
		backoff    time.Duration
		want       time.Duration
	}{
		{"no limit", "86400", 0, 24 * time.Hour},
		{"no limit and no end", "99999999999999999999", 1<<63 - 1, 2 * year},
	} {
		bubble.Run(t, "§4.11 "+row.name, func(t *testing.T) {
			transport := bareTransport(onceThen(503, "Retry-After", row.asks), 2)
			transport.Policy.MaxRetryAfter = -1
			transport.Policy.Backoff = func(int, time.Duration) time.Duration { return row.backoff }
			start := time.Now()
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
			require.Equal(t, row.want, time.Since(start))
		})
	}
	bubble.Run(t, "§4.11 later calls are rejected while the scope is blocked", func(t *testing.T) {
		transport := bareTransport(onceThen(429, "Retry-After", "600", "RateLimit-Remaining", "0"), 3)
		transport.RateLimit = nil
		start := time.Now()
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
		require.Equal(t, start.Add(600*time.Second), asError(t, err).NotBefore)
		require.Zero(t, time.Since(start))
		other := newCall(t.Context(), t, http.MethodGet, "")
		other.URL.Host = "other.test"
		require.Len(t, tripped(t, transport, other), 1, "another scope is not blocked")
		time.Sleep(600 * time.Second)
		require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 1)
	})
	bubble.Run(t, "§4.11 the body is left on the wire", func(t *testing.T) {
		server := faulttest.NewInMemory(t, faulttest.Reply{Status: 429, RetryAfter: time.Hour, Body: strings.Repeat("x", 1<<20)})
		client := &http.Client{Transport: bareTransport(server.Transport(), 3)}
		resp, err := client.Get(server.URL)
		require.NoError(t, err)
		require.Len(t, readAll(t, resp), 1<<20)
		server.AssertAttempts(t, 1)
	})
}

// RetrieveError has the name and the fields of the type in golang.org/x/oauth2, which this module
// does not require.
type RetrieveError struct {
	Response  *http.Response
	Body      []byte
	ErrorCode string
}

func (e *RetrieveError) Error() string { return "oauth2: " + string(e.Body) }

// permanentError is an error with which Base says that a retry would fail.
type permanentError struct{}

func (permanentError) Error() string   { return "this signer has no key" }
func (permanentError) Permanent() bool { return true }

// §4.9, §4.15: an intermediary that rejects the request gets one attempt, and the circuit does
// not count a failure.
func TestBasePermanentError(t *testing.T) {
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
	viaSOCKS, _ := socksProxy(t, 0, 2)
	unknown := resilienthttp.NewBase()
	unknown.DialContext = dnsThatSays(3)
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
		{"proxy says 407 with another phrase", refusing("407 Credentials missing"), 1, false},
		{"proxy says 403", refusing("403 Forbidden"), 1, false},
		{"proxy says 407 to a plain http.Transport", withoutHook(refusing("407 Proxy Authentication Required")), 1, false},
		{"proxy says 403 to a plain http.Transport", withoutHook(refusing("403 Forbidden")), 1, false},
		{"proxy does not reach the server", refusing("502 Bad Gateway"), 2, true},
		{"SOCKS5 proxy rejects", viaSOCKS, 1, false},
		{"unknown host", unknown, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := bareTransport(row.base, 2)
			tr.Breaker, tr.Budget = &resilienthttp.Breaker{MinRequests: 2}, &resilienthttp.Budget{}
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "https://api.test/", "charge"))
			failed := asError(t, err)
			require.Len(t, failed.Attempts, row.attempts)
			require.Equal(t, row.attempts > 1, tr.State().Scopes[0].Budget.Used > 0, "a call without a retry costs no token")
			require.NotContains(t, err.Error(), "s3cret")
			state := resilienthttp.StateClosed
			if row.blamed {
				state = resilienthttp.StateOpen
			}
			require.Equal(t, state, tr.Breaker.State("api.test", resilienthttp.PriorityDefault))
			if row.attempts == 1 {
				require.Equal(t, resilienthttp.VerdictPermanent, failed.Attempts[0].Verdict)
				require.NoError(t, failed.Attempts[0].StopReason)
			}
		})
	}
}

// §4.11: after a value that overflows or is invalid, the call ends or uses its own backoff. The
// next call waits at most an hour.
func TestBadRetryAfter(t *testing.T) {
	const (
		ignored = iota // the value has no effect
		tooLong        // the call ends, and the scope is blocked
		now            // no wait
	)
	values := []struct {
		value string
		how   int
	}{
		{"9223372037", tooLong},          // the nanoseconds overflow
		{"9223372036854775807", tooLong}, // the largest int64
		{strings.Repeat("9", 400), tooLong},
		{"-1", ignored},
		{"1e308", ignored},
		{"", ignored},
		{"soon", ignored},
		{"1; 2", ignored},
		{"\x00", ignored},
		{"Fri, 31 Dec 9999 23:59:59 GMT", tooLong},
		{"Thu, 01 Jan 1970 00:00:00 GMT", now},
		{"Thu, 01 Jan 0000 00:00:00 GMT", now},
		{"0", now},
		{"0.0000000001", now},
	}
	for _, field := range []string{"Retry-After", "Retry-After-Ms"} {
		for _, v := range values {
			if field != "Retry-After" && strings.Contains(v.value, "GMT") {
				continue
			}
			bubble.Run(t, field+" "+v.value[:min(len(v.value), 40)], func(t *testing.T) {
				base := script(status(429, field, v.value, "RateLimit-Remaining", "0"), status(200))
				tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
				start := time.Now()
				resp := roundTrip(t, tr, get(t))
				if v.how == tooLong {
					require.Equal(t, 429, resp.StatusCode)
					require.Zero(t, time.Since(start))
					require.Equal(t, resilienthttp.ErrRetryAfter, lastOf(t, resp).StopReason)
					require.GreaterOrEqual(t, lastOf(t, resp).RetryWait, 2562*time.Hour) // the shortest, in milliseconds
					require.LessOrEqual(t, lastOf(t, resp).RetryWait, 365*24*time.Hour)
				} else {
					require.Equal(t, 200, resp.StatusCode)
					require.Equal(t, time.Second, time.Since(start))
				}
				readAll(t, resp)
				again, err := tr.RoundTrip(get(t))
				if v.how == tooLong {
					require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
					require.LessOrEqual(t, time.Until(asError(t, err).NotBefore), time.Hour)
					require.Positive(t, time.Until(asError(t, err).NotBefore))
					time.Sleep(time.Hour)
					again, err = tr.RoundTrip(get(t))
				}
				require.NoError(t, err)
				readAll(t, again)
				base.requireBalance(t)
			})
		}
	}
}

// §4.17: a reset in 1970, in 9999 or in another form delays no call beyond MaxBlock, at the time
// of the bubble and in 2026.
func TestBadResets(t *testing.T) {
	values := []string{
		"0", "-1", "1", "1e308", "NaN", "9223372037", "9223372036854775807", "99999999999999999999", "253402300799", "253402300799000",
		"1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
		"292277026596y", "9999999h", "-5s", "soon", "",
	}
	for name, prefix := range map[string]string{
		"X-RateLimit-Reset": "X-RateLimit-%s", "RateLimit-Reset": "RateLimit-%s", "X-RateLimit-Reset-After": "X-RateLimit-%s",
		"Anthropic-Ratelimit-Requests-Reset": "Anthropic-Ratelimit-Requests-%s", "X-Ratelimit-Reset-Requests": "X-Ratelimit-%s-Requests",
	} {
		for _, value := range values {
			for _, code := range []int{200, 429} {
				bubble.Run(t, fmt.Sprintf("%s %s %d", name, value, code), func(t *testing.T) {
					time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // past 1e9 s
					base := script(status(code, fmt.Sprintf(prefix, "Limit"), "10", fmt.Sprintf(prefix, "Remaining"), "0", name, value), status(200))
					tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
					start := time.Now()
					readAll(t, roundTrip(t, tr, get(t)))
					require.LessOrEqual(t, time.Since(start), 2*time.Minute)
					resp, err := tr.RoundTrip(get(t))
					if err != nil {
						require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
						require.LessOrEqual(t, time.Until(asError(t, err).NotBefore), time.Hour+time.Second, "MaxBlock, and the time of the release")
						time.Sleep(time.Hour + time.Second)
						resp, err = tr.RoundTrip(get(t))
					}
					require.NoError(t, err)
					readAll(t, resp)
					require.LessOrEqual(t, len(base.calls()), 3)
					base.requireBalance(t)
				})
			}
		}
	}
}

// §4.9: 403 is retried only if the server says that it is about a rate limit.
func TestForbidden(t *testing.T) {
	for _, row := range []struct {
		name   string
		header []string
		want   resilienthttp.Verdict
	}{
		{"no fields", nil, resilienthttp.VerdictPermanent},
		{"quota left", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "30"}, resilienthttp.VerdictPermanent},
		{"quota used up", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}, resilienthttp.VerdictThrottled},
		{"used up, no reset", []string{"X-RateLimit-Remaining", "0"}, resilienthttp.VerdictThrottled},
		{"Retry-After", []string{"Retry-After", "1"}, resilienthttp.VerdictThrottled},
		{"Retry-After-Ms", []string{"Retry-After-Ms", "1"}, resilienthttp.VerdictThrottled},
		{"malformed Retry-After", []string{"Retry-After", "soon"}, resilienthttp.VerdictPermanent},
		{"should not retry", []string{"Retry-After", "1", "X-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
	} {
		t.Run(row.name, func(t *testing.T) {
			attempts := tripped(t, bareTransport(puppetStatus(403, row.header...), -1), newCall(t.Context(), t, http.MethodGet, ""))
			require.Equal(t, row.want, attempts[0].Verdict)
		})
	}
	t.Run("§4.8 a limit has executed nothing: a POST without a key is repeated", func(t *testing.T) {
		transport := bareTransport(puppetStatus(403, "Retry-After", "0"), 2)
		transport.Idempotency.Disabled = true
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, attempts, 2)
		require.True(t, attempts[0].NotExecuted)
	})
}

// §4.8: for each status, whether a request that is neither idempotent nor keyed is retried, and
// that a key makes it repeatable.
func TestRepeatability(t *testing.T) {
	type answer struct {
		name   string
		status int
		header []string
	}
	var answers []answer
	for status := 400; status < 600; status++ {
		answers = append(answers, answer{fmt.Sprint(status), status, nil})
	}
	answers = append(answers,
		answer{"429 Retry-After", 429, []string{"Retry-After", "0"}},
		answer{"503 Retry-After", 503, []string{"Retry-After", "0"}},
		answer{"503 Retry-After-Ms", 503, []string{"Retry-After-Ms", "0"}},
		answer{"503 X-Ms-Retry-After-Ms", 503, []string{"X-Ms-Retry-After-Ms", "0"}},
		answer{"503 not executed", 503, []string{"Request-Executed", "?0"}},
		answer{"500 not executed", 500, []string{"Request-Executed", " ?0 "}},
		answer{"503 executed", 503, []string{"Request-Executed", "?1"}},
		answer{"503 contradicting itself", 503, []string{"Request-Executed", "?0", "Request-Executed", "?1"}},
		answer{"503 of Envoy's circuit breaker", 503, []string{"X-Envoy-Overloaded", "true"}},
		answer{"503 of Envoy's rate limit", 503, []string{"X-Envoy-Ratelimited", "true"}},
		answer{"403 Retry-After", 403, []string{"Retry-After", "0"}},
		answer{"503 malformed Retry-After", 503, []string{"Retry-After", "-1"}},
		answer{"500 Retry-After", 500, []string{"Retry-After", "0"}},
		answer{"529 Retry-After", 529, []string{"Retry-After", "0"}},
		answer{"503 quota", 503, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1ms"}},
		answer{"500 Stripe-Should-Retry", 500, []string{"Stripe-Should-Retry", "true"}},
		answer{"409 X-Should-Retry", 409, []string{"X-Should-Retry", "true"}},
		answer{"429 should not", 429, []string{"X-Should-Retry", "false"}},
		answer{"503 Retry-After, should not", 503, []string{"Retry-After", "0", "Stripe-Should-Retry", "false"}},
	)
	didNoWork := map[string]bool{
		"425": true, "429": true, "429 Retry-After": true, "403 Retry-After": true, "503 not executed": true, "500 not executed": true,
		"503 of Envoy's circuit breaker": true, "503 of Envoy's rate limit": true, "500 Stripe-Should-Retry": true, "409 X-Should-Retry": true,
	}
	type keys = resilienthttp.Idempotency
	for _, request := range []struct {
		name, method string
		keys         keys
		context      string // its key
		header       string // its key
		keyed        bool
	}{
		{name: "POST, keys off", method: http.MethodPost, keys: keys{Disabled: true}},
		{name: "PATCH, keys off", method: http.MethodPatch, keys: keys{Disabled: true}},
		{name: "POST, not among Methods", method: http.MethodPost, keys: keys{Methods: []string{http.MethodPatch}}},
		{name: "POST, no Methods", method: http.MethodPost, keys: keys{Methods: []string{}}},
		{name: "POST, NewKey gives none", method: http.MethodPost, keys: keys{NewKey: func(*http.Request) string { return "" }}},
		{name: "unknown method", method: "FROB"},
		{name: "lower case is another method", method: "get"},
		{name: "CONNECT", method: http.MethodConnect},
		{name: "POST", method: http.MethodPost, keyed: true},
		{name: "PATCH", method: http.MethodPatch, keyed: true},
		{name: "POST, context key, keys off", method: http.MethodPost, context: "k", keys: keys{Disabled: true}, keyed: true},
		{name: "POST, header key, keys off", method: http.MethodPost, header: "k", keys: keys{Disabled: true}, keyed: true},
		{name: "unknown method, context key", method: "FROB", context: "k", keyed: true},
		{name: "unknown method among Methods", method: "FROB", keys: keys{Methods: []string{"FROB"}}, keyed: true},
	} {
		t.Run(fmt.Sprintf("§4.8 %s, keyed %t", request.name, request.keyed), func(t *testing.T) {
			for _, a := range answers {
				transport := bareTransport(puppetStatus(a.status, a.header...), 2)
				transport.Idempotency = request.keys
				req := newCall(resilienthttp.WithIdempotencyKey(t.Context(), request.context), t, request.method, "body")
				if request.header != "" {
					req.Header.Set("Idempotency-Key", request.header)
				}
				attempts := tripped(t, transport, req)
				v := attempts[0].Verdict
				failed := v == resilienthttp.VerdictTransient || v == resilienthttp.VerdictThrottled
				again := failed
				if !request.keyed {
					again = didNoWork[a.name]
				}
				require.Equal(t, again, len(attempts) == 2, a.name)
				if failed && !again {
					require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].StopReason, a.name)
				}
			}
		})
	}
	t.Run("§4.8 idempotent methods", func(t *testing.T) {
		for _, method := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "REPORT", "SEARCH", "PUT", "DELETE"} {
			req := newCall(t.Context(), t, method, "")
			req.Method = method
			require.Len(t, tripped(t, bareTransport(puppetStatus(500), 2), req), 2, method)
		}
		for _, method := range []string{"query", "COPY", "LOCK"} { // methods are case-sensitive
			req := newCall(t.Context(), t, method, "")
			req.Method = method
			require.Len(t, tripped(t, bareTransport(puppetStatus(500), 2), req), 1, method)
		}
	})
}

// §4.10: the server's should-retry header overrides the table.
func TestShouldRetry(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		header []string
		want   resilienthttp.Verdict
	}{
		{"Stripe says yes to a 400", 400, []string{"Stripe-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 422", 422, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 501", 501, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 999", 999, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 429 keeps it throttled", 429, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictThrottled},
		{"no to a 500", 500, []string{"Stripe-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
		{"no to a 429", 429, []string{"X-Should-Retry", "false", "Retry-After", "1"}, resilienthttp.VerdictPermanent},
		{"no to a 503", 503, []string{"X-Should-Retry", "false", "Retry-After", "1"}, resilienthttp.VerdictPermanent},
		{"no to a 408", 408, []string{"X-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
		{"Stripe-Should-Retry before X-Should-Retry", 500, []string{"Stripe-Should-Retry", "false", "X-Should-Retry", "true"}, resilienthttp.VerdictPermanent},
		{"case and blanks", 500, []string{"X-Should-Retry", " FALSE "}, resilienthttp.VerdictPermanent},
		{"another value is ignored", 500, []string{"X-Should-Retry", "maybe"}, resilienthttp.VerdictTransient},
		{"a number is ignored", 400, []string{"X-Should-Retry", "1"}, resilienthttp.VerdictPermanent},
		{"empty Stripe-Should-Retry, X-Should-Retry counts", 400, []string{"Stripe-Should-Retry", "", "X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"ignored on a success", 200, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictSuccess},
		{"ignored on a redirect", 302, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictSuccess},
	} {
		t.Run("§4.10 "+row.name, func(t *testing.T) {
			attempts := tripped(t, bareTransport(puppetStatus(row.status, row.header...), 2), newCall(t.Context(), t, http.MethodPost, "body"))
			require.Equal(t, row.want, attempts[0].Verdict)
			again := row.want == resilienthttp.VerdictTransient || row.want == resilienthttp.VerdictThrottled
			require.Equal(t, again, len(attempts) == 2)
		})
	}
}

// timeoutError is what package net returns for timeouts, seen from outside.
type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }

func (timeoutError) Timeout() bool { return true }

// §4.8, §4.9: the classes of errors that a Base may return, unwrapped and wrapped. neterr.TestClassification has all
// errors of each class.
func TestTransportErrors(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	remote := func(alert uint8) error { return &net.OpError{Op: "remote error", Err: foreignAlertError(alert)} }
	const (
		permanent = resilienthttp.VerdictPermanent
		transient = resilienthttp.VerdictTransient
	)
	for _, row := range []struct {
		name string
		err  error
		want resilienthttp.Verdict
		left bool // the request may have
	}{
		{"ECONNRESET", read(os.NewSyscallError("read", syscall.ECONNRESET)), transient, true},
		{"ECONNREFUSED", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), transient, false},
		{"EOF", io.EOF, transient, true},
		{"a context of Base's own", context.Canceled, transient, true},
		{"a deadline of Base's own", context.DeadlineExceeded, transient, true},
		{"unknown kind", errors.New("gremlins"), transient, true},
		{"NXDOMAIN", dial(&net.DNSError{Err: "no such host", Name: "x.test", IsNotFound: true}), permanent, false},
		{"unknown authority", x509.UnknownAuthorityError{}, permanent, true},
		{"verification", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, permanent, false},
		{"alert bad_certificate", remote(42), permanent, true},
		{"alert handshake_failure", remote(40), transient, false},
		{"alert internal_error", remote(80), transient, true},
		{"scheme mismatch", http.ErrSchemeMismatch, permanent, false},
		{"scheme mismatch as http.Transport says it", tls.RecordHeaderError{
			Msg: "first record", RecordHeader: [5]byte([]byte("HTTP/")), Conn: &net.TCPConn{},
		}, permanent, false},
		{"scheme", errors.New(`unsupported protocol scheme "ftp"`), permanent, false},
		{"body shorter than said", errors.New("http: ContentLength=5 with Body length 3"), permanent, true},
		{"circuit of a Transport inside", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, transient, true},
		{"limit of a Transport inside", &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}, permanent, true},
		{"limit inside, after an attempt", &resilienthttp.Error{
			Reason: resilienthttp.ErrRateLimited, Attempts: []resilienthttp.Attempt{{Number: 1, Err: io.EOF}},
		}, permanent, true},
		{"failure inside", &resilienthttp.Error{Reason: resilienthttp.ErrSingleAttempt, Err: io.EOF}, transient, true},
		{"rejection inside", &resilienthttp.Error{Reason: resilienthttp.ErrSingleAttempt, Err: syscall.ECONNREFUSED}, transient, false},
	} {
		for _, wrapped := range []struct {
			name string
			err  error
		}{
			{"", row.err},
			{", wrapped", fmt.Errorf("base: %w", row.err)},
			{", in a url.Error", &url.Error{Op: "Get", URL: "http://x.test/?unsupported protocol scheme ", Err: row.err}},
			{", joined", errors.Join(errors.New("more"), row.err)},
		} {
			t.Run("§4.9 "+row.name+wrapped.name, func(t *testing.T) {
				base := puppet(func(*http.Request) (*http.Response, error) { return nil, wrapped.err })
				attempts := tripped(t, bareTransport(base, 2), newCall(t.Context(), t, http.MethodGet, ""))
				require.Equal(t, row.want, attempts[0].Verdict)
				require.Equal(t, row.want == transient, len(attempts) == 2)
				require.ErrorIs(t, attempts[0].Err, wrapped.err)

				// §4.8, also where the classification is overridden.
				transport := bareTransport(base, 2)
				transport.Idempotency.Disabled = true
				transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return transient }
				attempts = tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
				require.Equal(t, !row.left, len(attempts) == 2, "an unkeyed POST is retried only if it was not sent")

				transport.Idempotency.Disabled = false
				attempts = tripped(t, bareTransport(base, 2), newCall(t.Context(), t, http.MethodPost, "body"))
				require.Equal(t, row.want == transient, len(attempts) == 2, "a keyed POST is retried as the table says")
			})
		}
	}
}

// foreignAlertError has the form of crypto/tls's alert type: a uint8.
type foreignAlertError uint8

func (a foreignAlertError) Error() string { return fmt.Sprintf("tls: alert(%d)", uint8(a)) }

// §4.9: requests that cannot be sent to an address, through a proxy, or to this server. They get one attempt, and the circuit does
// not count them. TestBadRequests has the others.
func TestMalformedRequests(t *testing.T) {
	// The dialer rejects an invalid address without a look-up. These rows pin the texts of net.
	for _, row := range []struct {
		name, url string
		base      *http.Transport
	}{
		{"a port above 65535", "http://127.0.0.1:99999/", &http.Transport{}},
		{"a port above 65535/https", "https://127.0.0.1:99999/", &http.Transport{}},
		{"a port above 65535/proxy", "http://x.test/", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:99999"})}},
		{"a port above 65535/CONNECT", "https://x.test/", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:99999"})}},
		{"a port above 65535/SOCKS", "http://x.test/", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: "127.0.0.1:99999"})}},
		{"a network of no kind", "http://127.0.0.1:1/", &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tpc", address)
		}}},
	} {
		t.Run("§4.9 "+row.name, func(t *testing.T) {
			transport := bareTransport(row.base, 2)
			transport.Breaker = &resilienthttp.Breaker{MinRequests: 1}
			req := newRequest(t, http.MethodGet, row.url, "")
			attempts := tripped(t, transport, req)
			require.Len(t, attempts, 1, "%v", attempts[0].Err)
			require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict, "%v", attempts[0].Err)
			require.Equal(t, resilienthttp.StateClosed, transport.Breaker.State(req.URL.Host, resilienthttp.PriorityDefault))
		})
	}
	bubble.Run(t, "§4.9 host header/proxy", func(t *testing.T) {
		proxy := memhttp.NewNetwork(t).Serve(t, "proxy.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("sent") }))
		base := proxy.Transport()
		base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
		req := newCall(t.Context(), t, http.MethodGet, "")
		req.Host = "a b"
		attempts := tripped(t, bareTransport(base, 2), req)
		last := attempts[len(attempts)-1]
		for _, a := range attempts[:len(attempts)-1] { // now and then net/http first says that the connection is closed
			require.ErrorIs(t, a.Err, net.ErrClosed)
		}
		require.Equal(t, resilienthttp.VerdictPermanent, last.Verdict, "%v", last.Err)
	})
	bubble.Run(t, "§4.9 header list too large for HTTP/2", func(t *testing.T) {
		server := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			memhttp.HTTP2(), func(s *memhttp.Server) { s.Config.MaxHeaderBytes = 1 << 10 })
		transport := bareTransport(server.Transport(), 2)
		send := func(size int) []resilienthttp.Attempt {
			req := newRequest(t, http.MethodGet, server.URL, "")
			req.Header.Set("X-Large", strings.Repeat("x", size))
			return tripped(t, transport, req)
		}
		send(1) // the settings arrive with the first response
		attempts := send(1 << 16)
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict, "%v", attempts[0].Err)
	})
}

// §4.9: the verdict of every status, and its effect, are those of the table of status codes in docs/retries.md.
func TestRetriesPage(t *testing.T) {
	page, err := os.ReadFile("docs/retries.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "<!-- defaults:begin outcomes -->\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "<!-- defaults:end -->")
	tried := map[int]map[bool]bool{} // by the status, and whether it asks to wait: the first row that fits decides
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) < 4 || strings.Trim(cells[0], "0123456789–") != "" {
			continue // an error, or the head
		}
		asks := map[string][]bool{"": {false, true}, "asks to wait": {true}, "asks to wait, or exhausted quota": {true}}[strings.TrimSpace(cells[1])]
		for _, status := range statusesOf(t, cells[0]) {
			if tried[status] == nil {
				tried[status] = map[bool]bool{}
			}
			for _, ask := range asks {
				if !tried[status][ask] {
					tried[status][ask] = true
					repeated := cells[2] == "transient" || cells[2] == "throttled"
					tryStatus(t, status, ask, cells[2], repeated, repeated && cells[3] == "none")
				}
			}
		}
	}
	for status := 100; status <= 999; status++ {
		require.Len(t, tried[status], 2, "%d with and without a wait", status)
	}
}

// statusesOf returns the statuses of a range such as "502–504".
func statusesOf(t *testing.T, cell string) (statuses []int) {
	t.Helper()
	first, last, ranged := strings.Cut(cell, "–")
	if !ranged {
		last = first
	}
	from, err := strconv.Atoi(first)
	require.NoError(t, err, cell)
	to, err := strconv.Atoi(last)
	require.NoError(t, err, cell)
	for status := from; status <= to; status++ {
		statuses = append(statuses, status)
	}
	return statuses
}

func tryStatus(t *testing.T, status int, ask bool, verdict string, keyed, unkeyed bool) {
	t.Helper()
	base := puppetStatus(status)
	if ask {
		base = puppetStatus(status, "Retry-After", "0")
	}
	for _, request := range []struct {
		name, method, key string
		retried           bool
	}{{"PUT", http.MethodPut, "", keyed}, {"POST with a key", http.MethodPost, "k", keyed}, {"POST", http.MethodPost, "", unkeyed}} {
		transport := bareTransport(base, 2)
		transport.Idempotency.Disabled = true
		ctx := resilienthttp.WithIdempotencyKey(t.Context(), request.key)
		attempts := tripped(t, transport, newCall(ctx, t, request.method, "body"))
		require.Equal(t, verdict, attempts[0].Verdict.String(), "%d %s, asks to wait: %v", status, request.name, ask)
		require.Equal(t, request.retried, len(attempts) == 2, "%d %s, asks to wait: %v", status, request.name, ask)
		if request.retried {
			require.Equal(t, resilienthttp.ErrMaxAttempts, attempts[1].StopReason, "%d", status)
		}
	}
}

// §4.8: a QUERY, which has a body, is treated as a GET is everywhere: after a 502, on a reused connection that breaks, by hedges,
// by second endpoints. A LOCK, of which nothing is known, is not.
func TestQuery(t *testing.T) {
	const slow = 5 * time.Second
	for _, row := range []struct {
		name    string
		first   http.Handler // of the second request of the call's server: the first one opens a connection
		second  bool         // there is a second endpoint
		changes func(*resilienthttp.Transport)
		took    time.Duration
	}{
		{"a 502", faulttest.Reply{Status: 502}, false, nil, time.Second},
		{"a reused connection breaks", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), false, nil, time.Second},
		{"slow: hedged", faulttest.Reply{Delay: slow}, false, func(tr *resilienthttp.Transport) { tr.Hedge = &resilienthttp.Hedge{Delay: 100 * time.Millisecond} }, 100 * time.Millisecond},
		{"a 500: the next endpoint", faulttest.Reply{Status: 500}, true, nil, 0},
	} {
		for method, want := range map[string]bool{"GET": true, "QUERY": true, "PROPFIND": true, "REPORT": true, "SEARCH": true, "LOCK": false} {
			bubble.Run(t, row.name+", "+method, func(t *testing.T) {
				network := memhttp.NewNetwork(t)
				var mu sync.Mutex
				var got []string
				record := func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						body, _ := io.ReadAll(r.Body)
						mu.Lock() // a hedge and the attempt before it have handlers of their own
						got = append(got, r.Method+" "+string(body))
						mu.Unlock()
						h.ServeHTTP(w, r)
					})
				}
				ok := faulttest.OK("ok")
				one := network.Serve(t, "one.test", record(inTurn(ok, row.first, ok)))
				network.Serve(t, "two.test", record(ok))
				tr := oneAndTwo(one.Transport(), resilienthttp.Policy{})
				if row.changes != nil {
					row.changes(tr.Transport)
				}
				if !row.second {
					tr.Endpoints = tr.Endpoints[:1]
				}
				readAll(t, roundTrip(t, tr, newRequest(t, "POST", "http://one.test/", "")))
				began := time.Now()
				resp, err := tr.RoundTrip(newRequest(t, method, "http://one.test/", "q"))
				succeeded := finish(t, resp, err) && time.Since(began) <= row.took
				require.Equal(t, want, succeeded)
				for _, request := range got[1:] {
					require.Equal(t, method+" q", request, "each attempt has the body")
				}
			})
		}
	}
}

// The page says what http.Client does with a redirect of a QUERY. If this fails with a new release of Go, the page is to change.
func TestQuery_redirects(t *testing.T) {
	for status, want := range map[int]string{301: "GET ", 302: "GET ", 307: "QUERY q", 308: "QUERY q"} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			got := ""
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if got = r.Method + " " + string(body); r.URL.Path == "/" {
					http.Redirect(w, r, "/moved", status)
				}
			}))
			client := &http.Client{Transport: &resilienthttp.Transport{Base: server.Transport()}}
			resp := do(t, client, newRequest(t, "QUERY", server.URL+"/", "q"))
			readAll(t, resp)
			require.Equal(t, want, got)
		})
	}
}
