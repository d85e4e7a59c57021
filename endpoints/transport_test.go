package endpoints_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func asError(err error) *resilienthttp.Error {
	failed, _ := errors.AsType[*resilienthttp.Error](err)
	return failed
}

// N1: a request moves only if that cannot do the work twice. Each row has the servers that got the
// attempts; b works.
func TestTransport_moves(t *testing.T) {
	const get, put, post = http.MethodGet, http.MethodPut, http.MethodPost
	busy, wait := answers(http.StatusServiceUnavailable, nil), http.Header{"Retry-After": {"20"}}
	shared := func(tr *endpoints.Transport) { tr.SharedKeys = true }
	keyless := func(tr *endpoints.Transport) { tr.Transport.Idempotency.Disabled = true }
	sharedKeyless := func(tr *endpoints.Transport) { shared(tr); keyless(tr) }
	for _, row := range []struct {
		name   string
		method string
		edit   func(*endpoints.Transport)
		first  http.RoundTripper // what a does
		want   string
	}{
		{"GET, works: it stays", get, nil, nil, "a"},
		{"GET, refused: it moves", get, nil, refused, "a b"},
		{"GET, reset: it moves", get, nil, reset, "a b"},
		{"GET, 500: it moves", get, nil, answers(500, nil), "a b"},
		{"GET, 503: it moves", get, nil, busy, "a b"},
		{"GET, 503 with Retry-After: it moves at once", get, nil, answers(503, wait), "a b"},
		{"GET, 429 with Retry-After: it moves at once", get, nil, answers(429, wait), "a b"},
		{"GET, 404: it is the result", get, nil, answers(404, nil), "a"},
		{"GET, 501: it is the result", get, nil, answers(501, nil), "a"},
		{"PUT, reset: it moves", put, nil, reset, "a b"},
		{"DELETE, reset: it moves", http.MethodDelete, nil, reset, "a b"},
		{"POST, refused: it moves", post, nil, refused, "a b"},
		{"POST, refused, no key: it moves", post, keyless, refused, "a b"},
		{"POST, 429: it moves", post, nil, answers(429, nil), "a b"},
		{"POST, 429, no key: it moves", post, keyless, answers(429, nil), "a b"},
		{"POST, 503 with Retry-After: it stays, with its key", post, nil, answers(503, wait), "a a…"},
		{"POST, 503 with Retry-After, no key: no retry", post, keyless, answers(503, wait), "a"},
		{"POST, 503 that says that nothing was executed: it moves", post, nil, answers(503, http.Header{"Request-Executed": {"?0"}}), "a b"},
		{"POST, 408, no key: no retry", post, keyless, answers(408, nil), "a"},
		{"POST, 503: it stays, with its key", post, nil, busy, "a a…"},
		{"POST, 503, no key: no retry", post, keyless, busy, "a"},
		{"POST, reset: it stays, with its key", post, nil, reset, "a a…"},
		{"POST, reset, no key: no retry", post, keyless, reset, "a"},
		{"POST, 500: it stays, with its key", post, nil, answers(500, nil), "a a…"},
		{"POST, 500 that may be repeated: it stays", post, nil, answers(500, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST, 504 that may be repeated: it stays", post, nil, answers(504, http.Header{"Stripe-Should-Retry": {"true"}}), "a a…"},
		{"POST, 409 that may be repeated: it stays", post, nil, answers(409, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST, 503 that may be repeated: it stays", post, nil, answers(503, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST with a shared key, reset: it moves", post, shared, reset, "a b"},
		{"POST with a shared key, 500: it moves", post, shared, answers(500, nil), "a b"},
		{"POST, shared, no key, reset: no retry", post, sharedKeyless, reset, "a"},
		{"PATCH with a shared key, 503: it moves", http.MethodPatch, shared, busy, "a b"},
		{"PATCH, 503: it stays", http.MethodPatch, nil, busy, "a a…"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, row.edit, faulttest.OK("a"), faulttest.OK("b"))
			l.Transport.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
			if row.first != nil {
				l.setDown("a.test", row.first)
			}
			body := "{}"
			if row.method == get {
				body = ""
			}
			began := time.Now()
			resp, err := l.do(row.method, "/x", body)
			if stays, several := strings.CutSuffix(row.want, "…"); several {
				require.Contains(t, visited(resp, err), stays)
			} else {
				require.Equal(t, row.want, visited(resp, err))
			}
			if row.want == "a b" {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Less(t, time.Since(began), 10*time.Millisecond, "the first visit of an endpoint has no wait")
				l.servers["b.test"].AssertRequests(t, 1)
			} else {
				l.servers["b.test"].AssertRequests(t, 0)
			}
		})
	}
}

// N1: once a server may have done the work of a POST, a later response that says "no work" does not
// free it.
func TestTransport_staysAfterUnknownResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		n := 0
		l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return reset.RoundTrip(req)
			}
			return answers(429, nil).RoundTrip(req)
		}))
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Contains(t, visited(resp, err), "a a a")
		require.Equal(t, 429, resp.StatusCode)
		l.servers["b.test"].AssertRequests(t, 0)
	})
}

