package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// HTTP is a Gateway that makes one HTTP request of each send. It is safe for concurrent use if
// NewRequest and Read are.
//
// Only the Engine retries. A resilienthttp.Transport under the Client makes single attempts,
// whatever its Policy. net/http itself repeats a request with a key if a reused connection breaks.
// HTTP prevents that for requests with a body only, so give each one a body if the provider does not
// honour keys: the work could be done twice in one send. Another Transport must not retry. A redirect that would
// change the method is not followed. Another origin does not get the key, but one that is derived from it.
//
// The class is by resilienthttp.InDoubt, and then by the status:
//
//	2xx                                   ClassSucceeded
//	421, 425, 429, throttling 403         ClassFailed
//	not executed, as the response says    ClassFailed
//	rejected by the Transport, not sent   ClassFailed
//	408, 409, 499, 5xx, 1xx, 3xx          ClassUnknown
//	timeout, reset, body not readable     ClassUnknown
//	no 2xx, and net/http sent it twice    ClassUnknown
//	other 4xx                             ClassDeclined
//	no valid request                      ClassDeclined, Code "request"
//	a host that would get no key          ClassFailed, Code "request"
//
// A response says that nothing was executed by Request-Executed: ?0, or by a field of Envoy: see docs/retries.md. A 503 with
// Retry-After does not say so, because proxies send it after the work too.
//
// To make a Finder, embed HTTP in a type with a method Find. Find may send the status query
// through a second HTTP: its Read returns ClassNotFound for a 404.
type HTTP struct {
	// Client sends the requests. nil: one with http.DefaultTransport. Engine.Timeout limits
	// each.
	Client *http.Client

	// NewRequest makes the request. It must be the same for the same Payload and Key. The
	// Engine uses the values of its context, and not its end. It puts s.Key into the header
	// Idempotency-Key if there is none, or into the header that the Transport is configured
	// for. A host that is not among its Idempotency.Hosts would get no key, so nothing is sent to
	// it: the send fails with the Code "request". It must be set.
	NewRequest func(s *Send) (*http.Request, error)

	// Read returns what the answer says beside its status. body is at most its first MiB.
	// Fields that it leaves at zero are by the status, except that a success with an Err and no
	// Class is unknown. nil: only the status counts.
	Read func(resp *http.Response, body []byte) Outcome

	// PerScope means that each scope has credentials of its own, which the provider limits. An
	// answer 429 then holds the scope of the intent. If that is "", or PerScope is false, it holds
	// the gateway.
	PerScope bool
}

var (
	_ Gateway   = HTTP{}
	_ validator = HTTP{}
)

// keyHeader is the default header of the key.
const keyHeader = "Idempotency-Key"

// codeRequest is the Code of a request that could not be made.
const codeRequest = "request"

var errNoRequest = errors.New("durable: HTTP.NewRequest is nil")

// Validate returns what is wrong with the configuration. Engine.Validate calls it.
func (h HTTP) Validate() error {
	if h.NewRequest == nil {
		return errNoRequest
	}
	return nil
}

// LimitsPerScope returns PerScope: see Engine.Holds.
func (h HTTP) LimitsPerScope() bool { return h.PerScope }

// Send implements Gateway.
func (h HTTP) Send(ctx context.Context, s *Send) Outcome {
	if err := h.Validate(); err != nil { // which no intent can help
		return Outcome{Class: ClassFailed, Code: codeRequest, Err: unsentError{err}}
	}
	req, err := h.request(ctx, s)
	if err != nil {
		return Outcome{Class: ClassDeclined, Code: codeRequest, Err: unsentError{err}}
	}
	if !h.keyed(req) {
		// The Transport's configuration is wrong, and not the intent, which waits until it is mended.
		err := fmt.Errorf("durable: without a key, because the Transport's Idempotency.Hosts have no %s", req.URL.Host)
		return Outcome{Class: ClassFailed, Code: codeRequest, Err: unsentError{err}}
	}
	resp, err := h.client().Do(req)
	if err != nil {
		return unanswered(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, LongestPayload))
	return h.outcome(resp, body, err)
}

func (h HTTP) request(ctx context.Context, s *Send) (*http.Request, error) {
	req, err := h.NewRequest(s)
	if err != nil {
		return nil, err
	}
	if req == nil || req.URL == nil {
		return nil, errors.New("durable: HTTP.NewRequest returned nil, or a request without URL")
	}
	ctx = valuesContext{Context: ctx, values: req.Context()}
	req = req.WithContext(resilienthttp.WithSingleAttempt(resilienthttp.WithIdempotencyKey(ctx, s.Key)))
	if h.transport() != nil {
		return req, nil // it puts the key where it belongs
	}
	if req.Header.Get(keyHeader) == "" {
		if req.Header = req.Header.Clone(); req.Header == nil {
			req.Header = make(http.Header)
		}
		req.Header.Set(keyHeader, s.Key)
	}
	return req, nil
}

// transport returns the resilienthttp.Transport of the Client, also one with instrumentation around it, or nil.
func (h HTTP) transport() *resilienthttp.Transport {
	if h.Client == nil {
		return nil
	}
	rt := h.Client.Transport
	if instrumented, ok := rt.(interface{ Unwrap() http.RoundTripper }); ok {
		rt = instrumented.Unwrap()
	}
	tr, _ := rt.(*resilienthttp.Transport)
	return tr
}

