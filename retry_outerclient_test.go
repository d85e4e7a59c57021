package resilienthttp_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// One layer retries. If an outer SDK reports retries, the Transport makes single attempts.
// Otherwise it retries.
func TestRetriesOfAnSDK(t *testing.T) {
	for _, row := range []struct {
		name   string
		header string
		value  string
		owns   bool
	}{
		{"AWS", "Amz-Sdk-Request", "attempt=1; max=3", true},
		{"AWS, a repeat", "Amz-Sdk-Request", "attempt=2; max=3", true},
		{"AWS, with a time to live", "Amz-Sdk-Request", "ttl=20261120T200000Z; attempt=1; max=3", true},
		{"AWS, retries off", "Amz-Sdk-Request", "attempt=1; max=1", false},
		{"AWS, no maximum yet", "Amz-Sdk-Request", "attempt=1", false},
		{"AWS, a repeat without a maximum", "Amz-Sdk-Request", "attempt=2", true},
		{"AWS, nonsense", "Amz-Sdk-Request", "max=; attempt=x; =3;;", false},
		{"AWS, absurd", "Amz-Sdk-Request", "max=99999999999999999999999", false},
		{"Stainless, first", "X-Stainless-Retry-Count", "0", false},
		{"Stainless, a repeat", "X-Stainless-Retry-Count", "1", true},
		{"Stainless, nonsense", "X-Stainless-Retry-Count", "many", false},
		{"Google, first", "X-Goog-Api-Client", "gl-go/1.26.0 gccl/1.50.0 gccl-invocation-id/9e2a7a54-6cf4-4d3c-8f0c-3a3a1bfb0f5b gccl-attempt-count/1", false},
		{"Google, a repeat", "X-Goog-Api-Client", "gl-go/1.26.0 gccl-attempt-count/2", true},
		{"Google, no count", "X-Goog-Api-Client", "gl-go/1.26.0 gccl/1.50.0", false},
		{"an unknown field", "X-Other", "attempt=2; max=3", false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(503))
			req := get(t)
			req.Header.Set(row.header, row.value)
			resp := roundTrip(t, (&resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: 4}}), req)
			readAll(t, resp)
			if row.owns {
				require.Len(t, base.calls(), 1)
				require.Equal(t, resilienthttp.ErrSingleAttempt, lastOf(t, resp).StopReason)
			} else {
				require.Len(t, base.calls(), 4)
			}
		})
	}
}

// §4.8: the attempts of an SDK's invocation have one key. Another invocation has another key, and
// so have two requests of one invocation.
func TestKeyOfAnInvocation(t *testing.T) {
	const first, second = "9e2a7a54-6cf4-4d3c-8f0c-3a3a1bfb0f5b", "1b4db7eb-4057-4ddf-91e0-36dec72071f5"
	type sdk struct{ header, before string }
	aws, google := sdk{"Amz-Sdk-Invocation-Id", ""}, sdk{"X-Goog-Api-Client", "gl-go/1.26.0 gccl-attempt-count/1 gccl-invocation-id/"}
	key := func(t *testing.T, from sdk, id, url, body string, more ...string) string {
		t.Helper()
		base := script(status(200))
		req := newRequest(t, http.MethodPost, url, body)
		req.Header.Set(from.header, from.before+id)
		for i := 0; i+1 < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		before := stateOf(req)
		readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: base}), req))
		before.requireUnchanged(t)
		sent := base.calls()[0].Header.Get("Idempotency-Key")
		require.NotEmpty(t, sent)
		return sent
	}
	const url = "http://api.test/things"
	for name, from := range map[string]sdk{"AWS": aws, "Google": google} {
		t.Run(name, func(t *testing.T) {
			one := key(t, from, first, url, "{}")
			require.NoError(t, uuid.Validate(one))
			require.NotContains(t, one, first)
			require.Equal(t, one, key(t, from, first, url, "{}", "Amz-Sdk-Request", "attempt=2; max=3"), "the SDK's next attempt")
			require.NotEqual(t, one, key(t, from, second, url, "{}"), "another invocation")
			require.NotEqual(t, one, key(t, from, first, url+"/2", "{}"), "another request of it")
			require.NotEqual(t, one, key(t, from, first, url, "{} "), "another request of another invocation")
			require.Equal(t, "mine", key(t, from, first, url, "{}", "Idempotency-Key", "mine"))
			for _, bad := range []string{"1", "00000000-0000-0000-0000-000000000001", first[1:], "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
				one := key(t, from, bad, url, "{}")
				require.NotEqual(t, one, key(t, from, bad, url, "{}"), "not random enough: %s", bad)
			}
		})
	}
}