// N2: MaxAttempts counts the attempts at all endpoints, and each endpoint is visited once before the
// series of waits begins.
func TestTransport_maxAttempts(t *testing.T) {
	for _, row := range []struct {
		name        string
		maxAttempts int
		want        string
	}{
		{"one: no move", 1, "a"},
		{"two: one move", 2, "a b"},
		{"three: every endpoint once", 3, "a b c"},
		{"default: six", 0, "a b c a b c"},
		{"seven", 7, "a b c a b c a"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) {
				tr.Transport.Policy.MaxAttempts = row.maxAttempts
				tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
				tr.Transport.Budget = &resilienthttp.Budget{Ratio: -1}
			}, faulttest.Status(500), faulttest.Status(500), faulttest.Status(500))
			began := time.Now()
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
			require.Equal(t, row.want, visited(resp, err))
			if len(row.want) <= len("a b c") {
				require.Zero(t, time.Since(began).Truncate(10*time.Millisecond), "no wait before every endpoint was visited")
			} else {
				require.Greater(t, time.Since(began), 50*time.Millisecond, "then the series of waits")
			}
		})
	}
}

// N4: if all are down, one *Error has all attempts, and State shows each endpoint.
func TestTransport_allDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", refused)
		l.setDown("b.test", refused)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		calls := 0
		l.Transport.Transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) {
			calls++
			assert.Equal(t, "a.test#a", c.Scope[:8])
		}}
		_, err := l.doIn(ctx, http.MethodGet, "/x", "")
		failed := asError(err)
		require.NotNil(t, failed)
		t.Log(resilienthttp.Explain(nil, err))
		require.Greater(t, len(failed.Attempts), 2)
		require.Equal(t, "a b a b", visited(nil, err)[:7])
		require.Equal(t, 1, calls, "one call")
		var scopes []string
		for _, s := range l.Transport.Transport.State().Scopes {
			scopes = append(scopes, s.Scope)
			assert.NotZero(t, s.Failure.At, s.Scope)
		}
		require.Equal(t, []string{"a.test#a", "b.test#b"}, scopes)
	})
}

// N3: the first visit of an endpoint may be its probe, although it is not the first attempt of the call.
// Otherwise a client with few calls would never notice that the second endpoint works again.
func TestTransport_probesSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", refused)
		l.setDown("b.test", refused)
		load{rate: 50, length: 10 * time.Second, method: http.MethodGet, deadline: time.Second}.run(t, l, "http://a.test/x", nil)
		for _, s := range l.Transport.Transport.State().Scopes {
			require.NotEqual(t, resilienthttp.StateClosed, s.Breaker.State, s.Scope)
		}
		l.setDown("b.test", nil)
		for range 3 {
			time.Sleep(10 * time.Second)
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, "a b", visited(resp, err))
		}
	})
}

