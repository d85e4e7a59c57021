package idempotency_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// I4: the statuses of another server's responses.
func TestClassifyForwarded(t *testing.T) {
	for code := 200; code <= 599; code++ {
		for _, after := range []string{"", "5", "Mon, 02 Jan 2034 15:04:05 GMT", "soon"} {
			asked := after != "" && after != "soon"
			want := idempotency.ClassifyStatus(code)
			switch {
			case code == 409 || code == 423 && asked || code == 503 || code == 408:
				want = idempotency.Unknown
			case code == 403 && asked, code == 421:
				want = idempotency.FailedRetryable
			}
			got := idempotency.ClassifyForwarded(code, http.Header{"Retry-After": {after}})
			require.Equal(t, want, got, "%d, Retry-After: %q", code, after)
			if code >= 400 {
				said := idempotency.ClassifyForwarded(code, http.Header{"Retry-After": {after}, "Request-Executed": {"?0"}})
				require.Equal(t, idempotency.FailedRetryable, said, "%d, not executed", code)
			}
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
		takeover idempotency.Takeover
		want     idempotency.Status
	}{
		{"409: final", 409, "", nil, 0, idempotency.FailedFinal},
		{"409 with Retry-After: the key is free", 409, "1", nil, 0, idempotency.FailedRetryable},
		{"423 with Retry-After: the key is free", 423, "1", nil, 0, idempotency.FailedRetryable},
		{"404 with Retry-After: final", 404, "1", nil, 0, idempotency.FailedFinal},
		{"503: the key is free", 503, "", nil, 0, idempotency.FailedRetryable},
		{"forwarded 409: unknown", 409, "", forwarded, 0, idempotency.Unknown},
		{"forwarded 503: unknown", 503, "", forwarded, 0, idempotency.Unknown},
		{"forwarded 503 with Retry-After: unknown", 503, "1", forwarded, 0, idempotency.Unknown},
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

// I5, I6: a problem's kind, status and fields are a contract with clients: change this
// table only together with docs/server-idempotency.md.
func TestProblemsAreAContract(t *testing.T) {
	ok := answer(http.StatusCreated, "made")
	memory := func(next http.HandlerFunc, change ...func(*idempotency.Handler)) *rig {
		return newRig(new(idempotency.Memory), next, change...)
	}
	failing := func(verb string, err error) *rig {
		return newRig(faulty(new(idempotency.Memory), rule{verb, 1, always, fault{before: err}}), ok)
	}
	store := new(idempotency.Memory)
	inProgress := newRig(store, ok)
	crash(t, inProgress.Handler, store, request(t))
	nothing := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Handler", "this") }
	for _, row := range []struct {
		kind, title, detail string
		status              int
		should, after       string // X-Should-Retry, Retry-After
		unexecuted          bool   // Request-Executed: ?0
		rig                 *rig
		request             func(*http.Request)
		twice               bool // the second response counts
	}{
		{kind: "key-missing", title: "An idempotency key is required", detail: "Send one in Idempotency-Key.", status: 400, unexecuted: true, rig: memory(ok),
			request: func(r *http.Request) { r.Header.Del("Idempotency-Key") }},
		{kind: "key-invalid", title: "The idempotency key is malformed", detail: "Idempotency-Key is there more than once", status: 400, unexecuted: true, rig: memory(ok),
			request: func(r *http.Request) { r.Header.Add("Idempotency-Key", "b") }},
		{kind: "scope", title: "The request does not belong to a known account", status: 403, unexecuted: true, rig: memory(ok),
			request: func(r *http.Request) { r.Header.Set("Tenant", "unknown") }},
		{kind: "body-incomplete", title: "The request's body is incomplete", status: 400, unexecuted: true, rig: memory(ok),
			request: func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)) }},
		{kind: "body-too-large", title: "The request's body is too large", detail: "The limit is 3 bytes.", status: 413,
			unexecuted: true, rig: memory(ok, func(h *idempotency.Handler) { h.MaxBody = 3 })},
		{kind: "in-progress", title: "A request with this key is being executed", status: 409, after: "1", rig: inProgress},
		{kind: "mismatch", title: "The key was used for another request", status: 422, should: "false", twice: true, rig: memory(ok),
			request: func(r *http.Request) { r.URL.RawQuery = "n=" + time.Now().String() }},
		{kind: "unreplayable", title: "The request was executed before; its response is not stored", status: 409, should: "false", twice: true,
			rig: memory(ok, func(h *idempotency.Handler) { h.MaxResponse = 1 })},
		{kind: "unknown", title: "It is not known whether the request took effect", status: 409, should: "false", twice: true,
			rig: memory(func(http.ResponseWriter, *http.Request) { panic("test") })},
		{kind: "no-response", title: "The handler gave no complete response", status: 500, should: "false", rig: memory(nothing)},
		{kind: "load", title: "The request was executed before; its response is not available now", status: 503, twice: true,
			rig: memory(refers(http.StatusCreated), rebuild(idempotency.Result{}, errDown))},
		{kind: "store", title: "The idempotency record is not available; repeat the request with the same key", status: 503, after: "1", unexecuted: true,
			rig: failing(onReserve, errDown)},
		{kind: "store", title: "The idempotency record is not available; repeat the request with the same key", status: 503,
			rig: failing(onComplete, errDown)},
		{kind: "store", title: "The idempotency record is not available; repeat the request with the same key", status: 503, after: "1",
			rig: newRig(faulty(store, rule{onReserve, 1, always, fault{before: errDown}}), ok)}, // another execution is in progress
		{kind: "uncommittable", title: "The handler's writes cannot be committed; nothing was done", status: 500, should: "false",
			rig: newRig(faultyTx(newLedger(), rule{onCommit, 1, 0, fault{before: idempotency.ErrUncommittable}}), ok, transactional)},
		{kind: "lease-lost", title: "Another execution took over; repeat the request with the same key for its result", status: 503,
			rig: failing(onComplete, idempotency.ErrLeaseLost)},
		{kind: "misconfigured", title: "The server is misconfigured", status: 500, should: "false", unexecuted: true, rig: newRig(nil, ok)},
	} {
		bubble.Run(t, row.kind, func(t *testing.T) {
			send := func() *httptest.ResponseRecorder {
				time.Sleep(time.Second)
				req := request(t)
				if row.request != nil {
					row.request(req)
				}
				w, _ := servePanicking(row.rig, req)
				return w
			}
			w := send()
			if row.twice {
				w = send()
			}
			assert.Equal(t, row.status, w.Code)
			want := map[string]any{"type": problemBase + row.kind, "title": row.title, "status": float64(row.status)}
			if row.detail != "" {
				want["detail"] = row.detail
			}
			var got map[string]any
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), "%s", w.Body)
			assert.Equal(t, want, got)

			header := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
			if row.should != "" {
				header.Set("X-Should-Retry", row.should)
			}
			if row.after != "" {
				header.Set("Retry-After", row.after)
			}
			if row.unexecuted {
				header.Set("Request-Executed", "?0")
			}
			assert.Equal(t, header, w.Header())
			event := row.rig.last(t)
			assert.Equal(t, row.status, event.Code)
		})
	}
}