// An outer layer makes three attempts, and the Transport four. A layer that is
// recognized by its fields costs one additional attempt; another layer costs the retries of its
// first call.
func TestOuterRetries(t *testing.T) {
	const own, ours = 3, 4
	same := func(req *http.Request) *http.Request { return req }
	deep := func(req *http.Request) *http.Request { return req.Clone(req.Context()) }
	known := func(field, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(field, value) }
	}
	stranger := func() func(*http.Request) *http.Request {
		n := 0
		return func(r *http.Request) *http.Request {
			r, n = deep(r), n+1
			r.Header.Set("Authorization", "Bearer "+strconv.Itoa(n))
			return r
		}
	}
	owns := func(_ *http.Client, tr *resilienthttp.Transport) { tr.OwnsRetries = true }
	for _, row := range []struct {
		name   string
		first  func(*http.Request)
		again  func(*http.Request) *http.Request // makes the next request from the first
		change func(*http.Client, *resilienthttp.Transport)
		want   int
	}{
		{name: "the same request: one call's retries", again: same, want: own + ours - 1},
		{name: "shallow copies, as go-retryablehttp makes them: one call's retries", again: func(r *http.Request) *http.Request {
			return new(*r)
		}, want: own + ours - 1},
		{name: "a client with a timeout, which copies: one call's retries", again: same, change: func(c *http.Client, _ *resilienthttp.Transport) {
			c.Timeout = time.Hour
		}, want: own + ours - 1},
		{name: "the same key: one call's retries", first: known("Idempotency-Key", "order-1"), again: deep, want: own + ours - 1},
		{name: "the same key of another credential: another client's", first: known("Idempotency-Key", "order-1"), again: stranger(), want: own * ours},
		{name: "azcore, with another credential: another client's", first: known("User-Agent", "azsdk-go-azblob/v1.6.0"), again: stranger(), want: own * 2},
		{name: "the same key in the context: one call's retries", again: func(r *http.Request) *http.Request {
			return deep(r.WithContext(resilienthttp.WithIdempotencyKey(r.Context(), "order-1")))
		}, want: own + ours - 1},
		{name: "deep copies without a key: not recognised", again: deep, want: own * ours},
		{name: "a new key each time: not recognised", again: func() func(*http.Request) *http.Request {
			n := 0
			return func(r *http.Request) *http.Request {
				r, n = deep(r), n+1
				r.Header.Set("Idempotency-Key", "order-"+strconv.Itoa(n))
				return r
			}
		}(), want: own * ours},
		{name: "new requests that share a URL: not recognised", again: func(r *http.Request) *http.Request {
			return &http.Request{Method: r.Method, URL: r.URL, Header: http.Header{}}
		}, want: own * ours},
		{name: "stripe-go: one more", first: known("X-Stripe-Client-User-Agent", "{}"), again: same, want: own + 1},
		{name: "azcore, which copies: one more", first: known("User-Agent", "app azsdk-go-azblob/v1.6.0 (go1.26.0; linux)"), again: deep, want: own + 1},
		{name: "Vault's: one more", first: known("X-Vault-Request", "true"), again: same, want: own + 1},
		{name: "stripe-go, and the Transport owns the retries: each call's", first: known("X-Stripe-Client-User-Agent", "{}"), again: same, change: owns, want: own * ours},
		{name: "the same key, and the Transport owns the retries: each call's", first: known("Idempotency-Key", "order-1"), again: deep, change: owns, want: own * ours},
		{name: "AWS's, and the Transport owns the retries: each call's", first: known("Amz-Sdk-Request", "attempt=1; max=3"), again: same, change: owns, want: own * ours},
	} {
		for _, how := range []struct {
			name string
			step step
		}{{"503", status(503)}, {"an error", failing(errReset)}} {
			bubble.Run(t, row.name+", "+how.name, func(t *testing.T) {
				base := script(how.step)
				tr := bareTransport(base, ours)
				client := &http.Client{Transport: tr}
				if row.change != nil {
					row.change(client, tr)
				}
				first := get(t)
				if row.first != nil {
					row.first(first)
				}
				for range own {
					resp, err := client.Do(row.again(first))
					finish(t, resp, err)
					time.Sleep(time.Second)
				}
				require.Len(t, base.calls(), row.want)
			})
		}
	}
}