// N4: all log records name the scope of the endpoint, so that a filter finds them.
func TestTransport_logsScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := newList(t, nil, faulttest.OK("a"), faulttest.Status(http.StatusServiceUnavailable))
		l.setDown("a.test", refused)
		l.Transport.Transport.Trace = resilienthttp.LogTrace(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if resp, err := l.get("/x"); err == nil { // its last attempt was at b
			require.NoError(t, resp.Body.Close())
		}
		scopes := map[string]map[string]bool{}
		for line := range strings.Lines(log.String()) {
			var record struct{ Event, Scope string }
			require.NoError(t, json.Unmarshal([]byte(line), &record))
			if scopes[record.Event] == nil {
				scopes[record.Event] = map[string]bool{}
			}
			scopes[record.Event][record.Scope] = true
		}
		require.Equal(t, map[string]bool{"a.test#a": true, "b.test#b": true}, scopes["attempt_failed"])
		for event, of := range scopes {
			for scope := range of {
				require.Contains(t, scope, "#", event)
			}
		}
		require.Contains(t, scopes, "retry_scheduled")
	})
}

// A 409 while the server may be at work is about this endpoint: the retry stays.
func TestTransport_conflictStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) { tr.SharedKeys = true }, faulttest.OK("a"),
			faulttest.Sequence(faulttest.Status(http.StatusConflict), faulttest.OK("b")))
		l.setDown("a.test", reset)
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "a b b", visited(resp, err))
	})
}

// N5: the quota is that of the endpoint's key, whatever Authorization the callers have set.
func TestTransport_quotaOfEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &faulttest.Quota{Limit: 1, Window: time.Hour, Dialect: faulttest.OpenAI, KeyFunc: faulttest.Credential}
		l := newList(t, keyPool, quota)
		for _, caller := range []string{"x", "y"} {
			req := newRequest(t.Context(), t, http.MethodGet, "http://a.test/v1/chat", http.NoBody)
			req.Header.Set("Authorization", "Bearer "+caller)
			resp, err := closed(t, l, req)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		_, rejected := quota.Counts()
		require.Zero(t, rejected)
		l.servers["a.test"].AssertRequests(t, 2)
	})
}

// N8: the first call ends in doubt, because a has lost all its responses. Its circuit opens. A repetition
// with the same key at the same endpoint gets the stored response; without WithEndpoint, b works again.
func TestWithEndpoint_repeatsInDoubt(t *testing.T) {
	for _, row := range []struct {
		name   string
		pinned bool
		doneAt string
	}{
		{"pinned: the work is done once", true, "a 1 b 0"},
		{"a new call, later than a loop's: it is done twice", false, "a 1 b 1"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			a, b := new(faulttest.Idempotent), new(faulttest.Idempotent)
			l := newList(t, nil, a, b)
			ctx := resilienthttp.WithIdempotencyKey(t.Context(), "invoice:001")
			l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := l.servers["a.test"].Transport().RoundTrip(req.Clone(req.Context()))
				if err == nil {
					_ = resp.Body.Close()
				}
				return reset(req)
			}))
			_, err := l.doIn(ctx, http.MethodPost, "/charges", "{}")
			failed := asError(err)
			require.NotNil(t, failed)
			require.False(t, failed.NotSent())
			last := failed.Attempts[len(failed.Attempts)-1].Endpoint
			require.Equal(t, "a", last)
			for range 40 { // GETs open its circuit
				_, _ = l.get("/")
			}
			if row.pinned {
				l.setDown("a.test", nil)
				time.Sleep(10 * time.Second) // its circuit is half-open
				ctx = endpoints.WithEndpoint(ctx, last)
			} else {
				time.Sleep(11 * time.Second)
			}
			resp, err := l.doIn(ctx, http.MethodPost, "/charges", "{}")
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Equal(t, row.doneAt, fmt.Sprintf("a %d b %d", a.Executions()["invoice:001"], b.Executions()["invoice:001"]))
		})
	}
}

