package idempotency

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Handler makes an http.Handler honour idempotency keys: each request with the same key
// gets the response of the first one, and the operation takes effect once. What that
// means after a crash is in docs/server-idempotency.md.
//
// NewHandler makes one for each route. The fields are read at the first request and
// must not change after it. A Handler is safe for concurrent use.
//
// The response of the inner handler is held back until the record is durable, so
// flushing does nothing and hijacking is not supported. The inner handler's context
// ends with the lease and the Timeout, but not when the client leaves. The request's
// deadline ends transactional work only; no work begins after it. A handler that returns without a response gets a 500: call WriteHeader(200).
//
// A response of the Handler itself has Request-Executed: ?0 if nothing was executed of the request. See docs/server-idempotency.md.
type Handler struct {
	Options

	// Header is the name of the header field with the key. "" means Idempotency-Key.
	Header string

	// Methods are the methods that need a key, compared case-insensitively. Other requests pass.
	// nil means POST and PATCH.
	Methods []string

	// Optional lets requests without a key pass, without protection. By default they are rejected
	// with 400.
	Optional bool

	// Operation returns the name of the requested operation. The same key with another name is
	// another operation, so a name must not change while keys are in use: prefer a constant for
	// each route. nil means the method and the pattern that http.ServeMux matched, or the path.
	Operation func(*http.Request) string

	// Fingerprint tells two requests with the same key apart. It must return the same in all
	// versions of a program. nil means RequestFingerprint. For clients that write the same JSON in
	// another way, it calls RequestFingerprint with a body in one form.
	Fingerprint func(r *http.Request, body []byte) Fingerprint

	// MaxBody is the maximum size of a request body in bytes, which is held in memory. A larger
	// one is rejected with 413. Zero means 1 MiB.
	MaxBody int64

	// MaxResponse is the maximum size of a stored response body in bytes. A larger one is sent to
	// the first client, and duplicates get a 409, unless the handler called SetReference. Zero
	// means 1 MiB.
	MaxResponse int64

	// LoadResult returns the response of an execution that called SetReference. It is called for
	// each duplicate, with the duplicate's context, and must be safe for concurrent use. Code 0
	// and a nil Header mean those of the first response. Its error is answered with 503. nil means
	// that responses are stored, and references are not used. Keep it set until the TTL of the records
	// with references is over.
	LoadResult func(ctx context.Context, id ID, reference string) (Result, error)

	// MaxSpool is the maximum size of a response body that is held back, in bytes. The part above
	// MaxResponse is in a temporary file. Further writes of the handler fail, and the client's
	// connection is closed. Zero means 1 GiB, or MaxResponse if that is more. A negative number
	// means no limit.
	MaxSpool int64

	// Classify returns how a response's status code ends the execution: Completed,
	// FailedFinal, FailedRetryable or Unknown. Other values, and a nil Classify, mean
	// ClassifyStatus.
	Classify func(status int) Status

	// ClassifyResponse is Classify with the header of the response, and replaces it. Unknown means
	// what Options.Takeover says. For a handler that passes on another server's response, set it to
	// ClassifyForwarded. nil means Classify.
	ClassifyResponse func(status int, h http.Header) Status

	// ProblemBase is the start of the type of each problem that the Handler answers with, a URL. The
	// kind follows, such as key-missing. "" means the page of this package, docs/server-idempotency.md.
	ProblemBase string

	// Trace is a set of hooks. nil means none.
	Trace *Trace

	store Store
	scope func(*http.Request) (string, error)
	next  http.Handler

	once     sync.Once
	executor *executor
	header   string
	methods  []string
	settings error
}

const (
	defaultMaxBody  = 1 << 20
	defaultMaxSpool = 1 << 30

	// maxPath leaves space for a method in the name of an operation.
	maxPath = MaxName - 32
)

// NewHandler wraps next. scope returns the tenant or account of a request, as
// authentication has established it; "" if there is only one. Keys of different scopes
// are independent. An error of scope rejects the request with 403.
func NewHandler(store Store, scope func(*http.Request) (string, error), next http.Handler) *Handler {
	return &Handler{store: store, scope: scope, next: next}
}

