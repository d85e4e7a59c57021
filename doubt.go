package resilienthttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// workOf returns what a result tells of the work of one request. NotSent, InDoubt and package endpoints read the work of
// attempts, and nothing else.
func workOf(resp *http.Response, err error) outcome.Work {
	if resp != nil {
		return outcome.OfResponse(resp.StatusCode, resp.Header).Work
	}
	came, signs := outcome.OfError(err)
	if provesNotSent(err) {
		signs |= outcome.Unsent
	}
	return outcome.Of(came, signs).Work
}

// unsent reports whether it is certain that no byte of the attempt's request was written.
func (a *attempt) unsent() bool {
	err := a.report.Err
	if err == nil || a.begun {
		return false
	}
	switch reached := a.sending.reached.Load(); {
	case reached == reachedDial && a.call.native:
		// It has asked for a connection, and has got none.
		return true
	case a.came == outcome.Own:
		// A Base that does more than to observe may have sent it in its own way. So may a protocol that a program has
		// registered at net/http's Transport: it calls no hook.
		return a.call.native && a.visit.Record.hooked.Load()
	case reached >= reachedConn, !provesNotSent(err):
		// With a connection an alert may come after the handshake, or the error from the body.
		return false
	case reached == reachedDial, a.call.hasBody, !a.mayRepeatUnseen():
		return true
	}
	return !neterr.NotConnected(err)
}

// mayRepeatUnseen reports whether Base may hide its connections, and so that net/http below it sends the request again on
// another one, after a server has read it, although its method is not safe. For net/http a field without a value is enough. Of
// a request with a body, repeatBody still shows it.
func (a *attempt) mayRepeatUnseen() bool {
	_, standard := a.request.Header["Idempotency-Key"]
	_, older := a.request.Header["X-Idempotency-Key"]
	return !a.call.native && (standard || older)
}

// repeatBody is GetBody of a request that net/http may send again by itself, on a Base that may hide its connections too. As long as
// the request has no connection and nothing has touched its body, the caller is a signer, for example, that hashes a copy. It gets
// what it would get without a Transport.
func (a *attempt) repeatBody() (io.ReadCloser, error) {
	getBody := a.newBody
	switch reached := a.sending.reached.Load(); {
	case reached != reachedConn && !a.upload.Load().isTouched():
		a.sending.copied.Store(true)
		getBody = a.call.copyBody
	case reached != reachedResponse: // after a 401, for example, Base sends another request, with credentials
		a.sending.reached.Store(reachedAgain)
	}
	body, err := getBody()
	if err != nil {
		return nil, err
	}
	return a.watch(body), nil
}

// known returns what is known of the attempt's work, also if a program has made the Attempt.
func (a *Attempt) known() outcome.Work {
	switch {
	case a.of != nil:
		return a.work
	case a.NotExecuted:
		return outcome.NotExecuted
	}
	return workOf(a.Response, a.Err)
}

func provesNotSent(err error) bool {
	if inner, ok := errors.AsType[*Error](err); ok {
		return inner.NotSent()
	}
	return neterr.NotSent(err)
}

func succeeded(resp *http.Response) bool { return resp != nil && resp.StatusCode/100 == 2 }

func (a *Attempt) succeeded() bool { return a.event == 0 && succeeded(a.Response) }

// NotSent reports whether it is certain that no byte of the request was written. This is so if
// the first attempt was rejected or canceled, or if each attempt failed before its connection was
// ready (DNS, dial, TLS handshake). The call can then be repeated without a key. It is false after
// a redirect, if net/http has sent an attempt again, and if a Base that hides its connections
// sent a key. See docs/errors.md.
func (e *Error) NotSent() bool {
	for i := range e.Attempts {
		if e.Attempts[i].known() != outcome.NotSent {
			return false
		}
	}
	switch {
	case e.before != nil:
		return false
	case len(e.Attempts) > 0, e.Err == nil, errors.Is(e.Err, ErrRateLimited),
		errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		return true
	}
	return provesNotSent(e.Err)
}

