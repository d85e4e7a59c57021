package endpoints_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// N8: the first call ends in doubt, because a has lost all its responses. Its circuit opens. A repetition
// with the same key at the same endpoint gets the stored response; without WithEndpoint, b works again.
func TestWithEndpoint_repeatsInDoubt(t *testing.T) {
	for _, row := range []struct {
		name   string
		pinned bool
		doneAt string
	}{
		{"pinned: the work is done once", true, "a 1 b 0"},
		{"a new call: it is done twice", false, "a 1 b 1"},
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
			req, err := http.NewRequestWithContext(endpoints.WithEndpoint(t.Context(), "b"), http.MethodGet, "http://a.test/x", nil)
			require.NoError(t, err)
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
				_, err := login.doIn(req.Context(), http.MethodGet, "/token", "")
				require.NoError(t, err)
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