// N8: the call goes nowhere else, even if it could.
func TestWithEndpoint_goesNowhereElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		get := func(name string) (*http.Response, error) {
			return l.doIn(endpoints.WithEndpoint(t.Context(), name), http.MethodGet, "/x", "")
		}
		require.Equal(t, "b", visited(get("b")))
		l.setDown("b.test", refused)
		resp, err := get("b")
		require.Error(t, err)
		require.NotContains(t, visited(resp, err), "a")
		require.Equal(t, "a", visited(l.get("/x")))

		before := l.servers["a.test"].Total() + l.servers["b.test"].Total()
		_, err = get("c")
		require.ErrorContains(t, err, `no endpoint has the name "c"`)
		require.True(t, asError(err).NotSent())
		require.Equal(t, before, l.servers["a.test"].Total()+l.servers["b.test"].Total())
	})
}

// N7, N8: a redirect names the first endpoint, as without WithEndpoint. Otherwise http.Client takes it for another
// host, and removes Authorization.
func TestWithEndpoint_redirects(t *testing.T) {
	for _, location := range []string{"/next", "http://a.test/next", "http://b.test/next", "http://c.test/next"} {
		bubble.Run(t, location, func(t *testing.T) {
			var got []string
			script := func(name string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got = append(got, name+r.URL.Path+" "+r.Header.Get("Authorization"))
					if r.URL.Path == "/x" {
						w.Header().Set("Location", location)
						w.WriteHeader(http.StatusTemporaryRedirect)
					}
				})
			}
			l := newList(t, nil, script("a"), script("b"), script("c"))
			req := newRequest(endpoints.WithEndpoint(t.Context(), "b"), t, http.MethodGet, "http://a.test/x", nil)
			req.Header.Set("Authorization", "secret")
			resp, err := (&http.Client{Transport: l}).Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, []string{"b/x secret", "b/next secret"}, got)
		})
	}
}

// N8: it is for one list. Another one that Base uses for a token knows nothing of it.
func TestWithEndpoint_listInBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := newList(t, nil, faulttest.OK("token"))
		login.Endpoints[0].Name = "login"
		l := newList(t, func(tr *endpoints.Transport) {
			base := tr.Transport.Base
			tr.Transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				require.NoError(t, errOf(login.doIn(req.Context(), http.MethodGet, "/token", "")))
				return base.RoundTrip(req)
			})
		}, faulttest.OK("a"), faulttest.OK("b"))
		require.Equal(t, "b", visited(l.doIn(endpoints.WithEndpoint(t.Context(), "b"), http.MethodGet, "/x", "")))
	})
}

// The circuit of the second endpoint opens by a call. The first one admits calls earlier, and NotBefore says so.
func TestNotBefore_ofList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: 10 * time.Second, MaxCooldown: 10 * time.Second, MaxWait: -1}
		}, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", answers(http.StatusInternalServerError, nil))
		_, err := l.get("/x") // a's circuit opens, and b responds
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		l.setDown("b.test", answers(http.StatusInternalServerError, nil))
		resp, err := l.get("/x")
		require.Equal(t, "b", visited(resp, err))
		wait := time.Until(resilienthttp.NotBefore(resp, err))
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, 5*time.Second, "a was open for 8 s of 10 to 12.5")
		time.Sleep(wait)
		l.setDown("a.test", nil)
		require.Equal(t, "a", visited(l.get("/x")))
	})
}

