package endpoints_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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

// secrets gives each endpoint a credential of its own.
func secrets(tr *endpoints.Transport) {
	for i := range tr.Endpoints {
		tr.Endpoints[i].Header = http.Header{"X-Api-Key": {"secret-" + tr.Endpoints[i].Name}}
	}
}

// N7: a credential never goes to another host. Redirects below an endpoint stay in the list. a is
// http://a.test/v1, b is http://b.test/api, and c.test is no endpoint. a is down in the rows of b.
func TestTransport_redirects(t *testing.T) {
	for _, row := range []struct {
		name     string
		from     string // the host that redirects
		location string
		want     []string // the requests: host, path and query, key
	}{
		{"relative, below the endpoint", "a.test", "/v1/new?x=1", []string{"a.test/v1/old secret-a", "a.test/v1/new?x=1 secret-a"}},
		{"relative to the request", "a.test", "new", []string{"a.test/v1/old secret-a", "a.test/v1/new secret-a"}},
		{"absolute, to the same endpoint", "a.test", "http://a.test/v1/new", []string{"a.test/v1/old secret-a", "a.test/v1/new secret-a"}},
		{"absolute, with the default port and another case", "a.test", "HTTP://A.test:80/v1/new", []string{"a.test/v1/old secret-a", "a.test/v1/new secret-a"}},
		{"relative, outside of the endpoint", "a.test", "/login", []string{"a.test/v1/old secret-a", "a.test/login "}},
		{"a path that only begins like the endpoint's", "a.test", "/v10/new", []string{"a.test/v1/old secret-a", "a.test/v10/new "}},
		{"dot segments lead outside", "a.test", "/v1/../admin", []string{"a.test/v1/old secret-a", "a.test/admin "}},
		{"escaped dot segments", "a.test", "/v1/%2e%2e/admin", []string{"a.test/v1/old secret-a", "a.test/v1/%2e%2e/admin "}},
		{"to another endpoint: it is the first that gets the request", "a.test", "http://b.test/api/new", []string{"a.test/v1/old secret-a", "b.test/api/new secret-b"}},
		{"to a third host", "a.test", "http://c.test/v1/new", []string{"a.test/v1/old secret-a", "c.test/v1/new "}},
		{"to a third host, without a scheme", "a.test", "//c.test/v1/new", []string{"a.test/v1/old secret-a", "c.test/v1/new "}},
		{"to another port of the endpoint", "a.test", "http://a.test:81/v1/new", []string{"a.test/v1/old secret-a", "a.test:81/v1/new "}},
		{"to a host that begins like the endpoint's", "a.test", "http://a.test.c.test/v1/new", []string{"a.test/v1/old secret-a", "a.test.c.test/v1/new "}},
		{"with a user that looks like the endpoint", "a.test", "http://a.test@c.test/v1/new", []string{"a.test/v1/old secret-a", "c.test/v1/new "}},
		{"from b, relative, below it", "b.test", "/api/new?x=1", []string{"b.test/api/old secret-b", "b.test/api/new?x=1 secret-b"}},
		{"from b, relative to the request", "b.test", "new", []string{"b.test/api/old secret-b", "b.test/api/new secret-b"}},
		{"from b, escaped", "b.test", "/api/n%2Fe%20w", []string{"b.test/api/old secret-b", "b.test/api/n%2Fe%20w secret-b"}},
		{"from b, relative, outside of it", "b.test", "/login", []string{"b.test/api/old secret-b", "b.test/login "}},
		{"from b, the path of a", "b.test", "/v1/new", []string{"b.test/api/old secret-b", "b.test/v1/new "}},
		{"from b, to a third host", "b.test", "http://c.test/api/new", []string{"b.test/api/old secret-b", "c.test/api/new "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				closeBody(req)
				if row.from == "b.test" && req.URL.Host == "a.test" && strings.HasPrefix(req.URL.Path, "/v1") {
					return refused.RoundTrip(req)
				}
				require.Empty(t, req.Host, "net/http sends the URL's host")
				got = append(got, req.URL.Host+req.URL.RequestURI()+" "+req.Header.Get("X-Api-Key"))
				if strings.HasSuffix(req.URL.Path, "/old") {
					return answers(307, http.Header{"Location": {row.location}}).RoundTrip(req)
				}
				return answers(200, nil).RoundTrip(req)
			})
			tr := pair(t, "http://a.test/v1", "http://b.test/api/", hostless(base))
			secrets(tr)
			resp, err := send(t, tr, http.MethodGet, "http://a.test/v1/old", "")
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, row.want, got)
		})
	}
}

