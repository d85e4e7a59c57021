package idempotency_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// This file is the contract of Handler with its clients: which requests are executed, the first
// responses, and the replays.

func TestHandler_firstResponseAndReplay(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"a created resource", answer(http.StatusCreated, `{"id": 7}`)},
		{"a final refusal", answer(http.StatusPaymentRequired, "card declined")},
		{"several values and writes", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Many"] = []string{"a", "", "c"}
			io.WriteString(w, "one ")
			io.WriteString(w, "two")
		}},
		{"a mebibyte to the byte", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, 1<<20))
		}},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "one ")
			assert.NoError(t, http.NewResponseController(w).Flush())
			io.WriteString(w, "two")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			bare := serve(row.handler, request(t))
			r := newRig(new(idempotency.Memory), row.handler)

			first := r.post(t)
			assert.Equal(t, bare.Result().Header, first.Result().Header)
			assert.Equal(t, bare.Code, first.Code)
			assert.Equal(t, bare.Body.String(), first.Body.String())

			requireReplay(t, first, r.post(t))
			requireReplay(t, first, r.post(t))
			assert.EqualValues(t, 1, r.executions.Load())
			assert.Equal(t, []idempotency.Disposition{
				idempotency.Executed, idempotency.Replayed, idempotency.Replayed,
			}, r.dispositions())
		})
	}
}

