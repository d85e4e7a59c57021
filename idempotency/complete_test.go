package idempotency_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

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
			status        driver.Status
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
					require.ErrorIs(t, err, driver.ErrNotFound)
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