// hostless removes the Host that http.Client sets for requests that pass unchanged.
func hostless(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Host == req.URL.Host {
			req = req.Clone(req.Context())
			req.Host = ""
		}
		return base.RoundTrip(req)
	})
}

// N7: the response of an endpoint names the first one in Location, with any status; a bad one is
// unchanged.
func TestTransport_location(t *testing.T) {
	for _, row := range []struct {
		name     string
		location []string
		want     string
	}{
		{"201 below the endpoint", []string{"http://b.test/api/items/1?v=2#top"}, "http://a.test/v1/items/1?v=2#top"},
		{"relative", []string{"/api/items/1"}, "http://a.test/v1/items/1"},
		{"the endpoint itself", []string{"http://b.test/api"}, "http://a.test/v1"},
		{"another host", []string{"http://c.test/api/items/1"}, "http://c.test/api/items/1"},
		{"not a URL", []string{"http://b.test/%zz"}, "http://b.test/%zz"},
		{"a control character", []string{"http://b.test/\x7f"}, "http://b.test/\x7f"},
		{"empty", []string{""}, ""},
		{"none", nil, ""},
		{"another scheme", []string{"https://b.test/api/items/1"}, "https://b.test/api/items/1"},
		{"opaque", []string{"mailto:a@b.test"}, "mailto:a@b.test"},
	} {
		t.Run(row.name, func(t *testing.T) {
			sent := http.Header{}
			if row.location != nil {
				sent["Location"] = row.location
			}
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == "a.test" {
					return refused.RoundTrip(req)
				}
				resp, err := answers(201, nil).RoundTrip(req)
				resp.Header = sent // not a copy: the header of Base must not be modified
				return resp, err
			})
			tr := pair(t, "http://a.test/v1/", "http://b.test/api", base)
			resp, err := send(t, tr, http.MethodPost, "http://a.test/v1/items", "{}")
			require.NoError(t, err)
			require.Equal(t, row.want, resp.Header.Get("Location"))
			if row.location != nil {
				require.Equal(t, row.location, sent["Location"])
			}
			require.NotEmpty(t, resilienthttp.Attempts(resp))
		})
	}
}

// N7: two endpoints that redirect to each other end like any loop, and one that redirects without a
// Location is the result.
func TestTransport_redirectLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, secrets, faulttest.Redirect(307, "http://b.test/x"), faulttest.Redirect(307, "http://a.test/x"))
		require.ErrorContains(t, errOf(l.get("/x")), "stopped after 10 redirects")
		l.servers["a.test"].AssertRequests(t, 5)
		l.servers["b.test"].AssertRequests(t, 5)
	})
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.Status(302), faulttest.OK("b"))
		resp, err := l.get("/x")
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Equal(t, "a", visited(resp, err))
	})
}

// N7: the URL of each attempt is its endpoint's, with the path and the query of the request.
func TestTransport_urls(t *testing.T) {
	for _, row := range []struct{ first, second, request, want string }{
		{"http://a.test", "http://b.test", "http://a.test", "http://b.test"},
		{"http://a.test", "http://b.test", "http://a.test/", "http://b.test/"},
		{"http://a.test/", "http://b.test/", "http://a.test/x/y/", "http://b.test/x/y/"},
		{"http://a.test/v1", "http://b.test/api/v2", "http://a.test/v1", "http://b.test/api/v2"},
		{"http://a.test/v1", "http://b.test/api/v2", "http://a.test/v1/", "http://b.test/api/v2/"},
		{"http://a.test/v1/", "http://b.test/api/v2/", "http://a.test/v1/x?q=a%20b&q=c", "http://b.test/api/v2/x?q=a%20b&q=c"},
		{"http://a.test/v1", "http://b.test", "http://a.test/v1/x%2Fy/z%20z", "http://b.test/x%2Fy/z%20z"},
		{"http://a.test/a%2Fb", "http://b.test/c%2Fd", "http://a.test/a%2Fb/x", "http://b.test/c%2Fd/x"},
		{"http://a.test", "https://b.test:8443", "http://a.test/x?", "https://b.test:8443/x?"},
		{"http://[::1]:80", "http://b.test", "http://[::1]/x//y", "http://b.test/x//y"},
	} {
		var got []string
		tr := pair(t, row.first, row.second, roundTripper(func(req *http.Request) (*http.Response, error) {
			got = append(got, req.URL.String())
			if len(got) == 1 {
				return refused.RoundTrip(req)
			}
			return answers(200, nil).RoundTrip(req)
		}))
		req := httptest.NewRequest(http.MethodGet, row.request, http.NoBody)
		req.Host = "other.test"
		before := *req.URL
		resp, err := closed(t, tr, req)
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.Equal(t, row.want, got[1])
		assert.Equal(t, before, *req.URL, "the caller's URL")
		assert.Equal(t, "other.test", req.Host)
		assert.Equal(t, row.request, resp.Request.URL.String(), "Response.Request is the caller's")
	}
}

