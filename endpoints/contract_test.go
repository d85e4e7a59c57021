package endpoints_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
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

// N6: a hedge takes the next endpoint if the request may go to several ones.
func TestTransport_hedges(t *testing.T) {
	for _, row := range []struct {
		name   string
		method string
		shared bool
		want   string // endpoints in the order of the attempts; the response comes from the last
	}{
		{"GET", http.MethodGet, false, "a b"},
		{"POST with a shared key", http.MethodPost, true, "a b"},
		{"POST: to the same endpoint", http.MethodPost, false, "a a"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			slow := faulttest.Sequence(faulttest.Reply{Delay: time.Second, Body: "slow"}, faulttest.OK("quick"))
			l := newList(t, func(tr *endpoints.Transport) {
				tr.SharedKeys = row.shared
				tr.Transport.Hedge = &resilienthttp.Hedge{Delay: 100 * time.Millisecond, MaxRatio: -1}
			}, slow, faulttest.OK("b"))
			began := time.Now()
			resp, err := l.do(row.method, "/x", map[string]string{http.MethodPost: "{}"}[row.method])
			require.NoError(t, err)
			require.Equal(t, 100*time.Millisecond, time.Since(began))
			require.Equal(t, row.want, visited(resp, err))
			attempts := resilienthttp.Attempts(resp)
			require.True(t, attempts[1].Hedge)
			if row.method == http.MethodPost {
				keys := map[string]bool{}
				for _, srv := range l.servers {
					for _, q := range srv.Requests() {
						keys[q.Header.Get("Idempotency-Key")] = true
					}
				}
				require.Len(t, keys, 1)
			}
		})
	}
}

// N3, N4: a slow safe request gets its second attempt at the next endpoint, so an endpoint that hangs costs no call. The call
// counts at the endpoint that responded.
func TestTransport_secondAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var scope string
		l := newList(t, nil, faulttest.Hang, faulttest.OK("b"))
		l.Transport.Transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { scope = c.Scope }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		resp, err := l.doIn(ctx, http.MethodGet, "/x", "")
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, "a b", visited(resp, err))
		require.Equal(t, "b.test#b", scope)
		scopes := l.Transport.Transport.State().Scopes
		require.Zero(t, scopes[0].Responses.Calls)
		require.Equal(t, 1, scopes[1].Responses.Calls)
	})
}

// N3: of POSTs only one at a time probes an endpoint that fails, and none while GETs do.
func TestTransport_probes(t *testing.T) {
	for _, row := range []struct {
		name  string
		gets  bool
		takes time.Duration // a POST at a
		limit int32         // POSTs at a in one minute, after its circuit has opened; beside GETs: without retries
	}{
		{"POSTs alone: one at a time", false, 500 * time.Millisecond, 25},
		{"POSTs that hang: one at a time", false, 4500 * time.Millisecond, 15},
		{"GETs probe: no POST but one before the first GET", true, 500 * time.Millisecond, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
			var posts, most, now atomic.Int32
			var keys sync.Map
			l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPost {
					if _, retry := keys.LoadOrStore(req.Header.Get("Idempotency-Key"), true); !retry || !row.gets { // a retry is bound to a
						posts.Add(1)
					}
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					defer now.Add(-1)
					time.Sleep(row.takes)
				}
				return answers(500, nil).RoundTrip(req)
			}))
			warm := load{rate: 50, length: 10 * time.Second, method: http.MethodPost, deadline: 5 * time.Second}
			warm.run(t, l, "http://a.test/x", nil)
			require.NotEqual(t, resilienthttp.StateClosed, l.Transport.Transport.State().Scopes[0].Breaker.State)
			time.Sleep(10 * time.Second) // until the last POST of the warm-up is over
			posts.Store(0)
			most.Store(0)
			var both sync.WaitGroup
			both.Go(func() {
				load{rate: 50, length: time.Minute, method: http.MethodPost, deadline: 5 * time.Second}.run(t, l, "http://a.test/x", nil)
			})
			if row.gets {
				both.Go(func() {
					load{rate: 5, length: time.Minute, method: http.MethodGet, deadline: 5 * time.Second}.run(t, l, "http://a.test/x", nil)
				})
			}
			both.Wait()
			t.Log("POSTs at a:", posts.Load())
			assert.LessOrEqual(t, posts.Load(), row.limit)
			assert.LessOrEqual(t, most.Load(), int32(1))
		})
	}
}

