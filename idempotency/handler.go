package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Handler makes a handler honour idempotency keys: a request that comes again
// takes effect once, and gets the first response again, through crashes, races
// and restarts, as far as its mode promises (docs/server-idempotency.md).
//
// Make one with NewHandler for each route, or group of routes on the same terms.
// Its fields are read at the first request and must not change after it. It is
// safe for concurrent use.
//
// The inner handler runs under a context that ends with the request's deadline
// and with the lease, but not when the client goes away: what has begun is brought
// to its end, because the client will ask again. Its response is held back until
// the record is durable; flushing has no effect before that, and hijacking is not
// offered. A handler that panics, or is still at it when the process dies, or
// answers 500, has an unknown effect, unless the terms are Joined; Terms.Takeover
// says what follows. One that returns without having written anything has not
// answered: 200 must be said (WriteHeader), or the client gets a 500.
type Handler struct {
	Options

	// Header is the field with the key. "" means Idempotency-Key.
	Header string

	// Methods are those that need a key; all others pass through untouched. nil
	// means POST and PATCH. They are compared without regard to case: net/http tells
	// post from POST, and hands it to a handler that may not.
	Methods []string

	// Optional lets requests without a key pass through, unprotected. Otherwise
	// they are answered with 400.
	Optional bool

	// Operation names what a request asks for. The same key under two operations is
	// two operations, each with its own effect, so a name must not change while keys
	// are in flight: let it be a constant that the route chooses,
	//
	//	charges.Operation = func(*http.Request) string { return "charge" }
	//
	// nil means the method, in upper case, and the pattern that http.ServeMux has
	// matched, or else the path. That is another name once the pattern is written in
	// another way, or the Handler moved to where no pattern is known: a request from
	// before then, sent again after it, is executed again.
	Operation func(*http.Request) string

	// Fingerprint tells whether two requests under one key are the same; it must
	// not change between versions of a program. nil means RequestFingerprint.
	Fingerprint func(r *http.Request, body []byte) Fingerprint

	// MaxBody is the largest request body, in bytes; a larger one is answered with
	// 413. It is held in memory. 0 means 1 MiB.
	MaxBody int64

	// MaxResponse is the largest response body that is stored, in bytes. A larger
	// one reaches the first client whole, and the record becomes
	// CompletedUnreplayable, unless the handler has called Refer. 0 means 1 MiB.
	MaxResponse int64

	// Rebuild gives the response of an execution that called Refer to those who ask
	// again: from the source of truth, so that a response of any length need not be
	// kept. A Code of 0 is the first response's, and a nil Header is that of the first
	// without length, digests, validators and trailers. Its error is answered with
	// 503, and told by Trace as RebuildFailed; what is gone for good it answers itself,
	// with a 410 say. ctx is the request's, with none of the execution's. It must be
	// safe for concurrent use. nil: responses are kept, and references not.
	//
	// Take it away only when the records that need it are past their TTL: they are
	// answered with 503 then, too.
	LoadResult func(ctx context.Context, id ID, reference string) (Result, error)

	// MaxSpool is the largest response body that is held back for the first client,
	// in bytes; what is above MaxResponse is in a temporary file. Further writes fail,
	// and the client's connection is cut; the record is what it would have been. It
	// must not be less than MaxResponse. 0 means 1 GiB, or MaxResponse if that is
	// more; negative: no limit.
	MaxSpool int64

	// Settle says how a status settles the execution: Completed, FailedFinal,
	// FailedRetryable or Unknown; 0, and whatever else is no end of an execution,
	// means the package's Settle, as does a nil Settle. FailedRetryable after the
	// context has ended is taken as not knowing.
	Classify func(status int) Status

	// Trace is a set of hooks, nil for none.
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

	// longestPath leaves room for a method in the name of an operation.
	longestPath = driver.MaxName - 32
)

// NewHandler wraps next. scope says whose request it is: a tenant, an account,
// from what authentication has established before. Keys of different scopes have
// nothing to do with each other, so one tenant can never see the response of
// another; where there is only one, it returns "". Its error refuses the request
// with 403.
func NewHandler(store Store, scope func(*http.Request) (string, error), next http.Handler) *Handler {
	return &Handler{store: store, scope: scope, next: next}
}

// Validate says what is wrong with the configuration, all of it, an ErrInvalid; call it
// when a program starts. The fields must not change after it. Wrong is also what nobody
// can mean: a Limit or Wait of less than a microsecond, whose unit was forgotten, and a
// Header that no client can send, or that means something else.
func (h *Handler) Validate() error {
	h.once.Do(h.configure)
	return h.settings
}