// N5: two keys of one API, each with a quota. When the first is exhausted, calls use the second at
// once. No key gets more than one 429 in a window, and both quotas are used up.
func TestTransport_keyPool(t *testing.T) {
	for _, row := range []struct {
		name    string
		dialect faulttest.Dialect
		limit   int
		method  string
	}{
		{"OpenAI's headers, POST", faulttest.OpenAI, 100, http.MethodPost},
		{"OpenAI's headers, GET", faulttest.OpenAI, 100, http.MethodGet},
		{"IETF's headers, POST", faulttest.IETF, 100, http.MethodPost},
		{"Retry-After only, POST", faulttest.NoHeaders, 100, http.MethodPost},
		{"a quota of ten", faulttest.OpenAI, 10, http.MethodPost},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			quota := &faulttest.Quota{Limit: row.limit, Window: time.Minute, Dialect: row.dialect, KeyFunc: faulttest.Credential,
				Next: faulttest.Reply{Body: "ok", Delay: 200 * time.Millisecond}}
			l := newList(t, keyPool, quota)
			if row.dialect == faulttest.NoHeaders {
				quota.RetryAfterFormat = faulttest.Seconds
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // a window begins
			const windows = 3
			// a load of 1.5 of the first key's quota
			all := load{rate: 1.5 * float64(row.limit) / 60, length: windows * time.Minute, method: row.method, deadline: 30 * time.Second}.
				run(t, l, "http://a.test/v1/chat", nil)
			accepted, rejected := quota.Counts()
			t.Log("accepted", accepted, "rejected", rejected, "calls", len(all))
			assert.InDelta(t, 1, share(all, succeeded), .01)
			assert.LessOrEqual(t, rejected, 2*windows)
			assert.LessOrEqual(t, p99(all), time.Second, "no call waits for a window")
			used := map[string]int{}
			for _, q := range l.servers["a.test"].Requests() {
				used[q.Header.Get("Authorization")]++
			}
			assert.Len(t, used, 2)
			assert.GreaterOrEqual(t, used["Bearer one"], windows*row.limit*8/10, "the first key is used first")
		})
	}
}

// keyPool makes the endpoint two keys of one API.
func keyPool(tr *endpoints.Transport) {
	api := tr.Endpoints[0].URL
	tr.Endpoints = []endpoints.Endpoint{
		{Name: "one", URL: api, Header: http.Header{"authorization": {"Bearer one"}}},
		{Name: "two", URL: api, Header: http.Header{"Authorization": {"Bearer two"}}},
	}
}

// N5: under more load than both quotas, both are used up.
func TestTransport_keyPoolOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &faulttest.Quota{Limit: 60, Window: time.Minute, Dialect: faulttest.OpenAI, KeyFunc: faulttest.Credential}
		l := newList(t, keyPool, quota)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		all := load{rate: 4, length: 3 * time.Minute, method: http.MethodPost, deadline: 10 * time.Second}.run(t, l, "http://a.test/v1/chat", nil)
		accepted, rejected := quota.Counts()
		t.Log("accepted", accepted, "rejected", rejected, "calls", len(all))
		assert.GreaterOrEqual(t, accepted, 342, "95 % of two quotas in three windows")
		assert.LessOrEqual(t, rejected, 6)
	})
}

// What a key has made is found with the same key: a redirect below an endpoint's URL goes to that endpoint,
// also if others have the same URL.
func TestTransport_keyPoolRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := newList(t, keyPool, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Authorization")
			got = append(got, r.Method+" "+r.URL.Path+" "+key)
			switch {
			case key == "Bearer one":
				w.WriteHeader(http.StatusTooManyRequests)
			case r.URL.Path == "/jobs":
				http.Redirect(w, r, "/jobs/1", http.StatusSeeOther)
			}
		}))
		resp, err := l.post("/jobs")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, []string{"POST /jobs Bearer one", "POST /jobs Bearer two", "GET /jobs/1 Bearer two"}, got)
	})
}

// A redirect of one list says nothing about the endpoints of another.
func TestTransport_redirectOfAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.Redirect(307, "http://b.test/x"), faulttest.OK("b"))
		other := &endpoints.Transport{Endpoints: l.Endpoints[:1], Transport: l.Transport.Transport}
		req := newRequest(t.Context(), t, http.MethodGet, "http://a.test/x", http.NoBody)
		first, err := closed(t, l, req)
		require.NoError(t, err)
		next := req.Clone(t.Context())
		next.Response = first
		resp, err := closed(t, other, next)
		require.NoError(t, err)
		require.Equal(t, "a", visited(resp, err))
	})
}

// Two endpoints of one host have their own circuits, quotas and names.
func TestTransport_sameHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/blue/", faulttest.Status(500))
		mux.Handle("/green/", faulttest.OK("green"))
		l := newList(t, nil, mux)
		l.Endpoints = []endpoints.Endpoint{{URL: parse(t, "http://a.test/blue")}, {URL: parse(t, "http://a.test/green/")}}
		for range 50 {
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		resp, err := l.get("/x")
		require.NoError(t, err)
		require.Equal(t, "a.test/green", visited(resp, err))
		var scopes []string
		for _, s := range l.Transport.Transport.State().Scopes {
			scopes = append(scopes, s.Scope+" "+s.Breaker.State.String())
		}
		require.Equal(t, []string{"a.test/blue open", "a.test/green closed"}, scopes)
	})
}