// N3: a healthy endpoint gets its POSTs back, within 5 s where a GET can probe it, and within a minute where
// none can: its circuit is of another scope or priority, or the GETs go to another endpoint.
func TestTransport_trafficReturns(t *testing.T) {
	byPath := func(tr *endpoints.Transport) {
		tr.Transport.Scope = func(req *http.Request) string { return req.URL.Path }
	}
	quota := func(tr *endpoints.Transport) {
		base := tr.Transport.Base
		tr.Transport.RateLimit = &resilienthttp.RateLimit{Key: func(req *http.Request) string { return req.Method }}
		tr.Transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err == nil && req.Method == http.MethodGet && req.URL.Host == "a.test" {
				resp.Header["X-Ratelimit-Limit"], resp.Header["X-Ratelimit-Remaining"], resp.Header["X-Ratelimit-Reset"] = []string{"9"}, []string{"0"}, []string{"600"}
			}
			return resp, err
		})
	}
	for _, row := range []struct {
		name      string
		edit      func(*endpoints.Transport)
		post, get func(context.Context) context.Context
		within    time.Duration
	}{
		{"a GET can probe", nil, nil, nil, 5 * time.Second},
		{"critical POSTs beside default GETs", nil, func(ctx context.Context) context.Context {
			return resilienthttp.WithPriority(ctx, resilienthttp.PriorityCritical)
		}, nil, time.Minute},
		{"POSTs beside batch GETs", nil, nil, func(ctx context.Context) context.Context {
			return resilienthttp.WithPriority(ctx, resilienthttp.PriorityBatch)
		}, time.Minute},
		{"Scope by path", byPath, nil, nil, time.Minute},
		{"the GETs' quota is exhausted", quota, nil, nil, time.Minute},
		{"GETs under WithEndpoint of the other", nil, nil, func(ctx context.Context) context.Context {
			return endpoints.WithEndpoint(ctx, "b")
		}, time.Minute},
		{"GETs under WithEndpoint of the first", nil, nil, func(ctx context.Context) context.Context {
			return endpoints.WithEndpoint(ctx, "a")
		}, 5 * time.Second},
	} {
		for name, down := range map[string]http.RoundTripper{"refused": refused, "500": answers(500, nil)} {
			bubble.Run(t, row.name+", "+name, func(t *testing.T) {
				l := newList(t, row.edit, faulttest.OK("a"), faulttest.OK("b"))
				in := func(with func(context.Context) context.Context) http.RoundTripper {
					return roundTripper(func(req *http.Request) (*http.Response, error) {
						if with != nil {
							req = req.WithContext(with(req.Context()))
						}
						return l.RoundTrip(req)
					})
				}
				const fails, recovers, ends = 10 * time.Second, 70 * time.Second, 160 * time.Second
				var both sync.WaitGroup
				both.Go(func() {
					load{rate: 5, length: ends, method: http.MethodGet, deadline: 5 * time.Second}.run(t, in(row.get), "http://a.test/status", nil)
				})
				posts := load{rate: 4, length: ends, method: http.MethodPost, deadline: 5 * time.Second}.run(t, in(row.post), "http://a.test/charge", map[time.Duration]func(){
					fails:    func() { l.setDown("a.test", down) },
					recovers: func() { l.setDown("a.test", nil) },
				})
				both.Wait()
				open := between(posts, fails+20*time.Second, recovers)
				assert.Less(t, share(open, func(d done) bool { return d.endpoint == "a" }), .1)
				back := between(posts, recovers+row.within, ends)
				assert.Zero(t, share(back, func(d done) bool { return d.endpoint != "a" }))
			})
		}
	}
}

// N3: a GET that probes an endpoint that hangs costs little more than usual, with few calls too.
func TestTransport_slowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faulttest.Reply{Body: "ok", Delay: 40 * time.Millisecond}
		l := newList(t, nil, slow, slow)
		few := load{rate: 5, length: 30 * time.Second, method: http.MethodGet, deadline: 10 * time.Second}
		few.run(t, l, "http://a.test/x", nil)
		l.setDown("a.test", refused)
		few.run(t, l, "http://a.test/x", nil)
		l.setDown("a.test", hangs)
		for _, d := range few.run(t, l, "http://a.test/x", nil) {
			require.True(t, d.ok)
			require.LessOrEqual(t, d.took, 250*time.Millisecond)
		}
	})
}

