package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const theReference = "payment/123"

// refers is a handler with a reference to its response, which is too large to be stored.
func refers(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := idempotency.SetReference(r.Context(), theReference); err != nil {
			panic(err)
		}
		for n := 0; n < len(header); n += 2 {
			w.Header().Set(header[n], header[n+1])
		}
		w.WriteHeader(code)
		w.Write([]byte(strings.Repeat("x", 100)))
	}
}

// rebuild is a change of a rig: LoadResult returns responses above 10 bytes.
func rebuild(result idempotency.Result, err error) func(*idempotency.Handler) {
	return func(h *idempotency.Handler) {
		h.MaxResponse = 10
		h.LoadResult = func(_ context.Context, id idempotency.ID, reference string) (idempotency.Result, error) {
			if id != theID || reference != theReference {
				return idempotency.Result{}, errors.New("test: another record's")
			}
			return result, err
		}
	}
}

// A report is too long to be stored with its key. LoadResult reads its row.
func ExampleSetReference() {
	reports := map[string]string{}
	render := func(w io.Writer, id string) { _, _ = fmt.Fprintf(w, "report %s: %s", id, reports[id]) }

	h := idempotency.NewHandler(new(idempotency.Memory),
		func(*http.Request) (string, error) { return "", nil },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reports["7"] = "all is well"
			if err := idempotency.SetReference(r.Context(), "7"); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
			render(w, "7")
		}))
	h.LoadResult = func(_ context.Context, _ idempotency.ID, reference string) (idempotency.Result, error) {
		var body bytes.Buffer
		render(&body, reference)
		return idempotency.Result{Body: body.Bytes()}, nil
	}

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/reports", http.NoBody)
		r.Header.Set("Idempotency-Key", "report of 20 November")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
		reports["7"] += ", still"
	}
	// Output:
	// 201 report 7: all is well
	// 201 report 7: all is well, still
}

func TestSetReference_loadResult(t *testing.T) {
	whole := []byte("the payment, as it is now")
	first := []string{
		"Location", "/payments/123", "Content-Type", "application/json", "Content-Length", "100", "ETag", `"1"`,
		"Content-MD5", "x", "Digest", "x", "Content-Digest", "x", "Repr-Digest", "x", "Last-Modified", "x",
		"Content-Range", "x", "Trailer", "X-Sum", http.TrailerPrefix + "X-Other", "1",
	}
	for _, row := range []struct {
		name    string
		rebuilt idempotency.Result
		code    int
		header  http.Header
	}{
		{
			"the body alone", idempotency.Result{Body: whole}, http.StatusCreated,
			http.Header{"Location": {"/payments/123"}, "Content-Type": {"application/json"}},
		},
		{
			"another status", idempotency.Result{Code: http.StatusGone, Body: whole}, http.StatusGone,
			http.Header{"Location": {"/payments/123"}, "Content-Type": {"application/json"}},
		},
		{
			"a header of its own", idempotency.Result{Header: http.Header{"Etag": {`"2"`}}, Body: whole}, http.StatusCreated,
			http.Header{"Etag": {`"2"`}},
		},
		{"a header without fields", idempotency.Result{Header: http.Header{}, Body: whole}, http.StatusCreated, http.Header{}},
		{"nothing", idempotency.Result{}, http.StatusCreated, http.Header{"Location": {"/payments/123"}, "Content-Type": {"application/json"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := new(idempotency.Memory)
			r := newRig(store, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["content-digest"] = []string{"in lower case"}
				refers(http.StatusCreated, first...)(w, r)
			}, rebuild(row.rebuilt, nil))
			w := r.post(t)
			assert.Equal(t, http.StatusCreated, w.Code)
			assert.Equal(t, 100, w.Body.Len(), "the first client gets what the handler wrote")

			record := mustLoad(t, store, theID)
			assert.Equal(t, idempotency.Completed, record.Status)
			assert.Equal(t, idempotency.Result{
				Code: http.StatusCreated, Reference: theReference,
				Header: http.Header{"Location": {"/payments/123"}, "Content-Type": {"application/json"}},
			}, record.Result)

			again := r.post(t)
			assert.Equal(t, row.code, again.Code)
			assert.Equal(t, string(row.rebuilt.Body), again.Body.String())
			assert.Equal(t, "true", again.Header().Get("Idempotency-Replayed"))
			again.Header().Del("Idempotency-Replayed")
			assert.Equal(t, row.header, again.Header())
			assert.EqualValues(t, 1, r.executions.Load())
			assert.Equal(t, []idempotency.Disposition{idempotency.Executed, idempotency.Replayed}, r.dispositions())
			assert.Equal(t, row.code, r.last(t).Code)
		})
	}
}

// If LoadResult fails, the client gets a 503 and may retry.
func TestLoadResult_fails(t *testing.T) {
	for _, row := range []struct {
		name   string
		result idempotency.Result
		err    error
		text   string
	}{
		{"an error", idempotency.Result{}, errDown, errDown.Error()},
		{"a status that is none", idempotency.Result{Code: 7}, nil, "LoadResult returned the status 7"},
		{"one that ends nothing", idempotency.Result{Code: http.StatusEarlyHints}, nil, "status 103"},
		{"one that is too long", idempotency.Result{Code: 1000}, nil, "status 1000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(new(idempotency.Memory), refers(http.StatusCreated), rebuild(row.result, row.err))
			r.post(t)
			w := r.post(t)
			requireProblem(t, w, http.StatusServiceUnavailable, "load")
			assert.Empty(t, w.Header().Get("Retry-After"), "the work is done")
			assert.NotContains(t, w.Body.String(), row.text, "the client must not see internal errors")
			event := r.last(t)
			assert.Equal(t, idempotency.StoreFailed, event.Disposition)
			require.ErrorContains(t, event.Err, row.text)
			assert.EqualValues(t, 1, r.executions.Load())
		})
	}
}

// A program without LoadResult, such as an earlier version, does not replay a record with a
// reference as an empty response.
func TestLoadResult_isMissing(t *testing.T) {
	store := new(idempotency.Memory)
	newRig(store, refers(http.StatusCreated), rebuild(idempotency.Result{}, nil)).post(t)
	r := newRig(store, refers(http.StatusCreated))
	requireProblem(t, r.post(t), http.StatusServiceUnavailable, "load")
	assert.Equal(t, idempotency.StoreFailed, r.last(t).Disposition)
	require.ErrorContains(t, r.last(t).Err, "LoadResult is nil")
}

func TestSetReference_invalid(t *testing.T) {
	for name, reference := range map[string]string{
		"too long": strings.Repeat("x", 513), "a NUL": "a\x00b", "not UTF-8": "\xff",
	} {
		require.ErrorIs(t, idempotency.SetReference(t.Context(), reference), idempotency.ErrInvalid, name)
	}
	require.NoError(t, idempotency.SetReference(t.Context(), strings.Repeat("x", 512)), "outside of an execution")
}

// TestSetReference_inWork: the reference becomes Result.Reference, unless that is set.
func TestSetReference_inWork(t *testing.T) {
	for own, want := range map[string]string{"": theReference, "mine": "mine"} {
		store := new(idempotency.Memory)
		for range 2 {
			result, err := idempotency.Do(t.Context(), store, "", "import", "1", "",
				func(ctx context.Context) (idempotency.Result, error) {
					return idempotency.Result{Body: []byte("x"), Reference: own}, idempotency.SetReference(ctx, theReference)
				})
			require.NoError(t, err)
			require.Equal(t, idempotency.Result{Body: []byte("x"), Reference: want}, result)
		}
	}
}