// tokenQuota is an API with a quota of tokens for each credential, and OpenAI's headers.
type tokenQuota struct {
	limit, cost float64 // tokens in a minute, and of a call
	window      bool    // a fixed window; else a token bucket
	silent      bool    // a rejection has no Retry-After
	takes       time.Duration

	mu       sync.Mutex
	tokens   map[string]float64
	at       map[string]time.Time
	served   int
	rejected int
}

func (q *tokenQuota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := q.take(w.Header(), r.Host+r.Header.Get("Authorization"))
	if status == http.StatusOK {
		time.Sleep(q.takes)
	}
	w.WriteHeader(status)
}

// take takes the tokens of a call, and describes the quota.
func (q *tokenQuota) take(h http.Header, of string) (status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, rate := time.Now(), q.limit/60
	last, known := q.at[of]
	switch {
	case !known || q.window && now.Sub(last) >= time.Minute:
		q.tokens[of], q.at[of] = q.limit, now
	case !q.window:
		q.tokens[of], q.at[of] = min(q.tokens[of]+now.Sub(last).Seconds()*rate, q.limit), now
	}
	status = http.StatusOK
	if q.tokens[of] < q.cost {
		status = http.StatusTooManyRequests
		q.rejected++
	} else {
		q.served++
		q.tokens[of] -= q.cost
	}
	full, enough := (q.limit-q.tokens[of])/rate, (q.cost-q.tokens[of])/rate
	if q.window {
		full = time.Until(q.at[of].Add(time.Minute)).Seconds()
		enough = full
	}
	h.Set("X-Ratelimit-Limit-Requests", "500")
	h.Set("X-Ratelimit-Remaining-Requests", "499")
	h.Set("X-Ratelimit-Reset-Requests", "120ms")
	h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(int(q.limit)))
	h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(int(q.tokens[of])))
	h.Set("X-Ratelimit-Reset-Tokens", time.Duration(full*float64(time.Second)).Round(time.Millisecond).String())
	if status != http.StatusOK && !q.silent {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(enough))))
	}
	return status
}

// Row 66: 60 calls of 3,000 tokens in 30 s meet two keys and a region of 30,000 tokens a minute each. §4.17: each request
// takes its Cost in advance, and responses correct a cost that is too low or too high.
func TestTransport_tokens(t *testing.T) {
	const second = time.Second
	for _, row := range []struct {
		name     string
		api      *tokenQuota
		cost     float64 // 0: unknown
		served   int     // at least
		rejected int     // at most
	}{
		{"a bucket", &tokenQuota{takes: 2 * second}, 3000, 60, 0},
		{"a bucket, quick responses", &tokenQuota{takes: second / 5}, 3000, 60, 0},
		{"a bucket, slow responses: the first ones show nothing for 15 s", &tokenQuota{takes: 15 * second}, 3000, 60, 3},
		{"a bucket, rejections without Retry-After", &tokenQuota{takes: 2 * second, silent: true}, 3000, 60, 0},
		{"a window", &tokenQuota{takes: 2 * second, window: true}, 3000, 60, 0},
		{"a window, rejections without Retry-After", &tokenQuota{takes: 2 * second, window: true, silent: true}, 3000, 60, 0},
		{"a bucket, half of the cost", &tokenQuota{takes: 2 * second}, 1500, 60, 6},
		{"a window, half of the cost", &tokenQuota{takes: 2 * second, window: true}, 1500, 60, 6},
		{"a bucket, twice the cost", &tokenQuota{takes: 2 * second}, 6000, 60, 0},
		{"a window, twice the cost", &tokenQuota{takes: 2 * second, window: true}, 6000, 60, 0},
		// Four may be sent at once, and show the costs in another order: .2 % of 1,500 runs had one rejection.
		{"a cost above the limit", &tokenQuota{takes: 2 * second}, 1e6, 60, 2},
		{"an unknown cost", &tokenQuota{takes: 2 * second}, 0, 40, 100},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := row.api
			api.limit, api.cost, api.tokens, api.at = 30_000, 3000, map[string]float64{}, map[string]time.Time{}
			l := newList(t, func(tr *endpoints.Transport) {
				keyPool(tr)
				region := tr.Endpoints[0]
				region.Name, region.URL = "region", parse(t, "http://b.test")
				tr.Endpoints = append(tr.Endpoints, region)
				if row.cost > 0 {
					tr.Transport.RateLimit = &resilienthttp.RateLimit{Cost: func(*http.Request) float64 { return row.cost }}
				}
			}, api, api)
			all := load{rate: 2, length: 30 * second, method: http.MethodPost, deadline: 90 * second}.run(t, l, "http://a.test/v1/chat", nil)
			api.mu.Lock() // a request of a call that ended may still be in the server
			defer api.mu.Unlock()
			t.Log(len(all), "calls,", api.served, "served,", api.rejected, "rejected by the servers")
			assert.Len(t, all, 60)
			assert.GreaterOrEqual(t, int(math.Round(share(all, succeeded)*60)), row.served)
			assert.LessOrEqual(t, api.rejected, row.rejected)
		})
	}
}