// N7: Response.Request has the URL of the first endpoint and no credentials, also if Base sends another request. The error of a
// Base that quotes the credentials of an endpoint does not show them.
func TestTransport_responseRequest(t *testing.T) {
	down := true
	tr := pair(t, "http://a.test/v1", "http://b.test/v2", roundTripper(func(req *http.Request) (*http.Response, error) {
		signed := req.Clone(req.Context())
		signed.Header.Set("X-Signature", "1")
		switch {
		case req.URL.Host == "a.test":
			return refused.RoundTrip(signed)
		case down:
			closeBody(req)
			return nil, errors.New("signer: wrong key " + req.Header.Get("Api-Key") + " for " + req.URL.Path)
		}
		return answers(200, nil).RoundTrip(signed)
	}))
	tr.Transport.Policy.MaxAttempts = 2
	tr.Endpoints[1].Header = http.Header{"Api-Key": {"secret-of-b"}}
	_, err := send(t, tr, http.MethodGet, "http://a.test/v1/order-1", "")
	require.ErrorContains(t, err, "signer: wrong key … for …")

	down = false
	resp, err := send(t, tr, http.MethodGet, "http://a.test/v1/order-1", "")
	require.NoError(t, err)
	require.Equal(t, "b", visited(resp, err)[len(visited(resp, err))-1:])
	require.Equal(t, "http://a.test/v1/order-1", resp.Request.URL.String())
	require.Empty(t, resp.Request.Header)
}

// N7: over TLS, the name and the certificate are those of the endpoint.
func TestTransport_tls(t *testing.T) {
	var hosts []string
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host+" "+r.TLS.ServerName)
		_, _ = io.WriteString(w, "ok")
	}))
	defer srv.Close()
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	tr := pair(t, "https://a.invalid", "https://example.com", roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "a.invalid" {
			return refused.RoundTrip(req)
		}
		return base.RoundTrip(req)
	}))
	resp, err := send(t, tr, http.MethodGet, "https://a.invalid/x", "")
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, []string{"example.com example.com"}, hosts)
}

// §4.18a, N1: a POST that net/http has sent again by itself may be done, whatever the repetition gets. So it stays.
func TestTransport_sentAgainByNetHTTP(t *testing.T) {
	for _, row := range []struct {
		name   string
		body   string
		answer faulttest.Reply // to the repetition
	}{
		{"429", "{}", faulttest.Reply{Status: 429}},
		{"429, no body", "", faulttest.Reply{Status: 429}},
		{"503 with Retry-After", "{}", faulttest.Reply{Status: 503, RetryAfter: time.Second}},
		{"503 with Retry-After, no body", "", faulttest.Reply{Status: 503, RetryAfter: time.Second}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			hangUp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the work is done
				conn, _, err := http.NewResponseController(w).Hijack()
				if assert.NoError(t, err) {
					assert.NoError(t, conn.Close())
				}
			})
			l := newList(t, nil, faulttest.Sequence(faulttest.OK("warm"), hangUp, row.answer, faulttest.OK("a")), faulttest.OK("b"))
			require.NoError(t, errOf(l.get("/x")))
			synctest.Wait() // the connection is idle, and reused
			resp, err := l.do(http.MethodPost, "/x", row.body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "a a", visited(resp, err), resilienthttp.Explain(resp, err))
			l.servers["b.test"].AssertRequests(t, 0)
		})
	}
}