// Validate returns all errors of the configuration, joined. Each is an ErrInvalid. Call
// it when the program starts. The fields must not change after it.
func (h *Handler) Validate() error {
	h.once.Do(h.configure)
	return h.settings
}

// ServeHTTP implements http.Handler. If the Handler is invalid, it answers 500 and
// executes nothing.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.configure)
	v := &requestHandler{Handler: h, w: w, r: r, traceEvent: h.executor.traceEvent(Event{Request: r})}
	switch {
	case h.settings != nil:
		v.reject(misconfigured, Misconfigured, h.settings, "")
	case !slices.ContainsFunc(h.methods, func(m string) bool { return strings.EqualFold(m, r.Method) }):
		h.next.ServeHTTP(w, r)
	default:
		v.serve()
	}
}

// configure sets the defaults.
func (h *Handler) configure() {
	h.executor, h.settings = newExecutor(h.store, h.Options, h.Trace)
	h.executor.survives = true
	h.executor.checkStore()
	h.header, h.methods = textproto.CanonicalMIMEHeaderKey(cmp.Or(h.Header, "Idempotency-Key")), []string{http.MethodPost, http.MethodPatch}
	if h.Methods != nil {
		h.methods = slices.Clone(h.Methods)
	}
	if h.Fingerprint == nil {
		h.Fingerprint = RequestFingerprint
	}
	h.MaxBody = cmp.Or(h.MaxBody, defaultMaxBody)
	h.MaxResponse = cmp.Or(h.MaxResponse, defaultMaxBody)
	h.MaxSpool = cmp.Or(h.MaxSpool, max(defaultMaxSpool, h.MaxResponse))
	h.settings = h.wrong(h.settings)
}

// wrong returns all errors of the Handler. options is the error of its Options.
func (h *Handler) wrong(options error) error {
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Append(options)
	wrong.Check(h.scope == nil || h.next == nil, "NewHandler: scope or next is nil")
	wrong.Header("Header", h.header)
	wrong.Check(slices.ContainsFunc(h.methods, func(m string) bool { return !validate.Token(m) }), fmt.Sprintf("Methods is %q, want names of methods", h.methods))
	wrong.Check(h.Classify != nil && h.ClassifyResponse != nil, "Classify and ClassifyResponse are both set, want at most one")
	wrong.Check(h.MaxBody < 0, fmt.Sprintf("MaxBody is %d, must not be negative", h.MaxBody))
	wrong.Check(h.MaxResponse < 0, fmt.Sprintf("MaxResponse is %d, must not be negative", h.MaxResponse))
	wrong.Check(h.MaxSpool > 0 && h.MaxSpool < h.MaxResponse, fmt.Sprintf("MaxSpool is %d, want at least MaxResponse (%d)", h.MaxSpool, h.MaxResponse))
	problem, err := url.Parse(h.ProblemBase + "kind")
	wrong.Check(err != nil || problem.String() != h.ProblemBase+"kind", fmt.Sprintf("ProblemBase is %q, want a URL such as https://api.example.com/problems/", h.ProblemBase))
	return wrong.Err()
}

func (h *Handler) operation(r *http.Request) string {
	if h.Operation != nil {
		return h.Operation(r)
	}
	method := strings.ToUpper(r.Method)
	if r.Pattern != "" {
		if strings.HasPrefix(r.Pattern, method+" ") {
			return r.Pattern
		}
		return method + " " + r.Pattern
	}
	path := r.URL.EscapedPath()
	if len(path) > maxPath { // a long path of the client is not an error of the Handler
		hash := sha256.Sum256([]byte(path))
		path = "sha256:" + hex.EncodeToString(hash[:])
	}
	return method + " " + path
}