// InDoubt reports whether a call may have been executed although its result does not tell of it, from the
// results of http.Client.Do or Transport.RoundTrip. Repeat such a call with the same idempotency key, or look
// up what became of it; a new key may do the work twice.
//
// It is true if an attempt was sent and got no response, a 101, a 408, a 499 or a 5xx, unless that says that nothing was
// executed: see Attempt.NotExecuted. A Retry-After does not say so, because proxies send it after the work too.
// Only a 2xx to a later attempt ends the doubt, so a 429 or 404 can be in doubt too. It is false for safe
// methods, for two nil arguments, and if nothing was sent. Any other error that is not an *Error is in doubt. If it is a
// refused connection, it hides the redirect that led there: another client must follow none.
//
// If reading the body of a 2xx fails, the work is done, but its result is lost. InDoubt of the response and that error is
// then true, unless the method is safe. It may be called concurrently. See docs/errors.md.
func InDoubt(resp *http.Response, err error) bool {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.inDoubt()
	}
	if err != nil {
		safe := resp != nil && !unsafeRequest(resp) // the body of the response broke
		if failed, ok := errors.AsType[*url.Error](err); ok {
			safe = safeMethod(strings.ToUpper(failed.Op)) // http.Client: the method of its first request
		}
		return !safe && (resp != nil || !provesNotSent(err))
	}
	if c := callOf(resp); c != nil {
		return c.inDoubt(resp)
	}
	return unsafeRequest(resp) && workOf(resp, nil) == outcome.InDoubt
}

// inDoubt is InDoubt for an error. Only http.Client has seen the redirect that led to the call.
func (e *Error) inDoubt() bool {
	switch {
	case e.NotSent():
		// First, because what was not sent is never in doubt, whatever the errors say.
		return false
	case unsafeRequest(e.before):
		// The request before the redirect may have done the work.
		return true
	case e.call != nil && e.call.repeats == repeatsNothing:
		return false
	case len(e.Attempts) == 0:
		return true
	case e.Attempts[0].Request != nil && safeMethod(e.Attempts[0].Request.Method):
		return false
	}
	return undecided(e.Attempts)
}

// undecided reports whether one of the attempts may have been executed. A success too, if it is not the result of the call.
func undecided(attempts []Attempt) bool {
	return slices.ContainsFunc(attempts, func(a Attempt) bool { return a.known() == outcome.InDoubt || a.succeeded() })
}

// inDoubt is InDoubt for the response of a call. The calls before it, which were redirected, count too: a success
// at another origin does not tell of them.
func (c *call) inDoubt(resp *http.Response) bool {
	done := succeeded(resp) && c.last.report.event == 0
	safe := c.repeats == repeatsNothing
	tells := done && !safe && !c.redirectedAway(&c.last.visit)
	if !tells && InDoubt(c.before, nil) {
		return true
	}
	switch {
	case done:
		return false
	case safe:
		// A GET that fails after a 303 does not undo what was done before.
		return unsafeRequest(c.before)
	}
	return undecided(c.attempts())
}

var errRedirected = neterr.Named("redirected_in_doubt", "redirected to another server, although the first one may have done the work")

// redirectedAway reports whether a redirect leads to a server that does not know the key of the call before it, and
// would do the work a second time. It does if a program made the redirect.
func (c *call) redirectedAway(to *visit) bool {
	from := callOf(c.before)
	if from == nil {
		return true
	}
	was, is := from.server(&from.last.visit), c.server(to)
	if was.Scope != "" && is.Scope != "" {
		return was.Scope != is.Scope && !(c.key.value != "" && c.route.Shared)
	}
	return !hostmatch.SameOrigin(was.URL, is.URL)
}

// server returns the URL of a visit, and its scope if the call has endpoints.
func (c *call) server(v *visit) route.Target {
	if v.Server == nil {
		return route.Target{URL: c.request.URL}
	}
	return *v.Target
}

// unsafeRequest reports whether the response belongs to a request with an unsafe method, or to a redirect of one.
func unsafeRequest(resp *http.Response) bool {
	if resp == nil || resp.Request == nil {
		return resp != nil
	}
	c := callOf(resp)
	return !safeMethod(askedFor(resp).Method) || c != nil && unsafeRequest(c.before)
}