// N3: calls that fail together move together: the endpoint that has had no calls has few tokens, so they
// take those of the first.
func TestTransport_burst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.Reply{Body: "b", Delay: time.Second})
		load{rate: 50, length: 10 * time.Second, method: http.MethodGet, deadline: 10 * time.Second}.run(t, l, "http://a.test/x", nil)
		l.setDown("a.test", reset)
		var calls sync.WaitGroup
		for range 12 {
			calls.Go(func() {
				resp, err := l.get("/x")
				if assert.NoError(t, err) {
					assert.Equal(t, http.StatusOK, resp.StatusCode, resilienthttp.Explain(resp, err))
				}
			})
		}
		calls.Wait()
	})
}

// The contract of http.RoundTripper holds across endpoints: the request is unmodified, its body is
// closed once, each attempt has a new body, and all have one key and one deadline.
func TestTransport_contract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadline := time.Now().Add(10 * time.Second)
		var bodies, keys, deadlines []string
		record := func(status int) roundTripper {
			return func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				bodies, keys = append(bodies, string(body)), append(keys, req.Header.Get("Idempotency-Key"))
				deadlines = append(deadlines, req.Header.Get("X-Request-Deadline"))
				assert.Equal(t, int64(5), req.ContentLength)
				return answers(status, nil).RoundTrip(req)
			}
		}
		l := newList(t, func(tr *endpoints.Transport) { tr.SharedKeys = true; secrets(tr) }, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", record(500))
		l.setDown("b.test", record(200))
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		body := &countedBody{Reader: strings.NewReader("hello")}
		req := newRequest(ctx, t, http.MethodPost, "http://a.test/x", body)
		req.ContentLength = 5
		var opened []*countedBody
		req.GetBody = func() (io.ReadCloser, error) {
			b := &countedBody{Reader: strings.NewReader("hello")}
			opened = append(opened, b)
			return b, nil
		}
		req.Header.Set("x-api-key", "the caller's")
		header, u := req.Header.Clone(), *req.URL
		resp, err := closed(t, l, req)
		require.NoError(t, err)
		require.Equal(t, "a b", visited(resp, err))
		require.Equal(t, []string{"hello", "hello"}, bodies)
		require.Equal(t, keys[0], keys[1])
		require.NotEmpty(t, keys[0])
		require.Equal(t, deadlines[0], deadlines[1])
		require.Equal(t, header, req.Header)
		require.Equal(t, u, *req.URL)
		require.Equal(t, ctx, req.Context())
		require.Equal(t, int32(1), body.closed.Load())
		require.Len(t, opened, 1)
		require.Equal(t, int32(1), opened[0].closed.Load())
	})
}

type countedBody struct {
	io.Reader

	closed atomic.Int32
}

func (b *countedBody) Close() error {
	b.closed.Add(1)
	return nil
}

// A call that must make a single attempt uses the first endpoint that works, and does not move.
func TestTransport_singleAttempt(t *testing.T) {
	for _, row := range []struct {
		name   string
		ctx    func(context.Context) context.Context
		header http.Header
	}{
		{"WithSingleAttempt", resilienthttp.WithSingleAttempt, nil},
		{"an SDK that retries", func(ctx context.Context) context.Context { return ctx }, http.Header{"Amz-Sdk-Request": {"attempt=1; max=3"}}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
			l.setDown("a.test", refused)
			get := func() (*http.Response, error) {
				req := newRequest(row.ctx(t.Context()), t, http.MethodGet, "http://a.test/x", http.NoBody)
				req.Header = row.header.Clone()
				return closed(t, l, req)
			}
			resp, err := get()
			require.Error(t, err)
			require.Equal(t, "a", visited(resp, err))
			for range 50 {
				resp, err = get()
			}
			require.NoError(t, err)
			require.Equal(t, "b", visited(resp, err), "the circuit of a is open")
		})
	}
}