func (h *Handler) classify(code int, header http.Header) Status {
	status := ClassifyStatus(code)
	if (code == http.StatusConflict || code == http.StatusLocked) && retryAfter(header) {
		status = FailedRetryable
	}
	switch {
	case h.ClassifyResponse != nil:
		if own := h.ClassifyResponse(code, header); endsExecution(own) {
			status = own
		}
	case h.Classify != nil:
		if own := h.Classify(code); own != status && endsExecution(own) {
			return own
		}
	}
	if status == Unknown {
		return h.executor.ambiguous()
	}
	return status
}

func endsExecution(s Status) bool { return s.Finished() || s == FailedRetryable || s == Unknown }

// requestHandler serves one request.
type requestHandler struct {
	*Handler
	w http.ResponseWriter
	r *http.Request
	traceEvent
}

func (v *requestHandler) serve() {
	claim, ok := v.claim()
	if !ok {
		return
	}
	e, reservation, err := v.executor.start(v.r.Context(), claim)
	v.event.Generation = reservation.Record.Generation
	switch {
	case errors.Is(err, ErrInvalid):
		v.reject(misconfigured, Misconfigured, err, "")
	case err != nil:
		p := storeFailed
		p.unexecuted = reservation.Decision != DecisionInProgress
		v.reject(p, unclaimed(v.r.Context(), err), err, "")
	case e != nil:
		v.event.Owner = claim.Owner
		v.execute(e)
	default:
		v.answer(&reservation)
	}
}

// claim returns the claim of the request, or false if the request was rejected or has
// passed.
func (v *requestHandler) claim() (*Claim, bool) {
	key, err := keyFrom(v.r.Header, v.header)
	switch {
	case errors.Is(err, errNoKey) && v.Optional:
		v.next.ServeHTTP(v.w, v.r)
		return nil, false
	case errors.Is(err, errNoKey):
		return nil, v.reject(keyMissing, Invalid, nil, "Send one in "+v.header+".")
	case err != nil:
		return nil, v.reject(keyInvalid, Invalid, err, err.Error())
	}
	scope, err := v.scope(v.r)
	if err == nil {
		err = validateName("scope", scope)
	}
	if err != nil {
		return nil, v.reject(scopeless, Invalid, err, "")
	}
	v.event.ID = ID{Scope: scope, Operation: v.operation(v.r), Key: key}
	body, err := readBody(v.r, v.MaxBody)
	switch {
	case errors.Is(err, errBodyTooLarge):
		limit := v.MaxBody
		if smaller, ok := errors.AsType[*http.MaxBytesError](err); ok {
			limit = smaller.Limit
		}
		return nil, v.reject(bodyTooLarge, Invalid, nil, fmt.Sprintf("The limit is %d bytes.", limit))
	case err != nil:
		return nil, v.reject(bodyIncomplete, Invalid, err, "")
	}
	return new(v.executor.options.claim(v.event.ID, v.Fingerprint(v.r, body))), true
}

// answer is for a request that is not executed.
func (v *requestHandler) answer(reservation *Reservation) {
	record := &reservation.Record
	switch reservation.Decision {
	case DecisionDone:
		if record.Status == CompletedUnreplayable {
			v.reject(unreplayable, Unreplayable, nil, "")
			return
		}
		v.replay(record)
	case DecisionInProgress:
		v.reject(inProgress, InProgress, nil, "")
	case DecisionMismatch:
		v.reject(mismatched, Mismatched, nil, "")
	default:
		if reservation.LeaseExpired {
			v.emit(Unknown, errLeaseExpired)
		}
		v.reject(outcomeUnknown, OutcomeUnknown, v.event.Err, "")
	}
}

// execute runs the handler, and sends its response when the record is durable.
func (v *requestHandler) execute(e *execution) {
	c := newCapture(v.w, v.r.WithContext(e.ctx), v.MaxResponse)
	c.body.most = v.MaxSpool
	defer c.close()
	status, interrupted := v.run(e, c), e.finish()
	final := status == FailedFinal
	switch {
	case status == FailedRetryable && interrupted:
		status = v.executor.ambiguous()
	case status.Finished() && c.body.beyond && !v.refers(e, status):
		status = CompletedUnreplayable
	}
	err := e.record(Outcome{Status: status, Result: v.result(e, c, status)}, final)
	v.finish(c, status, err)
}