// ServeHTTP implements http.Handler. A Handler that is misconfigured answers 500
// to every request, and executes none: see Validate.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.configure)
	v := &requestHandler{Handler: h, w: w, r: r, traceEvent: h.executor.traceEvent(Event{Request: r})}
	switch {
	case h.settings != nil:
		v.refuse(misconfigured(), Misconfigured, h.settings, "")
	case !slices.ContainsFunc(h.methods, func(m string) bool { return strings.EqualFold(m, r.Method) }):
		h.next.ServeHTTP(w, r)
	default:
		v.serve()
	}
}

// configure resolves the defaults, once.
func (h *Handler) configure() {
	h.executor, h.settings = newExecutor(h.store, h.Options, h.Trace)
	h.executor.survives = true
	h.header, h.methods = "Idempotency-Key", []string{http.MethodPost, http.MethodPatch}
	if h.Header != "" {
		h.header = textproto.CanonicalMIMEHeaderKey(h.Header)
	}
	if h.Methods != nil {
		h.methods = slices.Clone(h.Methods)
	}
	if h.MaxBody == 0 {
		h.MaxBody = defaultMaxBody
	}
	if h.MaxResponse == 0 {
		h.MaxResponse = defaultMaxBody
	}
	if h.MaxSpool == 0 {
		h.MaxSpool = max(defaultMaxSpool, h.MaxResponse)
	}
	h.settings = h.wrong(h.settings)
}

// wrong is what is wrong with the Handler, beside its terms.
func (h *Handler) wrong(terms error) error {
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Append(terms)
	wrong.Check(h.scope == nil || h.next == nil, "a Handler without scope or next")
	wrong.Header("Header", h.header)
	wrong.Check(slices.ContainsFunc(h.methods, notToken), fmt.Sprintf("Methods %q", h.methods))
	wrong.Check(h.MaxBody < 0, fmt.Sprintf("MaxBody %d", h.MaxBody))
	wrong.Check(h.MaxResponse < 0, fmt.Sprintf("MaxResponse %d", h.MaxResponse))
	wrong.Check(h.MaxSpool > 0 && h.MaxSpool < h.MaxResponse, fmt.Sprintf("MaxSpool %d, less than MaxResponse %d", h.MaxSpool, h.MaxResponse))
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
	if len(path) > longestPath { // the client's choice, and not to be held against the Handler
		hash := sha256.Sum256([]byte(path))
		path = "sha256:" + hex.EncodeToString(hash[:])
	}
	return method + " " + path
}

// notToken reports whether no request can have such a method.
func notToken(method string) bool { return !validate.Token(method) }

func (h *Handler) fingerprint(r *http.Request, body []byte) Fingerprint {
	if h.Fingerprint != nil {
		return h.Fingerprint(r, body)
	}
	return RequestFingerprint(r, body)
}

func (h *Handler) settle(code int) Status {
	usual := ClassifyStatus(code)
	if h.Classify != nil {
		if own := h.Classify(code); own != usual && (own.Finished() || own == FailedRetryable || own == Unknown) {
			return own
		}
	}
	if usual == Unknown {
		return h.executor.ambiguous()
	}
	return usual
}

// visit is one request on its way through a Handler.
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
		v.refuse(misconfigured(), Misconfigured, err, "")
	case err != nil:
		v.refuse(storeFailed(), unclaimed(v.r.Context(), err), err, "")
	case e != nil:
		v.event.Owner = claim.Owner
		v.execute(e)
	default:
		v.answer(&reservation)
	}
}

// claim is what the request asks for. false: it was refused, or passed through.
func (v *requestHandler) claim() (*driver.Claim, bool) {
	key, err := keyFrom(v.r.Header, v.header)
	switch {
	case errors.Is(err, errNoKey) && v.Optional:
		v.next.ServeHTTP(v.w, v.r)
		return nil, false
	case errors.Is(err, errNoKey):
		return nil, v.refuse(keyMissing(), Invalid, nil, "Send one in "+v.header+".")
	case err != nil:
		return nil, v.refuse(keyInvalid(), Invalid, err, err.Error())
	}
	scope, err := v.scope(v.r)
	if err == nil {
		err = driver.ValidateName("scope", scope)
	}
	if err != nil {
		return nil, v.refuse(scopeless(), Invalid, err, "")
	}
	v.event.ID = ID{Scope: scope, Operation: v.operation(v.r), Key: key}
	body, err := readBody(v.r, v.MaxBody)
	switch {
	case errors.Is(err, errBodyTooLarge):
		limit := v.MaxBody
		if smaller, ok := errors.AsType[*http.MaxBytesError](err); ok {
			limit = smaller.Limit
		}
		return nil, v.refuse(bodyTooLarge(), Invalid, nil, fmt.Sprintf("The limit is %d bytes.", limit))
	case err != nil:
		return nil, v.refuse(bodyCut(), Invalid, err, "")
	}
	claim := v.executor.terms.claim(v.event.ID, v.fingerprint(v.r, body))
	return &claim, true
}

