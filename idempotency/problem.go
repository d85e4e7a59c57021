package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// problemBase is the start of the type of each problem (application/problem+json, RFC 9457), unless
// Handler.ProblemBase replaces it. The kind follows. The URLs are stable.
const problemBase = "https://github.com/resilienthttp/resilienthttp/blob/main/docs/server-idempotency.md#"

// problem is a rejection. Kinds, statuses and meanings are a public contract, listed
// in docs/server-idempotency.md.
type problem struct {
	kind   string
	title  string
	status int

	// final tells clients not to repeat the request, by X-Should-Retry: false. The
	// resilienthttp Transport would repeat a 409 or a 5xx otherwise.
	final bool

	// again is the Retry-After. Zero means none. A 503 with it means that no work was done, or that it was rolled back.
	again time.Duration

	// unexecuted means that it is certain that nothing was executed of the request. It is not set if the key's
	// operation was or is executed, also for another request: for a client, a request with the same key is the same operation.
	unexecuted bool
}

// The problems.
//
//nolint:gochecknoglobals // never written to
var (
	keyMissing     = problem{kind: "key-missing", title: "An idempotency key is required", status: http.StatusBadRequest, unexecuted: true}
	keyInvalid     = problem{kind: "key-invalid", title: "The idempotency key is malformed", status: http.StatusBadRequest, unexecuted: true}
	scopeless      = problem{kind: "scope", title: "The request does not belong to a known account", status: http.StatusForbidden, unexecuted: true}
	bodyIncomplete = problem{kind: "body-incomplete", title: "The request's body is incomplete", status: http.StatusBadRequest, unexecuted: true}
	bodyTooLarge   = problem{kind: "body-too-large", title: "The request's body is too large", status: http.StatusRequestEntityTooLarge, unexecuted: true}
	inProgress     = problem{kind: "in-progress", title: "A request with this key is being executed", status: http.StatusConflict, again: time.Second}
	mismatched     = problem{kind: "mismatch", title: "The key was used for another request", status: http.StatusUnprocessableEntity, final: true}
	unreplayable   = problem{kind: "unreplayable", title: "The request was executed before; its response is not stored", status: http.StatusConflict, final: true}
	loadFailed     = problem{kind: "load", title: "The request was executed before; its response is not available now", status: http.StatusServiceUnavailable}
	outcomeUnknown = problem{kind: "unknown", title: "It is not known whether the request took effect", status: http.StatusConflict, final: true}
	noResponse     = problem{kind: "no-response", title: "The handler gave no complete response", status: http.StatusInternalServerError, final: true}
	uncommittable  = problem{kind: "uncommittable", title: "The handler's writes cannot be committed; nothing was done", status: http.StatusInternalServerError, final: true}
	storeFailed    = problem{kind: "store", title: "The idempotency record is not available; repeat the request with the same key", status: http.StatusServiceUnavailable, again: time.Second}
	leaseLost      = problem{kind: "lease-lost", title: "Another execution took over; repeat the request with the same key for its result", status: http.StatusServiceUnavailable}
	misconfigured  = problem{kind: "misconfigured", title: "The server is misconfigured", status: http.StatusInternalServerError, final: true, unexecuted: true}
)

// write answers with the problem. base is the start of its type. detail may be empty.
func (p problem) write(w http.ResponseWriter, base, detail string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.final {
		h.Set("X-Should-Retry", "false")
	}
	if p.unexecuted {
		h.Set(field.ExecutedHeader, field.NotExecuted)
	}
	if p.again > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.again/time.Second)))
	}
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(struct { //nolint:errchkjson // strings and a number; the error is that of a client that has gone
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{base + p.kind, p.title, p.status, detail})
}
