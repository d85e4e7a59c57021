package endpoints_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
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
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := new(faulttest.Idempotent), new(faulttest.Idempotent)
				l := newList(t, nil, a, b)
				ctx := resilienthttp.WithIdempotencyKey(t.Context(), "invoice:001")
				call := func(ctx context.Context) (*http.Response, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Endpoints[0].URL.String()+"/charges", strings.NewReader("{}"))
					require.NoError(t, err)
					resp, err := (&http.Client{Transport: l}).Do(req)
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						require.NoError(t, resp.Body.Close())
					}
					return resp, err
				}
				l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
					resp, err := l.servers["a.test"].Transport().RoundTrip(req.Clone(req.Context()))
					if err == nil {
						_ = resp.Body.Close()
					}
					return reset(req)
				}))
				_, err := call(ctx)
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
				resp, err := call(ctx)
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, resp.StatusCode)
				require.Equal(t, row.doneAt, fmt.Sprintf("a %d b %d", a.Executions()["invoice:001"], b.Executions()["invoice:001"]))
			})
		})
	}
}

// N8: the call goes nowhere else, even if it could.
func TestWithEndpoint_goesNowhereElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		get := func(name string) (*http.Response, error) {
			req, err := http.NewRequestWithContext(endpoints.WithEndpoint(t.Context(), name), http.MethodGet, l.Endpoints[0].URL.String()+"/x", nil)
			require.NoError(t, err)
			resp, err := (&http.Client{Transport: l}).Do(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			return resp, err
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