// The forms of a key have their tests beside their parser, in internal/idempotencykey.
func TestHandler_keys(t *testing.T) {
	const invalid = "key-invalid"
	for _, row := range []struct {
		name     string
		keys     []string
		optional bool
		problem  string // "": executed
	}{
		{name: "missing", problem: "key-missing"},
		{name: "missing, and optional", optional: true},
		{name: "empty", keys: []string{""}, problem: invalid},
		{name: "empty, where it is optional", keys: []string{""}, optional: true, problem: invalid},
		{name: "quoted and empty", keys: []string{`""`}, problem: invalid},
		{name: "one character", keys: []string{"k"}},
		{name: "255 characters", keys: []string{strings.Repeat("k", 255)}},
		{name: "256 characters", keys: []string{strings.Repeat("k", 256)}, problem: invalid},
		{name: "a million characters", keys: []string{strings.Repeat("k", 1_000_000)}, problem: invalid},
		{name: "a line break", keys: []string{"a\r\nb"}, problem: invalid},
		{name: "two fields", keys: []string{"a", "b"}, problem: invalid},
		{name: "two fields, one of them empty", keys: []string{"a", ""}, problem: invalid},
		{name: "quoted", keys: []string{`"comp1:invoice:001"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory))
			r := newRig(store, answer(http.StatusCreated, "made"), func(h *idempotency.Handler) { h.Optional = row.optional })
			req := request(t)
			req.Header["Idempotency-Key"] = row.keys
			w := serve(r, req)
			if row.problem == "" {
				assert.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
				assert.EqualValues(t, 1, r.executions.Load())
				assert.Equal(t, len(row.keys), store.count(onReserve), "a request without a key is not protected")
				assert.Len(t, r.dispositions(), len(row.keys), "nor the Trace's")
				return
			}
			p := requireProblem(t, w, http.StatusBadRequest, row.problem)
			assert.Equal(t, row.problem == invalid, strings.HasPrefix(p.Detail, "Idempotency-Key "), p.Detail)
			for _, key := range row.keys {
				if len(key) > 3 {
					assert.NotContains(t, p.Detail, key, "a key is a secret")
				}
			}
			assert.Less(t, w.Body.Len(), 1000)
			assert.Zero(t, r.executions.Load())
			assert.Zero(t, store.count(onReserve))
			assert.Equal(t, []idempotency.Disposition{idempotency.Invalid}, r.dispositions())
			assert.Equal(t, http.StatusBadRequest, r.last(t).Code)
		})
	}
	t.Run("another field, in any case", func(t *testing.T) {
		r := newRig(new(idempotency.Memory), answer(http.StatusCreated, "made"), func(h *idempotency.Handler) { h.Header = "x-request-id" })
		req := request(t)
		req.Header = http.Header{"X-Request-Id": {"k"}}
		requireReplay(t, serve(r, req), serve(r, req))
	})
}

func TestHandler_scopes(t *testing.T) {
	r := newRig(new(idempotency.Memory), func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, "the secret of %s", req.Header.Get("Tenant"))
	})
	of := func(tenant string) *httptest.ResponseRecorder {
		req := request(t)
		req.Header.Set("Tenant", tenant)
		return serve(r, req)
	}
	for range 2 {
		for _, name := range []string{"ann", "bob", ""} {
			assert.Equal(t, "the secret of "+name, of(name).Body.String())
		}
	}
	assert.EqualValues(t, 3, r.executions.Load())

	for _, unfit := range []string{strings.Repeat("x", 513), "a\x00b", "\xff"} { // a client may have a say in its name
		requireProblem(t, of(unfit), http.StatusForbidden, "scope")
		assert.ErrorIs(t, r.last(t).Err, idempotency.ErrInvalid)
	}
	requireProblem(t, of("unknown"), http.StatusForbidden, "scope")
	assert.EqualValues(t, 3, r.executions.Load())
	event := r.last(t)
	assert.Equal(t, idempotency.Invalid, event.Disposition)
	assert.ErrorContains(t, event.Err, "no tenant")
}

func TestHandler_otherMethodsPassThroughUntouched(t *testing.T) {
	for _, row := range []struct {
		name    string
		methods []string
		method  string
		guarded bool
	}{
		{"GET", nil, http.MethodGet, false},
		{"HEAD", nil, http.MethodHead, false},
		{"PUT", nil, http.MethodPut, false},
		{"DELETE", nil, http.MethodDelete, false},
		{"OPTIONS", nil, http.MethodOptions, false},
		{"post, which a handler may take for POST", nil, "post", true},
		{"get", nil, "get", false},
		{"POST", nil, http.MethodPost, true},
		{"PATCH", nil, http.MethodPatch, true},
		{"DELETE when asked for", []string{http.MethodDelete}, http.MethodDelete, true},
		{"DELETE when delete is", []string{"delete"}, http.MethodDelete, true},
		{"POST when it is not", []string{http.MethodDelete}, http.MethodPost, false},
		{"POST when none is", []string{}, http.MethodPost, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got http.ResponseWriter
			r := newRig(new(idempotency.Memory), func(w http.ResponseWriter, _ *http.Request) { got = w },
				func(h *idempotency.Handler) { h.Methods = row.methods })
			req := request(t)
			req.Method = row.method
			w := serve(r, req)
			if row.guarded {
				assert.NotSame(t, w, got)
			} else {
				assert.Same(t, w, got, "the very writer: streaming and hijacking stay possible")
				assert.Empty(t, r.dispositions())
			}
		})
	}
}

func TestHandler_operations(t *testing.T) {
	long, seen := "/"+strings.Repeat("x", 5000), map[string]bool{}
	for _, row := range []struct {
		name, pattern, path string
		operation           func(*http.Request) string
		want                string // "": a short one
	}{
		{name: "pattern with method", pattern: "POST /charges/{id}", path: "/charges/7", want: "POST /charges/{id}"},
		{name: "pattern without", pattern: "/charges/{id}", path: "/charges/7", want: "POST /charges/{id}"},
		{name: "pattern with a host", pattern: "POST example.com/charges", path: "/charges", want: "POST example.com/charges"},
		{name: "path", path: "/charges/7", want: "POST /charges/7"},
		{name: "path with escapes", path: "/a%2Fb%FF", want: "POST /a%2Fb%FF"},
		{name: "a very long path", path: long},
		{name: "a path that is just too long", path: long[:512-32+1]},
		{name: "one's own", path: "/", operation: func(*http.Request) string { return "charge" }, want: "charge"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(new(idempotency.Memory), answer(http.StatusCreated, ""),
				func(h *idempotency.Handler) { h.Operation = row.operation })
			var h http.Handler = r
			if row.pattern != "" {
				mux := http.NewServeMux()
				mux.Handle(row.pattern, r)
				h = mux
			}
			for range 2 {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, row.path, http.NoBody)
				req.Header.Set("Idempotency-Key", "k")
				assert.Equal(t, http.StatusCreated, serve(h, req).Code)
			}
			assert.EqualValues(t, 1, r.executions.Load())
			got := r.last(t).Operation
			if row.want == "" {
				assert.Less(t, len(got), 100)
				assert.False(t, seen[got], "two long paths are two operations")
				seen[got] = true
			} else {
				assert.Equal(t, row.want, got)
			}
		})
	}
}

// A method in lower case is the same operation, and another request. RFC 9110, section 9.1,
// distinguishes post from POST, but the operation must not take effect twice.
func TestHandler_methodInOtherLetters(t *testing.T) {
	r := newRig(new(idempotency.Memory), answer(http.StatusCreated, ""))
	for _, pattern := range []string{"", "/charges"} {
		var h http.Handler = r
		if pattern != "" {
			mux := http.NewServeMux()
			mux.Handle(pattern, r)
			h = mux
		}
		r.executions.Store(0)
		send := func(method string) *httptest.ResponseRecorder {
			req := keyed(t, "key of "+pattern)
			req.Method = method
			return serve(h, req)
		}
		first := send("post")
		require.Equal(t, http.StatusCreated, first.Code)
		require.Equal(t, theID.Operation, r.last(t).Operation)
		requireReplay(t, first, send("post"))
		requireProblem(t, send("POST"), http.StatusUnprocessableEntity, "mismatch")
		require.EqualValues(t, 1, r.executions.Load())
	}
	req := request(t)
	req.Method = "post"
	req.Header.Del("Idempotency-Key")
	requireProblem(t, serve(r, req), http.StatusBadRequest, "key-missing")
}

// No byte of a success is sent before the record is durable.
func TestHandler_holdsTheResponseBackUntilItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		durable := make(chan struct{})
		store := faulty(new(idempotency.Memory), rule{verb: onComplete, from: 1, fault: fault{hold: durable}})
		r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Write(make([]byte, 100_000)) // more than any buffer, and than is stored
			}
			assert.NoError(t, http.NewResponseController(w).Flush())
		})
		s := memhttp.NewServer(t, r)
		conn, err := s.Transport().DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://")+":80")
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, errOf(io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")))

		require.NoError(t, conn.SetReadDeadline(time.Now().Add(4*time.Second)))
		n, err := conn.Read(make([]byte, 1))
		assert.Zero(t, n, "a byte has left before Complete has returned")
		require.ErrorAs(t, err, new(net.Error))
		assert.Equal(t, 1, store.count(onComplete))

		close(durable)
		require.NoError(t, conn.SetReadDeadline(time.Time{}))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Len(t, body, 10_000_000)
	})
}

// The default options: non-transactional, and the work must not be repeated.
func TestHandler_classifiesStatuses(t *testing.T) {
	released := map[int]bool{401: true, 408: true, 425: true, 429: true, 503: true}
	for code := 200; code <= 599; code++ {
		store := new(idempotency.Memory)
		r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Handler", "this")
			w.WriteHeader(code)
		})
		first := r.post(t)
		require.Equal(t, code, first.Code)
		require.Equal(t, "this", first.Header().Get("Handler"))
		status := mustLoad(t, store, theID).Status
		switch {
		case released[code]:
			require.Equal(t, idempotency.FailedRetryable, status, code)
			require.Empty(t, r.post(t).Header().Get("Idempotency-Replayed"))
			require.EqualValues(t, 2, r.executions.Load(), code)
			require.Equal(t, []idempotency.Disposition{idempotency.Released, idempotency.Released}, r.dispositions())
			continue
		case code < 400:
			require.Equal(t, idempotency.Completed, status, code)
			requireReplay(t, first, r.post(t))
		case code < 500 && code != 499:
			require.Equal(t, idempotency.FailedFinal, status, code)
			requireReplay(t, first, r.post(t))
		default:
			require.Equal(t, idempotency.Unknown, status, code)
			requireUnknown(t, r)
		}
		require.EqualValues(t, 1, r.executions.Load(), code)
	}
}

// requireUnknown sends the request again. The response must be the problem "unknown".
func requireUnknown(t *testing.T, r *rig) {
	t.Helper()
	w := r.post(t)
	requireProblem(t, w, http.StatusConflict, "unknown")
	assert.Equal(t, "false", w.Header().Get("X-Should-Retry"))
	assert.Equal(t, idempotency.OutcomeUnknown, r.last(t).Disposition)
}

// No response is not a success: frameworks render a handler's error after the middleware
// has returned.
func TestHandler_nothingWrittenIsNoSuccess(t *testing.T) {
	for _, silence := range []struct {
		name string
		work func(http.ResponseWriter)
	}{
		{"nothing at all", func(http.ResponseWriter) {}},
		{"header fields alone", func(w http.ResponseWriter) {
			w.Header().Set("Handler", "this")
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", "7")
		}},
		{"a 103 alone", func(w http.ResponseWriter) {
			w.Header().Set("Handler", "this")
			w.WriteHeader(http.StatusEarlyHints)
		}},
		{"an empty reader", func(w http.ResponseWriter) {
			assert.NoError(t, errOf(io.Copy(w, strings.NewReader(""))))
		}},
	} {
		for _, row := range []struct {
			name   string
			change func(*idempotency.Handler)
			record idempotency.Status // 0: none
		}{
			{"non-transactional", nil, idempotency.Unknown},
			{"non-transactional, unknown", takeover(idempotency.MarkUnknown), idempotency.Unknown},
			{"non-transactional, again", takeover(idempotency.Reexecute), idempotency.FailedRetryable},
			{"non-transactional, resume", takeover(idempotency.Resume), idempotency.FailedRetryable},
			{"transactional", transactional, 0},
			{"transactional, unknown", func(h *idempotency.Handler) { h.Transactional, h.Takeover = true, idempotency.MarkUnknown }, 0},
			{"whatever one's own policy says", func(h *idempotency.Handler) {
				h.Classify = func(int) idempotency.Status {
					t.Error("it is asked of a status that the handler has not given")
					return idempotency.Completed
				}
			}, idempotency.Unknown},
		} {
			t.Run(silence.name+", "+row.name, func(t *testing.T) {
				store := newLedger()
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					if tx, err := idempotency.Tx[*ledgerTx](req.Context()); err == nil {
						assert.NoError(t, tx.Add("acct", 100))
						idempotency.CommitOnFailure(req.Context())
					}
					silence.work(w)
				}, row.change)
				rec := &finalRecorder{ResponseRecorder: httptest.NewRecorder()}
				r.ServeHTTP(rec, request(t))
				w := rec.ResponseRecorder
				requireProblem(t, w, http.StatusInternalServerError, "no-response")
				assert.Equal(t, "false", w.Header().Get("X-Should-Retry"))
				assert.Empty(t, w.Header().Get("Content-Length"), "a field of the handler's")
				requireRecord(t, store, theID, row.record)
				assert.Zero(t, store.sum("acct"))
				assert.Zero(t, store.transactions())
				event := r.last(t)
				assert.Equal(t, http.StatusInternalServerError, event.Code)
				require.ErrorContains(t, event.Err, "neither header nor body")
				if row.record == idempotency.Unknown {
					assert.Equal(t, idempotency.OutcomeUnknown, event.Disposition)
					require.Len(t, r.unknowns(), 1)
					require.ErrorContains(t, r.unknowns()[0].Err, "neither header nor body")
					requireUnknown(t, r)
					assert.EqualValues(t, 1, r.executions.Load())
					return
				}
				assert.Equal(t, idempotency.Released, event.Disposition)
				assert.Empty(t, r.unknowns())
				r.post(t)
				assert.EqualValues(t, 2, r.executions.Load(), "the key is free")
			})
		}
	}
}

// finalRecorder is a recorder that continues after a 1xx, like net/http.
type finalRecorder struct{ *httptest.ResponseRecorder }

func (w *finalRecorder) WriteHeader(code int) {
	if code >= 200 {
		w.ResponseRecorder.WriteHeader(code)
	}
}

// The handler gives no response, and the store fails.
func TestHandler_nothingWrittenAndTheStoreFails(t *testing.T) {
	down := fault{before: errDown}
	for _, row := range []struct {
		name     string
		rule     rule
		change   func(*idempotency.Handler)
		status   int
		kind     string
		d        idempotency.Disposition
		unknowns int
	}{
		{"non-transactional", rule{onComplete, 1, always, down}, nil, 500, "no-response", idempotency.StoreFailed, 1},
		{"non-transactional, again", rule{onRelease, 1, always, down}, takeover(idempotency.Reexecute), 500, "no-response", idempotency.StoreFailed, 0},
		{"transactional", rule{onRollback, 1, 0, down}, transactional, 500, "no-response", idempotency.StoreFailed, 0},
		{"lease lost", rule{onComplete, 1, 0, fault{before: idempotency.ErrLeaseLost}}, nil, 503, "lease-lost", idempotency.LeaseLost, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r := newRig(faultyTx(newLedger(), row.rule), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Handler", "this")
			}, row.change)
			requireProblem(t, r.post(t), row.status, row.kind)
			assert.Equal(t, []idempotency.Disposition{row.d}, r.dispositions())
			assert.Len(t, r.unknowns(), row.unknowns)
		})
	}
}

// A handler that writes without end does not fill the disk: its writes fail, the client's
// connection is closed, and the record has the result.
func TestHandler_maxSpool(t *testing.T) {
	repeats := takeover(idempotency.Reexecute)
	for _, row := range []struct {
		name   string
		limit  int64
		size   int
		code   int
		change func(*idempotency.Handler)
		status idempotency.Status
		whole  bool
	}{
		{"far above, with its Content-Length", 5000, 3 << 20, 201, nil, idempotency.CompletedUnreplayable, false},
		{"at the limit", 5000, 5000, 201, nil, idempotency.CompletedUnreplayable, true},
		{"one byte above", 5000, 5001, 201, nil, idempotency.CompletedUnreplayable, false},
		{"far above", 5000, 3 << 20, 201, nil, idempotency.CompletedUnreplayable, false},
		{"a refusal", 5000, 5001, 404, nil, idempotency.CompletedUnreplayable, false},
		{"nothing was done", 5000, 5001, 503, nil, idempotency.FailedRetryable, false},
		{"unknown", 5000, 5001, 500, nil, idempotency.Unknown, false},
		{"a failure that may be repeated", 5000, 5001, 500, repeats, idempotency.FailedRetryable, false},
		{"with a reference", 5000, 5001, 201, rebuild(idempotency.Result{}, nil), idempotency.Completed, false},
		{"no limit", -1, 3 << 20, 201, nil, idempotency.CompletedUnreplayable, true},
		{"the default", 0, 3 << 20, 201, nil, idempotency.CompletedUnreplayable, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			t.Setenv("TMP", dir)
			store := new(idempotency.Memory)
			var failure error
			r := newRig(store, func(w http.ResponseWriter, r *http.Request) {
				failure = idempotency.SetReference(r.Context(), theReference)
				if strings.Contains(row.name, "Content-Length") {
					w.Header().Set("Content-Length", strconv.Itoa(row.size))
				}
				w.WriteHeader(row.code)
				for left := row.size; left > 0 && failure == nil; left -= min(left, 999) {
					_, failure = io.WriteString(w, strings.Repeat("x", min(left, 999)))
				}
			}, row.change)
			r.MaxResponse, r.MaxSpool = 1000, row.limit
			w, panicked := servePanicking(r, request(t))
			assert.Equal(t, row.status, mustLoad(t, store, theID).Status)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, left)
			if row.whole {
				require.NoError(t, failure)
				require.Equal(t, row.code, w.Code)
				require.Equal(t, row.size, w.Body.Len())
				return
			}
			require.ErrorContains(t, failure, "larger than MaxSpool (5000 bytes)")
			require.ErrorIs(t, r.last(t).Err, failure)
			assert.Equal(t, http.ErrAbortHandler, panicked)
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, "for middleware that stops the panic")
			assert.Zero(t, w.Body.Len())
			assert.Empty(t, w.Header())
		})
	}
}

type brokenReader struct{ after io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.after.Read(p)
	if err == io.EOF {
		err = errors.New("test: connection reset")
	}
	return n, err
}

func TestHandler_panics(t *testing.T) {
	boom := errors.New("test: boom")
	fails := func() { panic(boom) }
	for _, row := range []struct {
		name   string
		work   func()
		change func(*idempotency.Handler)
		tx     bool               // the work writes
		want   any                // what the server recovers
		status idempotency.Status // 0: no record
	}{
		{name: "panic, non-transactional", work: fails, want: boom, status: idempotency.Unknown},
		{name: "ErrAbortHandler, non-transactional", work: func() { panic(http.ErrAbortHandler) }, want: http.ErrAbortHandler, status: idempotency.Unknown},
		{name: "panic(nil), non-transactional", work: func() { panic(nil) }, want: new(runtime.PanicNilError), status: idempotency.Unknown}, //nolint:govet // on purpose
		{name: "Goexit, non-transactional", work: runtime.Goexit, status: idempotency.Unknown},
		{name: "panic, to be executed again", work: fails, change: takeover(idempotency.Reexecute), want: boom, status: idempotency.FailedRetryable},
		{name: "panic, transactional", work: fails, change: transactional, tx: true, want: boom},
		{name: "Goexit, transactional", work: runtime.Goexit, change: transactional, tx: true},
		{name: "panic, transactional, before any write", work: fails, change: transactional, want: boom},
		{name: "panic, transactional, which never leaves a doubt", work: fails, tx: true, want: boom, change: func(h *idempotency.Handler) {
			h.Transactional, h.Takeover = true, idempotency.MarkUnknown
		}},
		{name: "panic in Settle, transactional", work: func() {}, tx: true, want: boom, change: func(h *idempotency.Handler) {
			h.Transactional, h.Classify = true, func(int) idempotency.Status { panic(boom) }
		}},
		{name: "panic in Settle", work: func() {}, want: boom, status: idempotency.Unknown, change: func(h *idempotency.Handler) {
			h.Classify = func(int) idempotency.Status { panic(boom) }
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := newLedger()
			var after func() error
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				after = func() error { return txOf[*ledgerTx](req.Context()) }
				if row.tx {
					tx, err := idempotency.Tx[*ledgerTx](req.Context())
					if assert.NoError(t, err) {
						assert.NoError(t, tx.Add("acct", 100))
					}
				}
				io.WriteString(w, "half a resp")
				row.work()
			}, row.change)
			w, panicked := servePanicking(r, request(t))
			assert.IsType(t, row.want, panicked)
			if err, ok := row.want.(error); ok && !errors.As(err, new(*runtime.PanicNilError)) {
				assert.Equal(t, row.want, panicked, "the panic goes on as it was")
			}
			assert.Empty(t, w.Body.String(), "nothing has left")
			require.ErrorIs(t, after(), idempotency.ErrNoTransaction)
			assert.Zero(t, store.sum("acct"))
			assert.Zero(t, store.transactions())
			requireRecord(t, store, theID, row.status)
			assert.Equal(t, []idempotency.Disposition{idempotency.Panicked}, r.dispositions())
			if row.status == idempotency.Unknown {
				require.Len(t, r.unknowns(), 1)
				assert.NotEmpty(t, r.unknowns()[0].Owner)
				requireUnknown(t, r)
				assert.EqualValues(t, 1, r.executions.Load())
			} else {
				assert.Empty(t, r.unknowns())
				servePanicking(r, request(t))
				assert.EqualValues(t, 2, r.executions.Load())
			}
		})
	}
}

// The server removes only the files of its own request's form, and none if the Handler ends the connection by a panic.
func TestHandler_leavesNoFilesOfForms(t *testing.T) {
	for _, row := range []struct {
		name   string
		spool  int64
		size   int
		leaves bool // the client, before the response is written
	}{
		{"the response is sent", 0, 5000, false},
		{"the client has left", 0, 10 << 20, true},
		{"the response cannot be kept", 2000, 5000, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			files := func() []string {
				left, err := filepath.Glob(filepath.Join(dir, "multipart-*"))
				assert.NoError(t, err)
				return left
			}
			connected, left := make(chan struct{}), make(chan struct{})
			r := newRig(new(idempotency.Memory), func(w http.ResponseWriter, req *http.Request) {
				assert.NoError(t, req.ParseMultipartForm(1))
				assert.Len(t, files(), 1, "while it is needed")
				close(connected)
				if row.leaves {
					<-left
				}
				_, _ = w.Write(make([]byte, row.size))
			})
			r.MaxResponse, r.MaxSpool = 1000, row.spool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				context.AfterFunc(req.Context(), func() { close(left) })
				r.ServeHTTP(w, req)
			}))
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("file", "a.txt")
			require.NoError(t, err)
			require.NoError(t, errOf(part.Write(make([]byte, 100<<10))))
			require.NoError(t, form.Close())
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, &body)
			require.NoError(t, err)
			req.Header.Set("Content-Type", form.FormDataContentType())
			req.Header.Set("Idempotency-Key", theKey)
			if row.leaves {
				go func() {
					<-connected
					leave()
				}()
			}
			resp, err := server.Client().Do(req)
			require.Equal(t, row.name != "the response is sent", err != nil, "%v", err)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			server.Close()
			assert.Empty(t, files())
		})
	}
}

func TestHandler_misconfigured(t *testing.T) {
	next := answer(http.StatusOK, "")
	const operationIsNoName = "an operation that no store accepts" // which is found with the first request
	for _, row := range []struct {
		name    string
		handler *idempotency.Handler
		change  func(*idempotency.Handler)
	}{
		{name: "no store", handler: idempotency.NewHandler(nil, tenant, next)},
		{name: "no scope", handler: idempotency.NewHandler(new(idempotency.Memory), nil, next)},
		{name: "no next", handler: idempotency.NewHandler(new(idempotency.Memory), tenant, nil)},
		{name: "transactional, without transactions", change: transactional},
		{name: "a negative lease", change: lease(-1)},
		{name: "a lease that is too short", change: lease(time.Millisecond)},
		{name: "a lease of centuries", change: lease(1 << 62)},
		{name: "a negative TTL", change: func(h *idempotency.Handler) { h.TTL = -1 }},
		{name: "no such takeover", change: takeover(77)},
		{name: "a Wait of 5 ns", change: func(h *idempotency.Handler) { h.DuplicateWait = 5 }},
		{name: "a Header that no client can send", change: func(h *idempotency.Handler) { h.Header = "a b" }},
		{name: "a Header that means something else", change: func(h *idempotency.Handler) { h.Header = "content-type" }},
		{name: "Classify and ClassifyResponse", change: func(h *idempotency.Handler) {
			h.Classify, h.ClassifyResponse = idempotency.ClassifyStatus, idempotency.ClassifyForwarded
		}},
		{name: "a MaxSpool that holds less than is stored", change: func(h *idempotency.Handler) { h.MaxSpool = 1<<20 - 1 }},
		{name: "a blank in a method", change: func(h *idempotency.Handler) { h.Methods = []string{"POST "} }},
		{name: "two methods in one", change: func(h *idempotency.Handler) { h.Methods = []string{"POST,PATCH"} }},
		{name: operationIsNoName, change: func(h *idempotency.Handler) {
			h.Operation = func(*http.Request) string { return "a\x00b" }
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory))
			ran, h := false, row.handler
			if h == nil {
				h = idempotency.NewHandler(store, tenant, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
				row.change(h)
			}
			var remembered hooks
			h.Trace = remembered.trace()
			for range 2 {
				w := serve(h, request(t))
				p := requireProblem(t, w, http.StatusInternalServerError, "misconfigured")
				assert.Equal(t, "false", w.Header().Get("X-Should-Retry"))
				assert.Empty(t, p.Detail, "the client must not see the configuration")
				require.ErrorIs(t, remembered.last(t).Err, idempotency.ErrInvalid)
				assert.Equal(t, idempotency.Misconfigured, remembered.last(t).Disposition)
			}
			assert.False(t, ran)
			assert.LessOrEqual(t, store.count(onReserve), 2, "an invalid claim is not repeated")
			if row.name != operationIsNoName {
				require.ErrorIs(t, h.Validate(), idempotency.ErrInvalid)
			}
		})
	}
}

// TestHandler_validateReportsAllErrors: Validate reports each error, and no other.
func TestHandler_validateReportsAllErrors(t *testing.T) {
	h := idempotency.NewHandler(nil, tenant, nil)
	h.Timeout, h.Header, h.MaxBody, h.MaxResponse, h.Methods = 15, "a b", -1, -2, []string{""}
	err := h.Validate()
	for _, want := range []string{"Store is nil", "scope or next is nil", "Timeout is 15ns", "Header is not", "MaxBody is -1", "MaxResponse is -2", "Methods"} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 7, "%v", err)
}

// The problem names the smaller limit of an outer handler.
func TestHandler_namesTheSmallerLimit(t *testing.T) {
	r := newRig(new(idempotency.Memory), answer(http.StatusCreated, ""))
	outside := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Body = http.MaxBytesReader(w, req.Body, 3)
		r.ServeHTTP(w, req)
	})
	w := serve(outside, request(t))
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.Contains(t, w.Body.String(), "The limit is 3 bytes.")
}

// TestHandler_storesCompleteResponsesOnly: a response that is not complete is not
// stored, and its outcome is unknown.
func TestHandler_storesCompleteResponsesOnly(t *testing.T) {
	wrote := func(length, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, body)
		}
	}
	for _, row := range []struct {
		name    string
		method  string
		handler http.HandlerFunc
		stored  bool
	}{
		{"as long as its Content-Length: stored", http.MethodPost, wrote("4", "made"), true},
		{"more written than its Content-Length, in two writes: unknown", http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
			wrote("4", "made")(w, r)
			io.WriteString(w, "more")
		}, false},
		{"a byte shorter than its Content-Length: unknown", http.MethodPost, wrote("5", "made"), false},
		{"a Content-Length and no body: unknown", http.MethodPost, wrote("5", ""), false},
		{"a failure shorter than its Content-Length: unknown", http.MethodPost, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, "gone")
		}, false},
		{"one write longer than its Content-Length, which net/http rejects: unknown", http.MethodPost, wrote("3", "made"), false},
		{"HEAD with a Content-Length and no body: stored", http.MethodHead, wrote("4", ""), true},
		{"304 with a Content-Length: stored", http.MethodPost, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(http.StatusNotModified)
		}, true},
		{"101: unknown", http.MethodPost, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, false},
		{"flushed before it was complete: unknown", http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
			wrote("5", "made")(w, r)
			assert.NoError(t, http.NewResponseController(w).Flush())
		}, false},
	} {
		for _, mode := range []struct {
			name          string
			store         idempotency.Store
			transactional bool
			status        idempotency.Status
			disposition   idempotency.Disposition
		}{
			{"", new(idempotency.Memory), false, idempotency.Unknown, idempotency.OutcomeUnknown},
			{", transactional: rolled back", newLedger(), true, 0, idempotency.Released},
		} {
			t.Run(row.name+mode.name, func(t *testing.T) {
				r := newRig(mode.store, row.handler, func(h *idempotency.Handler) {
					h.Transactional, h.Methods = mode.transactional, []string{row.method}
					h.Operation = func(*http.Request) string { return theID.Operation }
				})
				send := func() *httptest.ResponseRecorder {
					req := request(t)
					req.Method = row.method
					return serve(r, req)
				}
				first := send()
				record, err := mode.store.Load(t.Context(), theID)
				if row.stored {
					require.NoError(t, err)
					require.True(t, record.Status.Finished(), "%v", record.Status)
					require.Equal(t, first.Code, send().Code)
					assert.EqualValues(t, 1, r.executions.Load())
					return
				}
				if mode.status == 0 {
					require.ErrorIs(t, err, idempotency.ErrNotFound)
				} else {
					require.NoError(t, err)
					require.Equal(t, mode.status, record.Status)
					require.Len(t, r.unknowns(), 1)
				}
				requireProblem(t, first, http.StatusInternalServerError, "no-response")
				event := r.last(t)
				assert.Equal(t, mode.disposition, event.Disposition)
				require.Error(t, event.Err)
			})
		}
	}
}
