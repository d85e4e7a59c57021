package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// HTTP is a Gateway that makes one HTTP request of each send, through any client. It is
// safe for concurrent use if NewRequest and Read are.
//
// There is one layer that retries, and that is the Engine: a resilienthttp.Transport
// under the Client makes single attempts, whatever its Policy, though its gates and
// keys stay in force. So does net/http's, which would send a request that bears a key
// again, save that of one without a body it cannot be kept from it: where keys protect
// nothing, give it a body. Another Transport that retries by itself must be told not to. A
// redirect that would turn the request into another method is not followed.
//
// What an answer says by its status:
//
//   - 2xx: ClassSucceeded.
//   - Refused by one of the Transport's gates, or provably unsent; 408, 425, 429; 503
//     with Retry-After: ClassFailed.
//   - 409, all other 5xx, 1xx and 3xx, a timeout, a reset, an answer that breaks off
//     before Read can read it: ClassUnknown.
//   - All other 4xx: ClassDeclined.
//   - A request that NewRequest cannot make, or the client cannot send: ClassDeclined,
//     with the code "request".
//
// To be a Finder too, put it into a type of your own with a method Find, which may send
// a question through an HTTP of its own whose Read makes ClassNotFound of a 404.
type HTTP struct {
	// Client sends. nil: one on http.DefaultTransport. Engine.Timeout bounds its patience.
	Client *http.Client

	// NewRequest makes the request. It must be the same for the same Payload and Key. The
	// values of its context count, its end does not. Where there is no Idempotency-Key in
	// its header, s.Key is put there, or where the resilienthttp.Transport is told to put
	// keys. It must be set: see Validate.
	NewRequest func(s *Send) (*http.Request, error)

	// Read says what the answer says beside its status, whose body, at most its first MiB,
	// is given beside it. Each field that it leaves at zero is as by the status, save that
	// a success with an Err is unknown, if no Class is set: it could not make anything of
	// the answer. nil: there is nothing to read.
	Read func(resp *http.Response, body []byte) Outcome
}

var (
	_ Gateway   = HTTP{}
	_ Validator = HTTP{}
)

// keyHeader is where a key goes if nobody says otherwise.
const keyHeader = "Idempotency-Key"

// codeRequest is the Code of what is no request.
const codeRequest = "request"

var errNoRequest = errors.New("durable: HTTP.NewRequest is not set")

// Validate implements Validator: NewRequest must be set.
func (h HTTP) Validate() error {
	if h.NewRequest == nil {
		return errNoRequest
	}
	return nil
}

// Send implements Gateway.
func (h HTTP) Send(ctx context.Context, s *Send) Outcome {
	if err := h.Validate(); err != nil { // which no intent can help
		return Outcome{Class: ClassFailed, Code: codeRequest, Err: unsentError{err}}
	}
	req, err := h.request(ctx, s)
	if err != nil {
		return Outcome{Class: ClassDeclined, Code: codeRequest, Err: unsentError{err}}
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
		return nil, errors.New("durable: HTTP.NewRequest has made no request")
	}
	ctx = valuesContext{Context: ctx, values: req.Context()}
	req = req.WithContext(resilienthttp.SingleAttempt(resilienthttp.WithIdempotencyKey(ctx, s.Key)))
	if h.Client != nil && isTransport(h.Client.Transport) {
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

// isTransport reports whether it is a resilienthttp.Transport, or instrumentation around one.
func isTransport(rt http.RoundTripper) bool {
	if instrumented, ok := rt.(interface{ Unwrap() http.RoundTripper }); ok {
		rt = instrumented.Unwrap()
	}
	_, ok := rt.(*resilienthttp.Transport)
	return ok
}

// valuesContext has the values of another context, too.
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

// client does not make of a POST a GET, whose success would be another's.
func (h HTTP) client() *http.Client {
	client := new(http.Client)
	if h.Client != nil {
		client = h.Client
	}
	careful := *client
	careful.Transport = once{cmp.Or(client.Transport, http.DefaultTransport)}
	careful.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case req.Method != via[0].Method:
			return http.ErrUseLastResponse
		case client.CheckRedirect != nil:
			return client.CheckRedirect(req, via)
		case len(via) >= mostRedirects:
			return errors.New("stopped after 10 redirects")
		default:
			return nil
		}
	}
	return &careful
}

// once keeps net/http from sending a request again by itself, which it does where a
// connection that was used before breaks and the request bears a key, done or not.
type once struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.GetBody != nil {
		req = req.WithContext(req.Context())
		req.GetBody = nil
	}
	return o.RoundTripper.RoundTrip(req)
}

// mostRedirects is net/http's own.
const mostRedirects = 10

// unanswered is the outcome of a request that got no answer.
func unanswered(err error) Outcome {
	o := Outcome{Err: err, NotBefore: resilienthttp.NotBefore(nil, err)}
	failed, ok := errors.AsType[*resilienthttp.Error](err)
	switch {
	case neterr.Malformed(err) && (!ok || failed.NotSent()):
		o.Class, o.Code, o.Err = ClassDeclined, codeRequest, unsentError{err}
	case ok && failed.NotSent():
		o.Class = ClassFailed
	case !ok && neterr.NotSent(err):
		o.Class, o.Err = ClassFailed, unsentError{err}
	}
	return o
}

// outcome is what an answer says.
func (h HTTP) outcome(resp *http.Response, body []byte, broken error) Outcome {
	wait, asked := retryafter.Parse(resp.Header, time.Now())
	o := Outcome{Class: classOf(resp.StatusCode, asked), Status: resp.StatusCode, NotBefore: resilienthttp.NotBefore(resp, nil)}
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
		o.Err = fmt.Errorf("the answer broke off: %w", broken)
		return o
	}
	said := h.Read(resp, body)
	if said.Class == ClassUnknown && (o.Class != ClassSucceeded || said.Err == nil) {
		said.Class = o.Class
	}
	if said.Status == 0 {
		said.Status = o.Status
	}
	if said.NotBefore.IsZero() {
		said.NotBefore = o.NotBefore
	}
	return said
}

// classOf is what a status says; asked: the answer asks to come again later.
func classOf(status int, asked bool) Class {
	switch {
	case status >= 200 && status < 300:
		return ClassSucceeded
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status == http.StatusServiceUnavailable && asked:
		return ClassFailed
	case status < 400, status >= 500, status == http.StatusConflict:
		return ClassUnknown
	default:
		return ClassDeclined
	}
}

// unsentError proves that nothing was sent.
type unsentError struct{ error }

// Unsent is what Outcome.Unsent looks for.
func (unsentError) NotSent() bool { return true }

// Unwrap gives the cause.
func (e unsentError) Unwrap() error { return e.error }