// A request for a host of no endpoint passes unchanged, and the records of its host are its own.
func TestTransport_foreign(t *testing.T) {
	var got *http.Request
	tr := &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "a", URL: parse(t, "http://a.test/v1"), Header: http.Header{"Authorization": {"Bearer one"}}}},
		Transport: &resilienthttp.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			got = req
			return answers(200, nil).RoundTrip(req)
		})},
	}
	for _, to := range []string{"http://c.test/v1/x?y", "http://a.test/v2", "https://a.test/v1/x", "http://a.test:8080/v1/x", "http://a.test/v1/../x", "http://a.test/v1x"} {
		resp, err := send(t, tr, http.MethodGet, to, "")
		require.NoError(t, err)
		require.Equal(t, to, got.URL.String())
		require.Empty(t, got.Header.Get("Authorization"))
		require.Empty(t, visited(resp, err), to)
		require.Equal(t, got.URL.Host, got.Host)
	}
	require.Error(t, errOf(tr.RoundTrip(nil)))
	require.Error(t, errOf(tr.RoundTrip(&http.Request{})))
	require.NotPanics(t, func() { _, _ = tr.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Opaque: "//a.test/v1/x"}}) })
}

func TestTransport_Validate(t *testing.T) {
	good := func() *endpoints.Transport {
		return &endpoints.Transport{Endpoints: []endpoints.Endpoint{{URL: parse(t, "http://a.test/v1")}, {URL: parse(t, "http://b.test")}}}
	}
	require.NoError(t, good().Validate())
	for _, row := range []struct {
		name string
		edit func(*endpoints.Transport)
		want string
	}{
		{"no endpoints", func(tr *endpoints.Transport) { tr.Endpoints = nil }, "Endpoints is empty"},
		{"nil URL", func(tr *endpoints.Transport) { tr.Endpoints[1].URL = nil }, "Endpoints[1].URL is nil"},
		{"no scheme", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "a.test") }, "Endpoints[0].URL has another scheme"},
		{"ftp", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "ftp://a.test") }, "has another scheme"},
		{"no host", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http:///x") }, "has no host"},
		{"a port alone", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://:80/x") }, "has no host"},
		{"opaque", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http:a.test") }, "has no host"},
		{"a user", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://u:secret@a.test") }, "has a user"},
		{"a query", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://a.test/?key=secret") }, "has a query"},
		{"an empty query", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://a.test/?") }, "has a query"},
		{"a fragment", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://a.test/#x") }, "has a fragment"},
		{"a relative path", func(tr *endpoints.Transport) {
			tr.Endpoints[0].URL = &url.URL{Scheme: "http", Host: "a.test", Path: "v1"}
		}, "has a path without a slash"},
		{"dot segments", func(tr *endpoints.Transport) { tr.Endpoints[0].URL = parse(t, "http://a.test/v1/../x") }, `has a path with ".."`},
		{"the same name", func(tr *endpoints.Transport) { tr.Endpoints[0].Name = "x"; tr.Endpoints[1].Name = "x" }, `Endpoints[1].Name is "x", as that of Endpoints[0]`},
		{"the same URL without names", func(tr *endpoints.Transport) { tr.Endpoints[1].URL = tr.Endpoints[0].URL }, `Endpoints[1].Name is "a.test/v1"`},
		{"a bad field name", func(tr *endpoints.Transport) { tr.Endpoints[0].Header = http.Header{"a b": {"c"}} }, `"a b" is not the name`},
		{"a line break", func(tr *endpoints.Transport) { tr.Endpoints[0].Header = http.Header{"X-Key": {"secret\r\nX: y"}} }, "the value of X-Key has a line break"},
		{"Host", func(tr *endpoints.Transport) { tr.Endpoints[0].Header = http.Header{"host": {"x"}} }, "has host, which is not the same"},
		{"the idempotency key", func(tr *endpoints.Transport) { tr.Endpoints[0].Header = http.Header{"Idempotency-Key": {"x"}} }, "has Idempotency-Key"},
		{"the vendor's idempotency key", func(tr *endpoints.Transport) {
			tr.Transport = &resilienthttp.Transport{Idempotency: resilienthttp.Idempotency{Header: "PayPal-Request-Id"}}
			tr.Endpoints[0].Header = http.Header{"paypal-request-id": {"x"}}
		}, "has paypal-request-id"},
		{"the Transport", func(tr *endpoints.Transport) { tr.Transport = &resilienthttp.Transport{MaxScopes: -1} }, "MaxScopes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := good()
			row.edit(tr)
			err := tr.Validate()
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "secret")
			body := &countedBody{Reader: strings.NewReader("x")}
			_, err = closed(t, tr, newRequest(t.Context(), t, http.MethodPost, "http://a.test/v1", body))
			require.ErrorContains(t, err, row.want)
			require.NotNil(t, asError(err))
			require.Equal(t, int32(1), body.closed.Load())
			tr.CloseIdleConnections()
			require.NotNil(t, tr.Unwrap())
		})
	}
	require.NoError(t, (&endpoints.Transport{Endpoints: good().Endpoints[:1]}).Validate(), "one endpoint")
}

// Transport.Scope splits the scope of each endpoint.
func TestTransport_scopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Scope = func(r *http.Request) string { return strings.Split(r.URL.Path, "/")[1] }
		}, faulttest.OK("a"), faulttest.OK("b"))
		require.NoError(t, errOf(l.get("/pay/1")))
		require.NoError(t, errOf(l.get("/find/1")))
		var names []string
		for _, s := range l.Transport.Transport.State().Scopes {
			names = append(names, s.Scope)
		}
		require.Equal(t, []string{"a.test#a find", "a.test#a pay", "b.test#b find", "b.test#b pay"}, names)
	})
}

