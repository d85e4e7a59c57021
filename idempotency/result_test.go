package idempotency

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplay: for each handler of the table with a result, a replay has the same status, header and
// body, without the fields of one response.
func TestReplay(t *testing.T) {
	rows := handlerRows()
	for n := range rows {
		row := &rows[n]
		if strings.HasPrefix(row.name, "a length that is too") || strings.HasPrefix(row.name, "a length of 0") {
			continue // broken, and broken again
		}
		for _, http2 := range []bool{false, true} {
			name := row.name + ", HTTP/1.1"
			if http2 {
				name = row.name + ", HTTP/2"
			}
			t.Run(name, func(t *testing.T) {
				var stored Result
				large := false
				first := func(w http.ResponseWriter, r *http.Request) {
					c := newCapture(w, r, testLimit)
					defer c.close()
					row.handler(c, r)
					c.finish()
					stored, large = c.result(), c.body.beyond
					_ = c.sendResponse(w)
				}
				before := observe(t, first, row, http2)
				if large {
					return
				}
				require.NotContains(t, stored.Header, "Date")
				after := observe(t, func(w http.ResponseWriter, r *http.Request) { replay(w, stored) }, row, http2)

				require.Equal(t, []string{"true"}, after.Header["Idempotency-Replayed"])
				delete(after.Header, "Idempotency-Replayed")
				for _, h := range []http.Header{before.Header, after.Header} {
					h.Del("Date")
					h.Del("Set-Cookie")
					h.Del("Connection")
				}
				require.Equal(t, before, after)
			})
		}
	}
}

// observation is a response as a client sees it.
type observation struct {
	Code    int
	Header  http.Header
	Length  int64
	Body    string
	Trailer http.Header
	Err     error
}

// forget removes what depends on flushes: without a capture, they change how net/http sends a body.
func (o *observation) forget(row *handlerRow) {
	if row.flushes {
		o.Length = 0
		for _, name := range []string{"Content-Length", "Content-Type", "Connection"} {
			o.Header.Del(name)
		}
	}
}

func observe(t *testing.T, handler http.HandlerFunc, row *handlerRow, http2 bool) observation {
	t.Helper()
	s := newServer(t, outer(handler), http2)
	req, err := http.NewRequest(cmp.Or(row.method, http.MethodPost), s.URL, nil)
	require.NoError(t, err)
	if name, value, ok := strings.Cut(strings.TrimSpace(row.headers), ": "); ok {
		req.Header.Set(name, value)
	}
	transport := s.Client().Transport.(*http.Transport)
	transport.DisableCompression = true
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	seen := observation{resp.StatusCode, resp.Header, resp.ContentLength, string(body), resp.Trailer, err}
	if http2 && len(body) == 0 {
		seen.Length = 0 // whether the stream ends in its first frame or in the next
	}
	return seen
}

// TestResult: which fields of a response are stored. TestReplay has those that describe the body, and the trailers.
func TestResult(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler func(w http.ResponseWriter)
		want    http.Header
	}{
		{"hop by hop", func(w http.ResponseWriter) {
			for _, name := range []string{
				"Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Transfer-Encoding",
				"Upgrade", "Set-Cookie", "Date", "X-Named", "X-Named-Too", "X-Kept", "Idempotency-Replayed",
			} {
				w.Header().Set(name, "a")
			}
			w.Header()["Connection"] = []string{"close, x-named", "X-Named-Too"}
		}, http.Header{"X-Kept": {"a"}, "Content-Length": nil}},
		{"hop by hop, in other letters", func(w http.ResponseWriter) {
			w.Header()["connection"] = []string{"x-named"}
			w.Header()["x-named"] = []string{"a"}
			w.Header()["SET-COOKIE"] = []string{"a=b"}
			w.Header()["x-kept"] = []string{"a", "b"}
		}, http.Header{"x-kept": {"a", "b"}}},
		{"middleware's, changed and gone", func(w http.ResponseWriter) {
			w.Header().Set("X-Request-Id", "mine")
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Frame-Options")
			w.Header().Del("Set-Cookie")
		}, http.Header{"X-Request-Id": {"mine"}, "Vary": {"Origin", "Accept"}, "X-Frame-Options": nil}},
		{"trailers of one response", func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "Authentication-Info, X-Never")
			write(w, "body")
			w.Header().Set("Authentication-Info", `nextnonce="1"`)
			w.Header().Set(http.TrailerPrefix+"X-Auth-Token", "1")
		}, http.Header{
			"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": nil, "Trailer": {"Authentication-Info, X-Never"},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if strings.HasPrefix(row.name, "middleware's") {
				w.Header().Set("X-Request-Id", "its")
				w.Header().Set("X-Untouched", "its")
				w.Header().Set("Vary", "Origin")
				w.Header().Set("X-Frame-Options", "DENY")
				w.Header().Set("Set-Cookie", "a=b")
			}
			c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
			defer c.close()
			row.handler(c)
			c.finish()
			require.Equal(t, row.want, c.result().Header)
		})
	}
}