// The effect of a failed request on later ones.
func TestRepeatedRequest(t *testing.T) {
	const ours = 4
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "order-1") }
	for _, row := range []struct {
		name  string
		steps []step // of the attempts before
		wait  time.Duration
		calls int                 // before
		next  func(*http.Request) // how the next one differs
		want  int                 // its attempts
	}{
		{name: "at once: a single attempt", want: 1},
		{name: "within 10 s: a single attempt", wait: 10*time.Second - 1, want: 1},
		{name: "after 10 s, as errors.md says: an independent call", wait: 10 * time.Second, want: ours},
		{name: "ten failures: a single attempt", calls: 10, want: 1},
		{name: "another path: an independent call", next: func(r *http.Request) { r.URL.Path = "/other" }, want: ours},
		{name: "another method: an independent call", next: func(r *http.Request) { r.Method = http.MethodDelete }, want: ours},
		{name: "another host: an independent call", next: func(r *http.Request) { r.URL.Host = "other.test" }, want: ours},
		{name: "another key: an independent call", next: func(r *http.Request) { r.Header.Set("Idempotency-Key", "order-2") }, want: ours},
		{name: "after a success: an independent call", calls: 2, steps: []step{status(503), status(503), status(503), status(503), status(200)}, want: ours},
		{name: "after an answer that is no failure: an independent call", steps: []step{status(404)}, want: ours},
		{name: "after a retry that succeeded: an independent call", steps: []step{status(503), status(200)}, want: ours},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(append(row.steps, status(503))...)
			tr := bareTransport(base, ours)
			send := func(change func(*http.Request)) (resp *http.Response, arrivals int) {
				before := len(base.calls())
				req := get(t)
				key(req)
				if change != nil {
					change(req)
				}
				resp = roundTrip(t, tr, req)
				readAll(t, resp)
				return resp, len(base.calls()) - before
			}
			for range max(row.calls, 1) {
				send(nil)
			}
			time.Sleep(row.wait)
			resp, arrivals := send(row.next)
			require.Equal(t, row.want, arrivals)
			want := resilienthttp.ErrMaxAttempts
			if row.want == 1 {
				want = resilienthttp.ErrSingleAttempt
			}
			require.Equal(t, want, lastOf(t, resp).StopReason)
		})
	}
}

// A request that was rejected or not sent may be repeated at once, and its repetition keeps its retries.
func TestRepeatedRequest_notSent(t *testing.T) {
	const ours = 4
	for _, row := range []struct {
		name   string
		change func(*resilienthttp.Transport)
		steps  []step // of the calls before the one that is repeated
		calls  int    // before it
		want   error  // of the first call
	}{
		{"rejected at once", func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 1, Burst: 1, MaxWait: -1}
			tr.Policy.Backoff = resilienthttp.Constant(2 * time.Second)
		}, []step{status(200)}, 1, resilienthttp.ErrRateLimited},
		{"its retry was rejected", func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 1, Burst: 1, MaxWait: -1}
			after := time.Duration(0)
			tr.Policy.Backoff = func(int, time.Duration) time.Duration {
				defer func() { after = 2 * time.Second }()
				return after
			}
		}, []step{failing(errReset)}, 0, resilienthttp.ErrRateLimited},
		{"connection refused", nil, []step{refused, refused, refused, refused}, 0, syscall.ECONNREFUSED},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(append(row.steps, status(503))...)
			tr := bareTransport(base, ours)
			if row.change != nil {
				row.change(tr)
			}
			for range row.calls {
				readAll(t, roundTrip(t, tr, get(t)))
			}
			req := get(t)
			require.ErrorIs(t, discard(tr, req), row.want)
			time.Sleep(2 * time.Second)
			before := len(base.calls())
			readAll(t, roundTrip(t, tr, req))
			require.Len(t, base.calls(), before+ours)
		})
	}
}

// Requests fail, succeed and are repeated concurrently.
func TestRepeatedRequests_concurrent(t *testing.T) {
	tr := bareTransport(puppet(func(r *http.Request) (*http.Response, error) {
		code := http.StatusOK
		if len(r.URL.RawQuery)%2 == 0 {
			code = http.StatusServiceUnavailable
		}
		return puppetStatus(code)(r)
	}), 2)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 500 {
				req := newRequest(t, http.MethodGet, "http://api.test/?"+strconv.Itoa(i*worker), "")
				if i%3 == 0 {
					req.Header.Set("Idempotency-Key", strconv.Itoa(i%7))
				}
				for range 3 {
					_ = discard(tr, req)
				}
			}
		})
	}
	wg.Wait()
}