// A thousand goroutines use one list, with endpoints that fail and hang at random. No result is lost, and no
// credential is at another host. Run it with -race.
func TestTransport_stress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		flaky := roundTripper(func(req *http.Request) (*http.Response, error) {
			if want := "secret-" + req.URL.Host[:1]; req.Header.Get("X-Api-Key") != want {
				t.Errorf("%s got %q", req.URL.Host, req.Header.Get("X-Api-Key"))
			}
			select {
			case <-time.After(rand.N(200 * time.Millisecond)):
			case <-req.Context().Done():
				closeBody(req)
				return nil, req.Context().Err()
			}
			switch n.Add(1) % 7 {
			case 0, 1:
				return answers(500, nil).RoundTrip(req)
			case 2:
				return reset.RoundTrip(req)
			case 3:
				return answers(429, http.Header{"Retry-After": {"1"}}).RoundTrip(req)
			case 4:
				return hangs.RoundTrip(req)
			}
			return answers(200, nil).RoundTrip(req)
		})
		l := newList(t, func(tr *endpoints.Transport) {
			tr.SharedKeys = true
			tr.Transport.Hedge = &resilienthttp.Hedge{Delay: 50 * time.Millisecond}
			tr.Transport.RateLimit = &resilienthttp.RateLimit{MaxInFlight: 50}
			secrets(tr)
		}, faulttest.OK("a"), faulttest.OK("b"), faulttest.OK("c"))
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			l.setDown(host, flaky)
		}
		var calls sync.WaitGroup
		for i := range 1000 {
			calls.Go(func() {
				time.Sleep(rand.N(10 * time.Second))
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
				defer cancel()
				req := newRequest(ctx, t, []string{"GET", "POST", "PUT"}[i%3], fmt.Sprintf("http://a.test/%d", i), strings.NewReader("x"))
				resp, err := l.RoundTrip(req)
				if assert.NotEqual(t, resp == nil, err == nil) && resp != nil {
					_ = resilienthttp.Explain(resp, err)
					_ = resp.Body.Close()
				}
			})
		}
		calls.Wait()
		synctest.Wait()
		for _, s := range l.Transport.Transport.State().Scopes {
			assert.Zero(t, s.InFlight+s.Queued+s.RetryWaiting, s.Scope)
		}
	})
}

// N4: an SDK has a list of regions, and its user sets one: the list must not cost what a Transport without a list has.
func TestTransport_oneEndpoint(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return &endpoints.Transport{
			Endpoints: []endpoints.Endpoint{{URL: &url.URL{Scheme: "http", Host: "fault.test"}}},
			Transport: &resilienthttp.Transport{Base: base},
		}
	})
}