// §4.18a: a redirect frees no POST that may be done, also if a hedge left it in doubt.
func TestTransport_redirectKeepsDoubt(t *testing.T) {
	for _, row := range []struct {
		name  string
		first http.RoundTripper // of the two attempts of the first call: it leaves the doubt
		hedge *resilienthttp.Hedge
	}{
		{"500", answers(500, nil), nil},
		{"reset", reset, nil},
		{"a hedge without a response", roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answers(307, http.Header{"Location": {"/moved"}}).RoundTrip(req)
		}), &resilienthttp.Hedge{Delay: 500 * time.Millisecond}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) { tr.Transport.Hedge = row.hedge }, faulttest.OK("a"), faulttest.OK("b"))
			var sent, moved atomic.Int32
			l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/moved" && moved.Add(1) == 1:
					return answers(503, http.Header{"Retry-After": {"1"}}).RoundTrip(req)
				case req.URL.Path == "/moved":
					return answers(200, nil).RoundTrip(req)
				case sent.Add(1) == 1:
					return row.first.RoundTrip(req)
				case row.hedge != nil:
					return hangs.RoundTrip(req)
				}
				return answers(307, http.Header{"Location": {"/moved"}}).RoundTrip(req)
			}))
			resp, err := l.post("/x")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "a a", visited(resp, err), resilienthttp.Explain(resp, err))
			require.Equal(t, int32(2), sent.Load(), "the first call leaves a doubt")
			l.servers["b.test"].AssertRequests(t, 0)
		})
	}
}

// §4.18a: a and b do not know each other's keys. A redirect from b, which may have done the work, leads a POST nowhere else, and what
// another server then does for a PUT does not end the doubt.
func TestTransport_redirectInDoubt(t *testing.T) {
	for _, row := range []struct {
		name, method, to string
		shared           bool
		follows, inDoubt bool
	}{
		{"POST to b", http.MethodPost, "http://b.test/api/new", false, true, false},
		{"POST to a", http.MethodPost, "http://a.test/v1/new", false, false, true},
		{"POST to a, which shares the keys", http.MethodPost, "http://a.test/v1/new", true, true, false},
		{"POST to a, outside of the endpoint", http.MethodPost, "http://a.test/new", false, false, true},
		{"POST to b, outside of the endpoint", http.MethodPost, "http://b.test/new", false, true, false},
		{"PUT to b", http.MethodPut, "http://b.test/api/new", false, true, false},
		{"PUT to a", http.MethodPut, "http://a.test/v1/new", false, true, true},
		{"PUT to a, outside of the endpoint", http.MethodPut, "http://a.test/new", false, true, true},
		{"PUT to b, outside of the endpoint", http.MethodPut, "http://b.test/new", false, true, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			followed, broken := false, false
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/v1/old":
					return refused.RoundTrip(req)
				case req.URL.Path != "/api/old":
					followed = true
					return answers(200, nil).RoundTrip(req)
				case !broken:
					broken = true
					return answers(500, nil).RoundTrip(req)
				}
				return answers(307, http.Header{"Location": {row.to}}).RoundTrip(req)
			})
			tr := pair(t, "http://a.test/v1", "http://b.test/api", base)
			tr.SharedKeys = row.shared
			resp, err := send(t, tr, row.method, "http://a.test/v1/old", "{}")
			assert.Equal(t, row.follows, followed)
			assert.Equal(t, row.follows, err == nil)
			assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, err), "%v", err)
		})
	}
}

// §4.18a: a hedge without a response binds a POST to its endpoint, also if its error is no reason for a retry.
func TestTransport_hedgeInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Hedge = &resilienthttp.Hedge{Delay: time.Second}
			tr.Transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				if a.Err != nil {
					return resilienthttp.VerdictPermanent
				}
				return resilienthttp.VerdictDefault
			}
		}, faulttest.OK("a"), faulttest.OK("b"))
		var sent atomic.Int32
		l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			switch sent.Add(1) {
			case 1:
				time.Sleep(2 * time.Second)
				return answers(503, http.Header{"Retry-After": {"1"}}).RoundTrip(req)
			case 2:
				return reset.RoundTrip(req)
			}
			return answers(200, nil).RoundTrip(req)
		}))
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Equal(t, "a a a", visited(resp, err), resilienthttp.Explain(resp, err))
	})
}