// Each type has an anchor on the page, and each anchor has a type in this table.
func TestProblemsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/server-idempotency.md")
	require.NoError(t, err)
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| <a id=\"([a-z-]+)\"></a>`([a-z-]+)` \\| (\\d+) \\|").FindAllStringSubmatch(string(page), -1) {
		assert.Equal(t, match[1], match[2])
		documented = append(documented, match[1]+" "+match[3])
	}
	assert.ElementsMatch(t, []string{
		"key-missing 400", "key-invalid 400", "scope 403", "body-incomplete 400", "body-too-large 413", "in-progress 409",
		"mismatch 422", "unreplayable 409", "load 503", "unknown 409", "no-response 500", "uncommittable 500", "store 503", "lease-lost 503", "misconfigured 500",
	}, documented)
}

// The types of problems can have the service's own base URL.
func TestHandler_ProblemBase(t *testing.T) {
	for _, row := range []struct{ name, base, want string }{
		{"none: the page of this package", "", problemBase + "key-missing"},
		{"a URL of the service: the kind follows", "https://api.shop.example/problems/", "https://api.shop.example/problems/key-missing"},
		{"a path: the kind follows", "/problems#", "/problems#key-missing"},
		{"no URL: misconfigured", "https://api.shop.example/%zz", ""},
		{"a space: misconfigured", "https://api.shop.example/my problems/", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "shop", nil }, http.NotFoundHandler())
			h.ProblemBase = row.base
			if row.want == "" {
				require.ErrorContains(t, h.Validate(), "ProblemBase is \""+row.base+"\", want a URL")
				return
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/charges", http.NoBody))
			var got struct{ Type string }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, row.want, got.Type)
		})
	}
}