// run calls the handler, and returns the status that its response means.
func (v *requestHandler) run(e *execution, c *capture) (status Status) {
	v.guard(e, func() {
		defer func() { v.r.MultipartForm = c.r.MultipartForm }() // the server removes its files later
		v.next.ServeHTTP(c, c.r)
		c.finish()
		status = v.executor.ambiguous()
		if c.failure == nil {
			status = v.classify(c.code, c.snapshot)
		}
	})
	return status
}

// finish answers the request of an execution that ended with status, or failed to
// with err. No success is sent before its record is durable.
func (v *requestHandler) finish(c *capture, status Status, err error) {
	switch {
	case errors.Is(err, ErrUnknown):
		v.emit(Unknown, err)
		v.reject(outcomeUnknown, OutcomeUnknown, err, "")
	case errors.Is(err, ErrLeaseLost):
		v.reject(leaseLost, LeaseLost, err, "")
	case errors.Is(err, ErrUncommittable):
		v.reject(uncommittable, StoreFailed, err, "")
	case c.failure != nil:
		v.suppressBody(c.failure, status, err)
	case err == nil && status == Unknown:
		v.emit(status, errWorkUnknown)
		v.send(c, status, errWorkUnknown)
	case err == nil:
		v.send(c, status, nil)
	case status == FailedRetryable && c.code >= http.StatusBadRequest:
		v.send(c, status, err) // this failure needs no record
	default:
		v.emit(status, err)
		p := storeFailed
		if !errors.Is(err, errRolledBack) {
			p.again = 0 // the work is done, or may be
		}
		v.reject(p, StoreFailed, err, "")
	}
}

// suppressBody answers a request if the handler gave no complete response. err is the
// error of its record.
func (v *requestHandler) suppressBody(failure error, status Status, err error) {
	d := Released
	switch {
	case err != nil:
		d = StoreFailed
	case status == Unknown:
		d = OutcomeUnknown
	}
	failure = errors.Join(failure, err)
	v.emit(status, failure)
	v.reject(noResponse, d, failure, "")
}

// send sends the handler's response.
func (v *requestHandler) send(c *capture, status Status, err error) {
	d := Executed
	switch {
	case status == Unknown:
		d = OutcomeUnknown
	case err != nil && v.executor.transactor == nil: // the key is not free before the lease ends
		d = StoreFailed
	case !status.Finished():
		d = Released
	case c.body.err != nil:
		d = Unreplayable
	}
	v.done(d, c.code, errors.Join(err, c.body.err))
	if c.body.err != nil {
		// A part of the response is lost, and nothing of it was sent. The status is for
		// middleware that recovers from ErrAbortHandler: gin's would send a 200.
		v.w.WriteHeader(http.StatusServiceUnavailable)
		v.abort()
	}
	if c.sendResponse(v.w) != nil {
		v.abort() // the client has left
	}
}

// abort ends the connection. After a panic, net/http leaves the files of a request's form to the handler.
func (v *requestHandler) abort() {
	if v.r.MultipartForm != nil {
		_ = v.r.MultipartForm.RemoveAll() // what cannot be removed is in the directory of temporary files
	}
	panic(http.ErrAbortHandler)
}

// reject answers with a problem. It returns false, for claim.
func (v *requestHandler) reject(p problem, d Disposition, err error, detail string) bool {
	v.done(d, p.status, err)
	p.write(v.w, cmp.Or(v.ProblemBase, problemBase), detail)
	return false
}

// Why the outcome of an operation is unknown.
var (
	errLeaseExpired = errors.New("idempotency: the lease of an execution expired")
	errWorkUnknown  = errors.New("idempotency: the work does not know whether it took effect")
	errPanicked     = errors.New("idempotency: the work panicked")
)

var _ http.Handler = (*Handler)(nil)