// TestResult_storesNoCredentials: neither credentials nor fields of one moment are stored, in any
// letter case.
func TestResult_storesNoCredentials(t *testing.T) {
	names := []string{
		"Authorization", "WWW-Authenticate", "Authentication-Info", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Authentication-Info", "Cookie", "Set-Cookie", "Set-Cookie2", "X-API-Key", "X-Auth-Token", "Auth-Token",
		"access-token", "X-Access-Token", "refresh-token", "X-Refresh-Token", "X-Id-Token", "X-Session-Token",
		"CSRF-Token", "X-CSRF-Token", "X-CSRFToken", "X-XSRF-TOKEN", "X-Subject-Token", "X-Amz-Security-Token",
		"Date", "Age", "Server-Timing", "RateLimit", "RateLimit-Policy", "RateLimit-Reset",
		"X-RateLimit-Remaining", "X-Rate-Limit-Remaining", "Request-Executed",
	}
	for _, name := range names {
		for _, spelled := range []string{name, strings.ToLower(name), http.CanonicalHeaderKey(name)} {
			c := newCapture(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
			c.Header()[spelled] = []string{"secret"}
			c.Header().Set("X-Token", "of the card") // a result, for all that is known
			c.WriteHeader(http.StatusCreated)
			c.finish()
			require.Equal(t, http.Header{"X-Token": {"of the card"}}, c.result().Header, spelled)
			c.close()
		}
	}
}

// TestTrailersOfMiddleware: middleware sets its own trailers, in the first response and in a replay,
// for handlers with and without trailers.
func TestTrailersOfMiddleware(t *testing.T) {
	middleware := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Early, X-Late")
			w.Header().Set("X-Early", "1")
			w.Header().Set(http.TrailerPrefix+"X-Prefixed", "1")
			next(w, r)
			w.Header().Set("X-Late", "1")
		}
	}
	own := http.Header{"X-Early": {"1"}, "X-Late": {"1"}, "X-Prefixed": {"1"}}
	more := own.Clone()
	more.Set("X-Sum", "2")
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		stored  http.Header
		want    http.Header
	}{
		{"untouched", func(w http.ResponseWriter, _ *http.Request) { write(w, "x") }, http.Header{}, own},
		{"looked at", func(w http.ResponseWriter, _ *http.Request) { w.Header(); write(w, "x") }, http.Header{}, own},
		{"added to", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Trailer", "X-Sum")
			write(w, "x")
			w.Header().Set("X-Sum", "2")
		}, http.Header{"Trailer": {"X-Early, X-Late", "X-Sum"}, "Trailer:X-Sum": {"2"}}, more},
		{"taken away", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Trailer", "X-Sum")
			w.Header().Set("X-Sum", "2")
			w.Header().Del("X-Early")
			write(w, "x")
		}, http.Header{"Trailer": {"X-Early, X-Late", "X-Sum"}, "X-Sum": {"2"}, "Trailer:X-Sum": {"2"}, "X-Early": nil},
			http.Header{"X-Early": nil, "X-Late": {"1"}, "X-Prefixed": {"1"}, "X-Sum": {"2"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var stored Result
			first := observe(t, middleware(func(w http.ResponseWriter, r *http.Request) {
				c := newCapture(w, r, testLimit)
				defer c.close()
				row.handler(c, r)
				c.finish()
				stored = c.result()
				_ = c.sendResponse(w)
			}), &handlerRow{}, false)
			require.Equal(t, row.want, first.Trailer)
			again := observe(t, middleware(func(w http.ResponseWriter, _ *http.Request) { replay(w, stored) }), &handlerRow{}, false)
			require.Equal(t, row.want, again.Trailer)
			row.stored["Content-Type"] = []string{"text/plain; charset=utf-8"}
			row.stored["Content-Length"] = nil
			require.Equal(t, row.stored, stored.Header)
		})
	}
}

// TestResult_leavesMiddlewaresOwn: fields that middleware sets for one response are not stored, such
// as the Content-Encoding of compression and a Content-Security-Policy with a nonce.
func TestResult_leavesMiddlewaresOwn(t *testing.T) {
	for _, name := range []string{"Content-Encoding", "Content-Security-Policy", "Content-Security-Policy-Report-Only"} {
		w := httptest.NewRecorder()
		w.Header().Set(name, "gzip")
		w.Header().Set("Content-Type", "application/json")
		c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
		write(c, "{}")
		c.finish()
		require.Equal(t, http.Header{"Content-Type": {"application/json"}}, c.result().Header, name)
		c.close()
	}
}

// TestReplay_besideMiddleware: a replay replaces the fields that it has, and keeps the others.
func TestReplay_besideMiddleware(t *testing.T) {
	w := httptest.NewRecorder()
	for _, name := range []string{"X-Request-Id", "Vary", "X-Frame-Options", "Set-Cookie", "Date"} {
		w.Header().Set(name, "new")
	}
	stored := http.Header{"Vary": {"Accept"}, "X-Frame-Options": {}, "Location": {"/charges/1"}}
	replay(w, Result{Code: 201, Header: stored, Body: []byte("x")})
	require.Equal(t, 201, w.Code)
	require.Equal(t, "x", w.Body.String())
	require.Equal(t, http.Header{
		"X-Request-Id": {"new"}, "Vary": {"Accept"}, "X-Frame-Options": nil, "Set-Cookie": {"new"}, "Date": {"new"},
		"Location": {"/charges/1"}, "Idempotency-Replayed": {"true"},
	}, w.Header())
	w.Header()["Vary"][0] = "changed"
	require.Equal(t, "Accept", stored.Get("Vary"), "the store's header is its own")
}

// TestReplay_ofAReconcilersResult: the reconciler need not set a status.
func TestReplay_ofAReconcilersResult(t *testing.T) {
	for _, code := range []int{0, 7, -1, 103, 1000} {
		seen := observe(t, func(w http.ResponseWriter, _ *http.Request) {
			replay(w, Result{Code: code, Body: []byte("<html>")})
		}, &handlerRow{}, false)
		require.Equal(t, 200, seen.Code)
		require.Equal(t, "text/html; charset=utf-8", seen.Header.Get("Content-Type"))
	}

	w := httptest.NewRecorder()
	replay(w, Result{Code: 204, Body: []byte("x")})
	require.Zero(t, w.Body.Len())
}
