package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// post makes the request of a payment.
func post(url string) func(*durable.Send) (*http.Request, error) {
	return func(s *durable.Send) (*http.Request, error) {
		return http.NewRequest(http.MethodPost, url, bytes.NewReader(s.Payload))
	}
}

func send() *durable.Send {
	in := pay("comp1", "1")
	return &durable.Send{Intent: in, Number: 1, Key: durable.IdempotencyKey(in.ID, 1), Epoch: 1, Generation: 1}
}

// D8: the class of each status, with a bare client and with a Transport, which makes one attempt.
func TestHTTP_classes(t *testing.T) {
	for _, row := range []struct {
		status int
		header string
		want   durable.Class
		asks   time.Duration
	}{
		{200, "", durable.ClassSucceeded, 0},
		{201, "", durable.ClassSucceeded, 0},
		{202, "", durable.ClassSucceeded, 0},
		{204, "", durable.ClassSucceeded, 0},
		{301, "", durable.ClassUnknown, 0},
		{304, "", durable.ClassUnknown, 0},
		{400, "", durable.ClassDeclined, 0},
		{401, "", durable.ClassDeclined, 0},
		{402, "", durable.ClassDeclined, 0},
		{404, "", durable.ClassDeclined, 0},
		{408, "", durable.ClassUnknown, 0},
		{409, "", durable.ClassUnknown, 0},
		{409, "Retry-After: 7", durable.ClassUnknown, 7 * time.Second},
		{421, "", durable.ClassFailed, 0},
		{499, "", durable.ClassUnknown, 0},
		{422, "", durable.ClassDeclined, 0},
		{425, "", durable.ClassFailed, 0},
		{429, "", durable.ClassFailed, 0},
		{429, "Retry-After: 3600", durable.ClassFailed, time.Hour},
		{429, "Retry-After: nonsense", durable.ClassFailed, 0},
		{500, "", durable.ClassUnknown, 0},
		{501, "", durable.ClassUnknown, 0},
		{502, "", durable.ClassUnknown, 0},
		{503, "", durable.ClassUnknown, 0},
		{503, "Retry-After: 5", durable.ClassUnknown, 5 * time.Second},
		{503, "Request-Executed: ?0", durable.ClassFailed, 0},
		{502, "X-Envoy-Overloaded: true", durable.ClassFailed, 0},
		{403, "Retry-After: 5", durable.ClassFailed, 5 * time.Second},
		{503, "Retry-After: nonsense", durable.ClassUnknown, 0},
		{504, "", durable.ClassUnknown, 0},
		{599, "", durable.ClassUnknown, 0},
	} {
		for _, ours := range []bool{false, true} {
			bubble.Run(t, fmt.Sprint(row.status, " ", row.header, " ", ours), func(t *testing.T) {
				var requests atomic.Int64
				server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					assert.Equal(t, send().Key, r.Header.Get("Idempotency-Key"))
					if name, value, ok := strings.Cut(row.header, ": "); ok {
						w.Header().Set(name, value)
					}
					w.WriteHeader(row.status)
				}))
				var transport http.RoundTripper = server.Transport()
				if ours {
					transport = &resilienthttp.Transport{Base: server.Transport()}
				}
				h := durable.HTTP{Client: &http.Client{Transport: transport}, NewRequest: post(server.URL)}
				o := h.Send(t.Context(), send())
				assert.Equal(t, row.want.String(), o.Class.String())
				assert.Equal(t, row.status, o.Status)
				assert.EqualValues(t, 1, requests.Load(), "one layer retries")
				if row.asks == 0 {
					assert.True(t, o.NotBefore.IsZero(), "%v", o.NotBefore)
				} else {
					assert.GreaterOrEqual(t, time.Until(o.NotBefore), row.asks)
					assert.Less(t, time.Until(o.NotBefore), row.asks+row.asks/2+time.Second)
				}
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// D8: a request without a response is unknown, unless no byte of it was sent.
func TestHTTP_errors(t *testing.T) {
	for _, row := range []struct {
		name    string
		fail    func(*http.Request) error
		handler http.HandlerFunc
		want    durable.Class
		unsent  bool
	}{
		{"refused", func(*http.Request) error { return syscall.ECONNREFUSED }, nil, durable.ClassFailed, true},
		{"reset", nil, func(_ http.ResponseWriter, r *http.Request) { memhttp.Reset(memhttp.RequestConn(r)) }, durable.ClassUnknown, false},
		{"hangs", nil, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, durable.ClassUnknown, false},
		{"anything", func(*http.Request) error { return errors.New("anything") }, nil, durable.ClassUnknown, false},
	} {
		for _, ours := range []bool{false, true} {
			bubble.Run(t, fmt.Sprint(row.name, " ", ours), func(t *testing.T) {
				server := memhttp.NewServer(t, row.handler)
				base := server.Transport()
				calls := 0
				var transport http.RoundTripper = roundTripper(func(r *http.Request) (*http.Response, error) {
					calls++
					if row.fail != nil {
						return nil, row.fail(r)
					}
					return base.RoundTrip(r)
				})
				if ours {
					transport = &resilienthttp.Transport{Base: transport}
				}
				h := durable.HTTP{Client: &http.Client{Transport: transport}, NewRequest: post(server.URL)}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				o := h.Send(ctx, send())
				assert.Equal(t, row.want.String(), o.Class.String())
				assert.Equal(t, row.unsent, o.Unsent())
				require.Error(t, o.Err)
				assert.Equal(t, 1, calls)
			})
		}
	}
}

// D7, D8: a rejection by a breaker or rate limiter is no attempt, and has a NotBefore.
func TestHTTP_gate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests.Add(1) <= 10 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		transport := &resilienthttp.Transport{Base: server.Transport(), Breaker: &resilienthttp.Breaker{
			MinRequests: 5, Cooldown: 10 * time.Minute, MaxCooldown: 10 * time.Minute, Static: true,
		}}
		h := durable.HTTP{Client: &http.Client{Transport: transport}, NewRequest: post(server.URL)}
		for range 5 {
			assert.Equal(t, durable.ClassUnknown, h.Send(t.Context(), send()).Class)
		}
		o := h.Send(t.Context(), send())
		require.ErrorIs(t, o.Err, resilienthttp.ErrBreakerOpen)
		assert.Equal(t, durable.ClassFailed, o.Class)
		assert.True(t, o.Unsent())
		assert.Greater(t, time.Until(o.NotBefore), 9*time.Minute)
		assert.EqualValues(t, 5, requests.Load())
	})
}