// §4.8: a loop around the Transport repeats a failed call. Its repetition has the key of the failed call, so a server that has
// done the work and lost the response does it once.
func TestOuterRetries_oneKey(t *testing.T) {
	loop := func(t *testing.T, tr *resilienthttp.Transport, change func(*http.Request)) {
		t.Helper()
		req := newRequest(t, http.MethodPost, "http://api.test/charges", "charge")
		for range 6 {
			req.Body, _ = req.GetBody()
			if discard(tr, req) == nil {
				return
			}
			change(req)
		}
	}
	same := func(*http.Request) {}
	for _, row := range []struct {
		name string
		run  func(t *testing.T, tr *resilienthttp.Transport)
		keys int // of the six requests
	}{
		{"the same request", func(t *testing.T, tr *resilienthttp.Transport) { t.Helper(); loop(t, tr, same) }, 1},
		{"go-retryablehttp", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			outer := retryablehttp.NewClient()
			outer.Logger, outer.RetryMax, outer.RetryWaitMin = nil, 5, time.Millisecond
			outer.HTTPClient = &http.Client{Transport: tr}
			resp, err := outer.Post("http://api.test/charges", "text/plain", []byte("charge"))
			if err == nil {
				readAll(t, resp)
			}
		}, 1},
		{"another method: another operation", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			loop(t, tr, func(r *http.Request) { r.Method = map[string]string{"POST": "PATCH", "PATCH": "POST"}[r.Method] })
		}, 6},
		{"another path: another operation", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			loop(t, tr, func(r *http.Request) { r.URL.Path += "1" })
		}, 6},
		{"another length: another operation", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			loop(t, tr, func(r *http.Request) { r.ContentLength++ })
		}, 6},
		{"without GetBody: perhaps another body", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			req := newRequest(t, http.MethodPost, "http://api.test/charges", "charge")
			req.GetBody = nil
			for range 6 {
				req.Body = io.NopCloser(strings.NewReader("charge"))
				_ = discard(tr, req)
			}
		}, 6},
		{"later: another operation", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			loop(t, tr, func(*http.Request) { time.Sleep(11 * time.Second) })
		}, 6},
		{"a new request: another operation", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			for range 6 {
				_ = discard(tr, newRequest(t, http.MethodPost, "http://api.test/charges", "charge"))
			}
		}, 6},
		{"the caller's key: as it is", func(t *testing.T, tr *resilienthttp.Transport) {
			t.Helper()
			loop(t, tr, func(r *http.Request) { r.Header.Set("Idempotency-Key", "mine") })
		}, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(failing(errReset))
			row.run(t, &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: never()})
			keys := map[string]bool{}
			for _, s := range base.calls() {
				keys[s.Header.Get("Idempotency-Key")] = true
			}
			require.Len(t, base.calls(), 6)
			require.Len(t, keys, row.keys)
		})
	}
	for _, row := range []struct {
		name  string
		wait  time.Duration // of the loop before it repeats the first call
		steps []step
	}{
		{"the server is still at work, and asks to wait", time.Second, []step{failing(errReset), status(409, "Retry-After", "1"), status(200)}},
		{"the server is still at work, and does not ask", time.Second, []step{failing(errReset), status(409), status(200)}},
		{"the loop waits as long as the response asks", 30 * time.Second, []step{status(503, "Retry-After", "30"), failing(errReset), status(200)}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(row.steps...)
			tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: never()}
			req := newRequest(t, http.MethodPost, "http://api.test/charges", "charge")
			for range row.steps {
				req.Body, _ = req.GetBody()
				_ = discard(tr, req)
				time.Sleep(row.wait)
				row.wait = time.Second
			}
			for _, sent := range base.calls() {
				require.Equal(t, base.calls()[0].Header.Get("Idempotency-Key"), sent.Header.Get("Idempotency-Key"))
			}
		})
	}
	bubble.Run(t, "after a success: another operation", func(t *testing.T) {
		base := script(failing(errReset), status(200))
		tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: -1}}
		req := newRequest(t, http.MethodPost, "http://api.test/charges", "charge")
		for range 3 {
			req.Body, _ = req.GetBody()
			_ = discard(tr, req)
		}
		key := func(i int) string { return base.calls()[i].Header.Get("Idempotency-Key") }
		require.Equal(t, key(0), key(1))
		require.NotEqual(t, key(1), key(2))
	})
}

// §4.7: go-retryablehttp does not repeat a call to a server with an untrusted certificate, nor one with a scheme that net/http does
// not support, as with a bare client.
func TestErrors_goRetryablehttp(t *testing.T) {
	bubble.Run(t, "untrusted certificate", func(t *testing.T) {
		server := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), memhttp.TLS())
		base := server.Transport()
		base.TLSClientConfig = nil // it does not know the certificate
		requireOneOuterAttempt(t, base, server.URL)
	})
	bubble.Run(t, "scheme", func(t *testing.T) { requireOneOuterAttempt(t, memhttp.NewNetwork(t).Transport(), "ftp://api.test/") })
}

func requireOneOuterAttempt(t *testing.T, base http.RoundTripper, url string) {
	t.Helper()
	for name, rt := range map[string]http.RoundTripper{"bare": base, "a Transport": &resilienthttp.Transport{Base: base}} {
		calls := 0
		outer := retryablehttp.NewClient()
		outer.Logger = nil
		outer.HTTPClient = &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			calls++
			return rt.RoundTrip(req)
		})}
		_, err := outer.Get(url)
		require.Error(t, err)
		require.Equal(t, 1, calls, name)
	}
}
