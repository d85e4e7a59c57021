package idempotency_test

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// I4: the statuses of another server's responses.
func TestClassifyForwarded(t *testing.T) {
	for code := 200; code <= 599; code++ {
		for _, after := range []string{"", "5", "Mon, 02 Jan 2034 15:04:05 GMT", "soon"} {
			asked := after != "" && after != "soon"
			want := idempotency.ClassifyStatus(code)
			if code == 409 || code == 423 && asked || code == 503 && !asked {
				want = idempotency.Unknown
			}
			got := idempotency.ClassifyForwarded(code, http.Header{"Retry-After": {after}})
			require.Equal(t, want, got, "%d, Retry-After: %q", code, after)
		}
	}
}

// I4: how a response with Retry-After ends the execution.
func TestHandler_classifiesResponses(t *testing.T) {
	forwarded := func(h *idempotency.Handler) { h.ClassifyResponse = idempotency.ClassifyForwarded }
	says := func(status idempotency.Status) func(*idempotency.Handler) {
		return func(h *idempotency.Handler) {
			h.ClassifyResponse = func(int, http.Header) idempotency.Status { return status }
		}
	}
	for _, row := range []struct {
		name     string
		code     int
		after    string
		change   func(*idempotency.Handler)
		takeover driver.Takeover
		want     idempotency.Status
	}{
		{"409: final", 409, "", nil, 0, idempotency.FailedFinal},
		{"409 with Retry-After: the key is free", 409, "1", nil, 0, idempotency.FailedRetryable},
		{"423 with Retry-After: the key is free", 423, "1", nil, 0, idempotency.FailedRetryable},
		{"404 with Retry-After: final", 404, "1", nil, 0, idempotency.FailedFinal},
		{"503: the key is free", 503, "", nil, 0, idempotency.FailedRetryable},
		{"forwarded 409: unknown", 409, "", forwarded, 0, idempotency.Unknown},
		{"forwarded 503: unknown", 503, "", forwarded, 0, idempotency.Unknown},
		{"forwarded 503 with Retry-After: the key is free", 503, "1", forwarded, 0, idempotency.FailedRetryable},
		{"forwarded 409, Reexecute: the key is free", 409, "1", forwarded, idempotency.Reexecute, idempotency.FailedRetryable},
		{"forwarded 503, Reexecute: the key is free", 503, "", forwarded, idempotency.Reexecute, idempotency.FailedRetryable},
		{"forwarded 402: final", 402, "", forwarded, idempotency.Reexecute, idempotency.FailedFinal},
		{"ClassifyResponse: its status", 404, "", says(idempotency.Completed), 0, idempotency.Completed},
		{"ClassifyResponse without a status: the default", 404, "", says(0), 0, idempotency.FailedFinal},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := new(idempotency.Memory)
			r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
				if row.after != "" {
					w.Header().Set("Retry-After", row.after)
				}
				w.WriteHeader(row.code)
			}, row.change, takeover(row.takeover))
			assert.Equal(t, row.code, r.post(t).Code)
			requireRecord(t, store, theID, row.want)
		})
	}
}

// I4: two Handlers in a row. The outer one stores nothing that the inner one says while the
// operation is in progress there, and then the client gets the result of the only execution.
func TestHandler_twoInARow(t *testing.T) {
	passing := func(h *idempotency.Handler) {
		h.ClassifyResponse, h.Takeover = idempotency.ClassifyForwarded, idempotency.Reexecute
	}
	for _, row := range []struct {
		name    string
		change  func(*idempotency.Handler)
		timeout time.Duration // of the outer Handler
		direct  bool          // another client sends the first request to the inner Handler
		first   int
	}{
		{"in progress for another client, default", nil, 0, true, http.StatusConflict},
		{"in progress for another client, forwarded", passing, 0, true, http.StatusConflict},
		{"in progress after the outer Timeout, forwarded", passing, time.Second, false, http.StatusBadGateway},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			inner := newRig(new(idempotency.Memory), func(w http.ResponseWriter, req *http.Request) {
				time.Sleep(5 * time.Second)
				answer(http.StatusCreated, "made")(w, req)
			})
			server := memhttp.NewServer(t, inner)
			target, err := url.Parse(server.URL)
			require.NoError(t, err)
			proxy := &httputil.ReverseProxy{Transport: server.Transport(), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
			outer := newRig(new(idempotency.Memory), proxy.ServeHTTP, row.change, func(h *idempotency.Handler) { h.Timeout = row.timeout })
			if row.direct {
				inner.goPost(t)
				synctest.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			assert.Equal(t, row.first, serve(outer, request(t).WithContext(ctx)).Code)
			requireProblem(t, outer.post(t), http.StatusConflict, "in-progress")
			time.Sleep(10 * time.Second)
			for range 2 {
				w := outer.post(t)
				assert.Equal(t, http.StatusCreated, w.Code)
				assert.Equal(t, "made", w.Body.String())
			}
			assert.EqualValues(t, 1, inner.executions.Load())
			assert.Empty(t, outer.unknowns())
		})
	}
}