// N8: the circuit of the first endpoint opens after it has done the work and lost its responses. A loop around the list repeats the
// failed call, which stays there, so the second endpoint does not pay again. Another request goes to the second one.
func TestTransport_repeatedByALoop(t *testing.T) {
	for _, row := range []struct {
		name   string
		method string
		shared bool
		key    string // the caller's
		other  bool   // the loop's later attempts are another request
		want   string // the endpoint that serves the loop
	}{
		{name: "POST", method: http.MethodPost, want: "a"},
		{name: "POST with a key of the caller's", method: http.MethodPost, key: "order-1", want: "a"},
		{name: "POST, shared keys", method: http.MethodPost, shared: true, want: "b"},
		{name: "PUT", method: http.MethodPut, want: "b"},
		{name: "GET", method: http.MethodGet, want: "b"},
		{name: "POST, another request", method: http.MethodPost, other: true, want: "b"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) {
				tr.SharedKeys = row.shared
				tr.Transport.Policy.MaxAttempts = -1
			}, faulttest.OK("a"), faulttest.OK("b"))
			l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
				closeBody(req)
				return nil, syscall.ECONNRESET
			}))
			request := func() *http.Request {
				req := newRequest(t.Context(), t, row.method, l.Endpoints[0].URL.String()+"/pay", strings.NewReader("{}"))
				if row.key != "" {
					req.Header.Set("Idempotency-Key", row.key)
				}
				return req
			}
			req := request()
			resp, err := closed(t, l, req)
			require.Equal(t, "a", visited(resp, err))
			row.key = "another order"
			for range 30 { // until the circuit of the first is open
				_, _ = closed(t, l, request())
			}
			l.setDown("a.test", nil)
			for range 20 {
				if row.other {
					row.key = "a third order"
					req = request()
				}
				req.Body, _ = req.GetBody()
				if resp, err = closed(t, l, req); err == nil {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.Equal(t, row.want, visited(resp, err))
		})
	}
}

// N7: the URL of the request, which names the first endpoint, decides whether a POST has a key. All endpoints get it.
func TestTransport_keyHosts(t *testing.T) {
	for _, row := range []struct {
		name, host string
		key        bool
	}{
		{"of the first", "a.test", true},
		{"of the second only", "b.test", false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) {
				tr.Transport.Idempotency.Hosts = []string{row.host}
			}, faulttest.Status(http.StatusTooManyRequests), faulttest.OK("{}"))
			resp, err := (&http.Client{Transport: l}).Post("http://a.test/charges", "", strings.NewReader("charge"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			for _, host := range []string{"a.test", "b.test"} {
				requests := l.servers[host].Requests()
				require.Len(t, requests, 1, host)
				require.Equal(t, row.key, requests[0].Key != "", host)
			}
		})
	}
}