// keyed reports whether a request is sent with the key. The Engine sends it again under its key, so without the key the work could be
// done twice. A Transport sends none to a host that is not among its Idempotency.Hosts, unless the request has it.
func (h HTTP) keyed(req *http.Request) bool {
	tr := h.transport()
	if tr == nil || tr.Idempotency.Hosts == nil {
		return true
	}
	return hostmatch.Match(tr.Idempotency.Hosts, req.URL) || req.Header.Get(cmp.Or(tr.Idempotency.Header, keyHeader)) != ""
}

// valuesContext has the values of another context in addition.
type valuesContext struct {
	context.Context

	values context.Context
}

func (c valuesContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// client returns a client that does not turn a POST into a GET, because the success of a GET says nothing about the POST. It sends
// nothing without a key.
func (h HTTP) client() *http.Client {
	client := new(http.Client)
	if h.Client != nil {
		client = h.Client
	}
	careful := *client
	careful.Transport = once{cmp.Or(client.Transport, http.DefaultTransport)}
	careful.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		keepKeyAtHome(req, via[0])
		switch {
		case req.Method != via[0].Method, !h.keyed(req):
			return http.ErrUseLastResponse
		case client.CheckRedirect != nil:
			return client.CheckRedirect(req, via)
		case len(via) >= maxRedirects:
			return errors.New("stopped after 10 redirects")
		default:
			return nil
		}
	}
	return &careful
}

// keepKeyAtHome replaces the key of a request that a redirect leads to another origin, as a resilienthttp.Transport does. http.Client
// has copied the header of the first request.
func keepKeyAtHome(req, first *http.Request) {
	key := first.Header.Get(keyHeader)
	if key != "" && !hostmatch.SameOrigin(first.URL, req.URL) {
		req.Header.Set(keyHeader, idempotencykey.ForOrigin(key, req.URL))
	}
}

// once prevents net/http from repeating a request with a key when a reused connection breaks.
type once struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.GetBody != nil {
		req = req.WithContext(req.Context())
		req.GetBody = nil
	}
	return o.RoundTripper.RoundTrip(req)
}

// maxRedirects is the limit of net/http.
const maxRedirects = 10

// unanswered returns the outcome of a request without a response.
func unanswered(err error) Outcome {
	o := Outcome{Err: causedError{err}, NotBefore: resilienthttp.NotBefore(nil, err)}
	if resilienthttp.InDoubt(nil, err) {
		return o
	}
	o.Class = ClassFailed
	failed, ok := errors.AsType[*resilienthttp.Error](err)
	switch {
	case neterr.Malformed(err) && (!ok || failed.NotSent()):
		o.Class, o.Code, o.Err = ClassDeclined, codeRequest, unsentError{o.Err}
	case !ok && neterr.NotSent(err):
		o.Err = unsentError{o.Err}
	}
	return o
}

// outcome returns the outcome of a response.
func (h HTTP) outcome(resp *http.Response, body []byte, broken error) Outcome {
	wait, asked := retryafter.Parse(resp.Header, time.Now())
	o := Outcome{Class: classOf(resp), Status: resp.StatusCode, NotBefore: resilienthttp.NotBefore(resp, nil)}
	if asked && o.NotBefore.IsZero() {
		o.NotBefore = time.Now().Add(wait)
	}
	if h.Read == nil {
		return o
	}
	if broken != nil {
		if o.Class != ClassFailed {
			o.Class = ClassUnknown
		}
		o.Err = fmt.Errorf("durable: read the response body: %w", broken)
		return o
	}
	said := h.Read(resp, body)
	if said.Class == ClassUnknown && (o.Class != ClassSucceeded || said.Err == nil) {
		said.Class = o.Class
	}
	said.Status = cmp.Or(said.Status, o.Status)
	if said.NotBefore.IsZero() {
		said.NotBefore = o.NotBefore
	}
	return said
}

// classOf returns the class of a response. A redirect that was not followed and a 409 do not say what became of the
// work: another attempt may be at it.
func classOf(resp *http.Response) Class {
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return ClassSucceeded
	case resilienthttp.InDoubt(resp, nil), status < 400, status == http.StatusConflict:
		return ClassUnknown
	case outcome.OfResponse(status, resp.Header).Work == outcome.NotExecuted:
		return ClassFailed
	}
	return ClassDeclined
}

// causedError has the text of the cause alone: neither the URL, nor why the Transport did not
// repeat the request. The Engine repeats it.
type causedError struct{ error }

// Error implements error.
func (e causedError) Error() string {
	failed, ok := errors.AsType[*resilienthttp.Error](e.error)
	outer, isURL := errors.AsType[*url.Error](e.error)
	switch {
	case ok && failed.Err != nil && !failed.Timeout() && !errors.Is(failed.Reason, resilienthttp.ErrBreakerOpen):
		return neterr.SafeText(failed.Err)
	case ok:
		return neterr.SafeText(failed)
	case isURL && outer.Err != nil:
		return errorText(outer.Err)
	}
	return errorText(e.error)
}

// Unwrap returns the error of the Client.
func (e causedError) Unwrap() error { return e.error }

// unsentError proves that nothing was sent.
type unsentError struct{ error }

// NotSent is what Outcome.Unsent calls.
func (unsentError) NotSent() bool { return true }

// Unwrap returns the cause.
func (e unsentError) Unwrap() error { return e.error }