// The header of the key, and the values of the request's context.
func TestHTTP_request(t *testing.T) {
	type valueKey struct{}
	for _, row := range []struct {
		name   string
		client func(http.RoundTripper) *http.Client
		header map[string]string
		want   map[string]string
	}{
		{"bare", func(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} }, nil, map[string]string{"Idempotency-Key": send().Key}},
		{"a key of its own", func(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} }, map[string]string{"Idempotency-Key": "own"}, map[string]string{"Idempotency-Key": "own"}},
		{"a Transport with another header", func(base http.RoundTripper) *http.Client {
			return &http.Client{Transport: &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{Header: "X-Key"}}}
		}, nil, map[string]string{"Idempotency-Key": "", "X-Key": send().Key}},
		{"a Transport that knows another host, a key of its own", func(base http.RoundTripper) *http.Client {
			return &http.Client{Transport: &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{Hosts: []string{"other.example"}, Header: "X-Key"}}}
		}, map[string]string{"X-Key": "own"}, map[string]string{"X-Key": "own"}},
		{"a Transport that quotes", func(base http.RoundTripper) *http.Client {
			return &http.Client{Transport: &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{Quoted: true}}}
		}, nil, map[string]string{"Idempotency-Key": `"` + send().Key + `"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				for name, want := range row.want {
					assert.Equal(t, want, r.Header.Get(name), name)
				}
				assert.Equal(t, "value", r.Context().Value(valueKey{}))
				require.NoError(t, r.Context().Err())
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, "pay", string(body))
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			})
			h := durable.HTTP{Client: row.client(base), NewRequest: func(s *durable.Send) (*http.Request, error) {
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "value"))
				cancel() // it does not count
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://psp.example/charges", bytes.NewReader(s.Payload))
				for name, value := range row.header {
					req.Header.Set(name, value)
				}
				return req, err
			}}
			assert.Equal(t, durable.ClassSucceeded, h.Send(t.Context(), send()).Class)
		})
	}
}

// A request that cannot be made or sent is declined. In doubt, that says nothing about earlier
// sends.
func TestHTTP_noRequest(t *testing.T) {
	for name, h := range map[string]durable.HTTP{
		"an error":                              {NewRequest: func(*durable.Send) (*http.Request, error) { return nil, errors.New("no amount") }},
		"nothing":                               {NewRequest: func(*durable.Send) (*http.Request, error) { return nil, nil }},
		"no URL":                                {NewRequest: func(*durable.Send) (*http.Request, error) { return &http.Request{}, nil }},
		"a scheme of the past":                  {NewRequest: post("gopher://psp.example/")},
		"a scheme of the past, and a Transport": {Client: resilienthttp.NewClient(), NewRequest: post("gopher://psp.example/")},
	} {
		t.Run(name, func(t *testing.T) {
			o := h.Send(t.Context(), send())
			assert.Equal(t, durable.ClassDeclined, o.Class)
			assert.Equal(t, "request", o.Code)
			assert.True(t, o.Unsent())
			require.Error(t, o.Err)
		})
	}
	t.Run("no NewRequest, which is no fault of the intent's", func(t *testing.T) {
		h := durable.HTTP{}
		require.ErrorContains(t, h.Validate(), "NewRequest")
		o := h.Send(t.Context(), send())
		assert.Equal(t, durable.ClassFailed, o.Class)
		assert.True(t, o.Unsent())
		require.ErrorContains(t, o.Err, "NewRequest")
	})
	t.Run("a host that gets no key, which is no fault of the intent's either", func(t *testing.T) {
		tr := &resilienthttp.Transport{Idempotency: resilienthttp.Idempotency{Hosts: []string{"psp.example"}}}
		h := durable.HTTP{Client: &http.Client{Transport: tr}, NewRequest: post("http://egress.example/")}
		o := h.Send(t.Context(), send())
		assert.Equal(t, durable.ClassFailed, o.Class)
		assert.Equal(t, "request", o.Code)
		assert.True(t, o.Unsent())
		require.ErrorContains(t, o.Err, "egress.example")
	})
}

func TestHTTP_read(t *testing.T) {
	own := time.Now().Add(time.Hour)
	t.Run("a success that nothing can be made of", func(t *testing.T) {
		h := durable.HTTP{
			Client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			})},
			NewRequest: post("http://psp.example/"), Read: func(*http.Response, []byte) durable.Outcome { return durable.Outcome{Err: errDown} },
		}
		assert.Equal(t, durable.Outcome{Status: 200, Err: errDown}, h.Send(t.Context(), send()))
	})
	for _, row := range []struct {
		name string
		body string
		cut  bool // the answer breaks off
		said durable.Outcome
		want durable.Outcome
	}{
		{"nothing", "", false, durable.Outcome{}, durable.Outcome{Class: durable.ClassDeclined, Status: 402}},
		{"a code", "declined", false, durable.Outcome{Code: "24"}, durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "24"}},
		{"a class", "done", false, durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_1"}, durable.Outcome{Class: durable.ClassSucceeded, Status: 402, Reference: "ch_1"}},
		{"an error", "", false, durable.Outcome{Err: errDown}, durable.Outcome{Class: durable.ClassDeclined, Status: 402, Err: errDown}},
		{"when to come again", "", false, durable.Outcome{NotBefore: own}, durable.Outcome{Class: durable.ClassDeclined, Status: 402, NotBefore: own}},
		{"a status", "", false, durable.Outcome{Status: 400}, durable.Outcome{Class: durable.ClassDeclined, Status: 400}},
		{"an endless answer", strings.Repeat("x", 3<<20), false, durable.Outcome{Code: "24"}, durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "24"}},
		{"an answer that breaks off", "declined", true, durable.Outcome{Code: "24"}, durable.Outcome{Status: 402}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.cut {
					w.Header().Set("Content-Length", "100")
				}
				w.WriteHeader(http.StatusPaymentRequired)
				_, _ = io.WriteString(w, row.body)
				if row.cut {
					_ = http.NewResponseController(w).Flush()
					memhttp.Reset(memhttp.RequestConn(r))
				}
			}))
			h := durable.HTTP{
				Client: &http.Client{Transport: server.Transport()}, NewRequest: post(server.URL),
				Read: func(resp *http.Response, body []byte) durable.Outcome {
					assert.Equal(t, http.StatusPaymentRequired, resp.StatusCode)
					assert.Equal(t, row.body[:min(len(row.body), 1<<20)], string(body))
					return row.said
				},
			}
			o := h.Send(t.Context(), send())
			if row.cut {
				require.ErrorContains(t, o.Err, "durable: read the response body")
				o.Err = nil
			}
			assert.Equal(t, row.want, o)
			synctest.Wait()
		})
	}
}

// A redirect from POST to GET is not followed: the success of the GET says nothing about the
// POST.
func TestHTTP_redirect(t *testing.T) {
	for status, want := range map[int]durable.Class{
		http.StatusFound: durable.ClassUnknown, http.StatusSeeOther: durable.ClassUnknown, http.StatusTemporaryRedirect: durable.ClassSucceeded,
	} {
		bubble.Run(t, http.StatusText(status), func(t *testing.T) {
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					http.Redirect(w, r, "/elsewhere", status)
				}
			}))
			asked := false
			client := &http.Client{Transport: server.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error {
				asked = true
				return nil
			}}
			h := durable.HTTP{Client: client, NewRequest: post(server.URL + "/")}
			assert.Equal(t, want.String(), h.Send(t.Context(), send()).Class.String())
			assert.Equal(t, want == durable.ClassSucceeded, asked)
			client.CheckRedirect = nil
			assert.Equal(t, want.String(), h.Send(t.Context(), send()).Class.String())
		})
	}
}

// §4.8: a redirect leads to another origin. It does not get the key, but the same one for each send.
func TestHTTP_redirectToAnotherOrigin(t *testing.T) {
	for _, row := range []struct {
		name      string
		transport func(http.RoundTripper) http.RoundTripper
	}{
		{"another Transport", func(base http.RoundTripper) http.RoundTripper { return base }},
		{"a resilienthttp.Transport", func(base http.RoundTripper) http.RoundTripper { return &resilienthttp.Transport{Base: base} }},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			network := memhttp.NewNetwork(t)
			keys := map[string][]string{}
			serve := func(host, to string) {
				network.Serve(t, host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					keys[r.Host+r.URL.Path] = append(keys[r.Host+r.URL.Path], r.Header.Get("Idempotency-Key"))
					if r.URL.Path == "/" {
						http.Redirect(w, r, to, http.StatusTemporaryRedirect)
					}
				}))
			}
			serve("bank.test", "http://other.test/")
			serve("other.test", "/again")
			h := durable.HTTP{Client: &http.Client{Transport: row.transport(network.Transport())}, NewRequest: post("http://bank.test/")}
			for range 2 {
				assert.Equal(t, durable.ClassSucceeded.String(), h.Send(t.Context(), send()).Class.String())
			}
			own, other := keys["bank.test/"][0], keys["other.test/"][0]
			assert.Equal(t, send().Key, own)
			assert.NotContains(t, other, own)
			assert.NotEmpty(t, other)
			assert.Equal(t, map[string][]string{
				"bank.test/": {own, own}, "other.test/": {other, other}, "other.test/again": {other, other},
			}, keys)
		})
	}
}

// D3: a redirect leads to a host that gets no key. The request does not follow it.
func TestHTTP_redirectToAHostWithoutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, asked := memhttp.NewNetwork(t), 0
		network.Serve(t, "bank.test", http.RedirectHandler("http://other.test/", http.StatusTemporaryRedirect))
		network.Serve(t, "other.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
		h := durable.HTTP{
			Client: &http.Client{Transport: &resilienthttp.Transport{
				Base: network.Transport(), Idempotency: resilienthttp.Idempotency{Hosts: []string{"bank.test"}},
			}},
			NewRequest: post("http://bank.test/"),
		}
		assert.Equal(t, durable.ClassUnknown.String(), h.Send(t.Context(), send()).Class.String())
		assert.Zero(t, asked)
	})
}

// §4.18a: net/http sends a request without a body again if a reused connection breaks. Its decline is then that of
// the second request, and a new key could do the work twice.
func TestHTTP_sentAgainByNetHTTP(t *testing.T) {
	for status, want := range map[int]durable.Class{
		http.StatusCreated: durable.ClassSucceeded, http.StatusPaymentRequired: durable.ClassUnknown,
		http.StatusTooManyRequests: durable.ClassUnknown, http.StatusNotFound: durable.ClassUnknown,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch requests.Add(1) {
				case 1:
				case 2:
					panic(http.ErrAbortHandler) // it was done, and the answer is lost
				default:
					w.WriteHeader(status)
				}
			}))
			defer server.Close()
			gateway := durable.HTTP{
				Client: &http.Client{Transport: &resilienthttp.Transport{Base: server.Client().Transport}},
				NewRequest: func(*durable.Send) (*http.Request, error) {
					return http.NewRequest(http.MethodPost, server.URL, nil)
				},
			}
			assert.Equal(t, durable.ClassSucceeded, gateway.Send(t.Context(), send()).Class)
			assert.Equal(t, want.String(), gateway.Send(t.Context(), send()).Class.String())
			assert.EqualValues(t, 3, requests.Load())
		})
	}
}

// D1, D8: net/http repeats a request with a key when a reused connection breaks. HTTP prevents
// that: without keys the work would be done twice, and the journal would not have it.
func TestHTTP_sendsOnce(t *testing.T) {
	for _, ours := range []bool{false, true} {
		t.Run(fmt.Sprint(ours), func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if requests.Add(1) == 2 {
					panic(http.ErrAbortHandler) // it was done, and the answer is lost
				}
				w.WriteHeader(http.StatusCreated)
			}))
			defer server.Close()
			client := server.Client()
			if ours {
				client = &http.Client{Transport: &resilienthttp.Transport{Base: server.Client().Transport}}
			}
			gateway := durable.HTTP{Client: client, NewRequest: post(server.URL)}
			for i, want := range []durable.Class{durable.ClassSucceeded, durable.ClassUnknown, durable.ClassSucceeded} {
				outcome := gateway.Send(t.Context(), send())
				assert.Equal(t, want, outcome.Class, "%d: %v", i, outcome.Err)
				assert.EqualValues(t, i+1, requests.Load())
			}
		})
	}
}