// answer replies to a request that is not to be executed.
func (v *requestHandler) answer(reservation *driver.Reservation) {
	record := &reservation.Record
	switch reservation.Decision {
	case driver.Done:
		if record.Status == driver.CompletedUnreplayable {
			v.refuse(unreplayable(), Unreplayable, nil, "")
			return
		}
		v.replay(record)
	case driver.DecisionInProgress:
		v.refuse(inProgress(), InProgress, nil, "")
	case driver.Mismatch:
		v.refuse(mismatched(), Mismatched, nil, "")
	default:
		if reservation.LeaseExpired {
			v.emit(Unknown, errDied)
		}
		v.refuse(doubtful(), OutcomeUnknown, v.event.Err, "")
	}
}

// execute runs the handler, and lets its response out when the record stands.
func (v *requestHandler) execute(e *execution) {
	c := newCapture(v.w, v.r.WithContext(e.ctx), v.MaxResponse)
	c.body.most = v.MaxSpool
	defer c.close()
	status, interrupted := v.run(e, c), e.finish()
	refused := status == FailedFinal
	switch {
	case status == FailedRetryable && interrupted:
		status = v.executor.ambiguous()
	case status.Finished() && c.tooLarge() && !v.refers(e, status):
		status = driver.CompletedUnreplayable
	}
	err := e.settle(driver.Outcome{Status: status, Result: v.result(e, c, status)}, refused)
	v.finish(c, status, err)
}

// run calls the handler, and returns how its status settles the execution. When it
// panics, the panic goes on to the server after the record says so.
func (v *requestHandler) run(e *execution, c *capture) Status {
	began := time.Now()
	returned := false
	defer func() {
		v.event.Work = time.Since(began)
		if returned {
			return
		}
		c.abandon()
		status, err := e.abandon()
		err = errors.Join(errPanicked, err)
		v.emit(status, err)
		v.done(Panicked, 0, err)
	}()
	defer func() { v.r.MultipartForm = c.r.MultipartForm }() // the server removes its files, when all is over
	v.next.ServeHTTP(c, c.r)
	c.finish()
	status := v.executor.ambiguous()
	if !c.silent {
		status = v.settle(c.status())
	}
	returned = true
	return status
}

// conclude answers the request of an execution that has ended with status, or
// was to. No success leaves before its record is durable.
func (v *requestHandler) finish(c *capture, status Status, err error) {
	code := c.status()
	switch {
	case err == nil && c.silent:
		v.emit(status, errSilent)
		v.refuse(noResponse(), v.suppressBody(status), errSilent, "")
	case err == nil && status == Unknown:
		v.emit(status, errUndecided)
		v.send(c, code, status, errUndecided)
	case err == nil:
		v.send(c, code, status, nil)
	case errors.Is(err, ErrUnknown):
		v.emit(Unknown, err)
		v.refuse(doubtful(), OutcomeUnknown, err, "")
	case errors.Is(err, ErrLeaseLost):
		v.refuse(overtaken(), LeaseLost, err, "")
	case c.silent:
		err = errors.Join(errSilent, err)
		v.emit(status, err)
		v.refuse(noResponse(), StoreFailed, err, "")
	case status == FailedRetryable && code >= http.StatusBadRequest:
		v.send(c, code, status, err) // a refusal needs no record
	default:
		v.emit(status, err)
		v.refuse(storeFailed(), StoreFailed, err, "")
	}
}

// silence is what was done with a request whose handler wrote nothing.
func (v *requestHandler) suppressBody(status Status) Disposition {
	if status == Unknown {
		return OutcomeUnknown
	}
	return Released
}

// send lets the handler's response out.
func (v *requestHandler) send(c *capture, code int, status Status, err error) {
	d := Executed
	switch {
	case status == Unknown:
		d = OutcomeUnknown
	case !status.Finished():
		d = Released
	case c.err() != nil:
		d = Unreplayable
	}
	v.done(d, code, errors.Join(err, c.err()))
	if c.err() != nil {
		// A part of the response is lost, and nothing of it has left. The status is for
		// middleware that stops ErrAbortHandler: gin's Recovery makes a 200 of it.
		v.w.WriteHeader(http.StatusServiceUnavailable)
		panic(http.ErrAbortHandler)
	}
	if c.sendResponse(v.w) != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
}

// refuse answers with a problem. It returns false, for claim.
func (v *requestHandler) refuse(p problem, d Disposition, err error, detail string) bool {
	v.done(d, p.status, err)
	p.write(v.w, detail)
	return false
}

// Why an operation is Unknown, or ended badly.
var (
	errDied      = errors.New("idempotency: an execution died before it came to an end")
	errUndecided = errors.New("idempotency: the work does not know whether it took effect")
	errPanicked  = errors.New("idempotency: the work panicked")
	errSilent    = errors.New("idempotency: the handler has written neither header nor body")
)

var _ http.Handler = (*Handler)(nil)
