// Package outcome is the table of what comes back from an attempt. Signs go in: a status, or how the attempt ended without a
// response, and what else is known of it. One Outcome comes out: what the call does next, what is known of the work, and what the
// attempt says about the server, about its limits and for State. Nothing else in this module judges a status or an error of net/http.
//
// Each sign counts only for what it shows. A proxy can write any status after the server has done the work, so only the rows
// with NotExecuted and NotSent prove that it was not done. docs/retries.md has the table.
//
// All functions are pure and safe for concurrent use.
package outcome

import "net/http"

// Came is what came back from an attempt: the status of its response, or one of the constants, which are below 100.
type Came uint16

// What comes back instead of a response.
const (
	Invalid        Came = 1 + iota // the request, the configuration or the result of Base is invalid
	InnerLimit                     // a Transport in Base rejected the request by its rate limit
	OwnBody                        // the caller's request body failed
	Own                            // an error of Base itself, which has asked for no connection
	Intermediary                   // a proxy or a token endpoint rejects the client, or the error is marked as permanent
	NoToken                        // a token endpoint has no token now
	Stranger                       // unknown host, untrusted certificate, or an HTTP response to https
	Calm                           // ENHANCE_YOUR_CALM of HTTP/2
	Broken                         // any other error
	NetworkTimeout                 // a timeout of net/http or of the network
	AttemptTimeout
	CallDeadline
	Overtaken  // an attempt at another server had its response first
	Superseded // another attempt had its response first
	Canceled   // by the caller
)

// Status returns what a response with a status is. A status that HTTP does not have is as the nearest one.
func Status(code int) Came { return Came(min(max(code, http.StatusContinue), 999)) }

// Response reports whether a response came back.
func (c Came) Response() bool { return c >= http.StatusContinue }

// Over reports whether nothing may follow the attempt: the call has ended, or another attempt has the response.
func (c Came) Over() bool { return CallDeadline <= c && c <= Canceled }

// Signs are what is known of an attempt beside what came back.
type Signs uint16

// The signs.
const (
	AsksToWait      Signs = 1 << iota // the response has Retry-After or a similar field
	Exhausted                         // the response shows an exhausted quota
	SaysNotExecuted                   // a field of the response, or HTTP/2, says that nothing was executed
	SaysRetry                         // a should-retry field asks for a retry
	SaysNoRetry                       // a should-retry field asks for none
	MayBeAtWork                       // the server may still work at another attempt of the call
	Elsewhere                         // another connection may reach another server
	Late                              // the attempt had longer than responses take now
	Answered                          // the scope of the request has answered before
	Unsent                            // certainly no byte of the request was written
	Resent                            // the request was sent twice within the attempt, and the first one has no result
	Expects                           // the client has added Expect: 100-continue
)

// Verdict is what the call does. It has the values of the root's Verdict.
type Verdict uint8

// The verdicts.
const (
	Success   Verdict = 1 + iota
	Permanent         // a retry would have the same result
	Transient         // a retry may succeed
	Throttled         // a retry may succeed, and the server asks for fewer requests
)

// Work is what is known of the work that the request asks for.
type Work uint8

// What is known of the work.
const (
	InDoubt     Work = iota // it may have been done, and no result tells of it
	NotSent                 // the server did not get the request
	NotExecuted             // the server got the request, and executed nothing of it
	Known                   // the response tells what became of it
)

// NotDone reports whether it is certain that the work was not done, so that any server may get the request.
func (w Work) NotDone() bool { return w == NotSent || w == NotExecuted }

// Server is what the attempt says about the server.
type Server uint8

// What an attempt says about the server.
const (
	Silent  Server = iota // nothing
	Works                 // the server works
	Fails                 // the server does not work
	Rejects               // the server enforces a limit: it is alive, and may not serve
)

// Limit is what the attempt says about the limits of the server.
type Limit uint8

// What an attempt says about limits.
const (
	NoLimit  Limit = iota // nothing
	Served                // the limits admitted the request
	Rejected              // a limit rejected the request
)

// Count is the column of State in which the attempt counts, if it is the last one of its call.
type Count uint8

// The columns of State.
const (
	CountNone Count = iota // the caller canceled, or another attempt had its response first
	CountSuccess
	CountClientError
	CountServerError
	CountNetworkError
	CountTimeout
	CountThrottled // by the server
	CountRejected  // by the breaker or the rate limit of the call
	Counts         // the number of columns
)

// Trouble is the kind of a failure, by which the wait before a retry is chosen.
type Trouble uint8

// The kinds of failures.
const (
	Passing  Trouble = iota // it may be over at once
	Overload                // the server has too much work, or is being restarted
	Slow                    // a timeout
	Busy                    // the server works at another attempt of the call
)

// Outcome is what follows from what came back.
type Outcome struct {
	Verdict Verdict
	Work    Work
	Server  Server
	Limit   Limit
	Count   Count
	Trouble Trouble
	Lost    bool // if the work is in doubt, the server may still be at it: nothing came back, or a gateway says that it has lost the response
}

// row is a row of the table: what came back, from first to last, and signs of which it needs one. No signs: it needs none.
type row struct {
	first, last Came
	needs       Signs
	Outcome
}

const overloaded Came = 529 // "site is overloaded", of Anthropic and others

// table has the outcome for each sign. The first row that fits decides. (RFC 9110 section 15, RFC 6585, RFC 8470.)
var table = [...]row{ //nolint:gochecknoglobals // never written to
	{http.StatusOK, 399, 0, Outcome{Success, Known, Works, Served, CountSuccess, Passing, false}},
	{http.StatusContinue, 199, 0, Outcome{Success, InDoubt, Works, Served, CountSuccess, Passing, false}}, // the result of a 101 is in another protocol

	{http.StatusTooManyRequests, http.StatusTooManyRequests, 0, Outcome{Throttled, NotExecuted, Rejects, Rejected, CountThrottled, Overload, false}},
	{http.StatusForbidden, http.StatusForbidden, AsksToWait | Exhausted, Outcome{Throttled, NotExecuted, Rejects, Rejected, CountThrottled, Passing, false}}, // as GitHub limits
	{http.StatusBadRequest, http.StatusBadRequest, Exhausted, Outcome{Permanent, Known, Works, NoLimit, CountClientError, Passing, false}},
	{http.StatusRequestTimeout, http.StatusRequestTimeout, 0, Outcome{Transient, InDoubt, Silent, NoLimit, CountTimeout, Passing, false}}, // Envoy sends it after it has passed the request on
	{http.StatusConflict, http.StatusConflict, AsksToWait, Outcome{Transient, Known, Works, Served, CountClientError, Passing, false}},
	{http.StatusConflict, http.StatusConflict, MayBeAtWork, Outcome{Transient, Known, Works, Served, CountClientError, Busy, false}},                        // else it is about the resource
	{http.StatusExpectationFailed, http.StatusExpectationFailed, Expects, Outcome{Transient, NotExecuted, Works, Served, CountClientError, Passing, false}}, // RFC 9110 section 10.1.1: repeat it without
	{http.StatusMisdirectedRequest, http.StatusMisdirectedRequest, Elsewhere, Outcome{Transient, NotExecuted, Works, Served, CountClientError, Passing, false}},
	{http.StatusMisdirectedRequest, http.StatusMisdirectedRequest, 0, Outcome{Permanent, NotExecuted, Works, Served, CountClientError, Passing, false}},
	{http.StatusTooEarly, http.StatusTooEarly, 0, Outcome{Transient, NotExecuted, Works, Served, CountClientError, Passing, false}},
	{499, 499, 0, Outcome{Permanent, InDoubt, Silent, NoLimit, CountClientError, Passing, false}}, // a gateway's client has gone
	{http.StatusBadRequest, 498, 0, Outcome{Permanent, Known, Works, Served, CountClientError, Passing, false}},

	{http.StatusServiceUnavailable, http.StatusServiceUnavailable, Exhausted, Outcome{Throttled, InDoubt, Rejects, Rejected, CountThrottled, Overload, false}},
	{http.StatusServiceUnavailable, http.StatusServiceUnavailable, AsksToWait, Outcome{Throttled, InDoubt, Fails, NoLimit, CountServerError, Overload, false}}, // as Varnish says after the work
	{http.StatusServiceUnavailable, http.StatusServiceUnavailable, 0, Outcome{Transient, InDoubt, Fails, NoLimit, CountServerError, Overload, false}},
	{overloaded, overloaded, 0, Outcome{Throttled, InDoubt, Fails, NoLimit, CountServerError, Overload, false}},
	{http.StatusNotImplemented, http.StatusNotImplemented, 0, Outcome{Permanent, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},
	{http.StatusBadGateway, http.StatusGatewayTimeout, 0, Outcome{Transient, InDoubt, Fails, NoLimit, CountServerError, Passing, true}},
	{http.StatusHTTPVersionNotSupported, http.StatusVariantAlsoNegotiates, 0, Outcome{Permanent, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},
	{http.StatusLoopDetected, http.StatusLoopDetected, 0, Outcome{Permanent, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},
	{http.StatusNotExtended, http.StatusNetworkAuthenticationRequired, 0, Outcome{Permanent, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},
	{http.StatusInternalServerError, 599, 0, Outcome{Transient, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},
	{600, 999, 0, Outcome{Permanent, InDoubt, Fails, NoLimit, CountServerError, Passing, false}},

	{Invalid, Intermediary, 0, Outcome{Permanent, InDoubt, Silent, NoLimit, CountNetworkError, Passing, true}},
	{NoToken, NoToken, 0, Outcome{Transient, InDoubt, Silent, NoLimit, CountNetworkError, Passing, true}},
	{Stranger, Stranger, Answered, Outcome{Transient, InDoubt, Fails, NoLimit, CountNetworkError, Passing, true}}, // it is being restarted
	{Stranger, Stranger, 0, Outcome{Permanent, InDoubt, Silent, NoLimit, CountNetworkError, Passing, true}},
	{Calm, Calm, 0, Outcome{Throttled, InDoubt, Silent, NoLimit, CountNetworkError, Passing, true}},
	{Broken, Broken, 0, Outcome{Transient, InDoubt, Fails, NoLimit, CountNetworkError, Passing, true}},
	{NetworkTimeout, AttemptTimeout, 0, Outcome{Transient, InDoubt, Fails, NoLimit, CountTimeout, Slow, true}},
	{CallDeadline, CallDeadline, Late, Outcome{Permanent, InDoubt, Fails, NoLimit, CountTimeout, Slow, true}},
	{CallDeadline, CallDeadline, 0, Outcome{Permanent, InDoubt, Silent, NoLimit, CountTimeout, Passing, true}},
	{Overtaken, Overtaken, Late, Outcome{Permanent, InDoubt, Fails, NoLimit, CountNone, Slow, true}},
	{Overtaken, Canceled, 0, Outcome{Permanent, InDoubt, Silent, NoLimit, CountNone, Passing, true}},
}

// Of returns the outcome of an attempt.
func Of(came Came, signs Signs) (o Outcome) {
	for i := range table {
		r := &table[i]
		if r.first <= came && came <= r.last && (r.needs == 0 || r.needs&signs != 0) {
			o = r.Outcome
			break
		}
	}
	if o.Verdict != Success {
		o.heed(signs, came.Response())
	}
	if signs&Resent != 0 && came/100 != http.StatusOK/100 {
		o.Work = InDoubt // the server knows the second request by its key, so only a success tells of both
	}
	return o
}

// heed changes the outcome of a failure by what the server or the connection says of it beside the status.
func (o *Outcome) heed(signs Signs, response bool) {
	switch {
	case signs&SaysNoRetry != 0:
		o.Verdict = Permanent
	case signs&SaysRetry != 0 && o.Verdict == Permanent:
		o.Verdict = Transient
	}
	switch {
	case signs&Unsent != 0:
		o.Work = NotSent
		o.Trouble = max(o.Trouble, Overload) // a server that is being restarted refuses connections
	case signs&SaysNotExecuted != 0:
		o.Work = NotExecuted
		if !response {
			o.Server = Silent // HTTP/2: it ends a connection or a stream in good order
		}
	}
}

// Overrule returns the outcome with a verdict of the caller, which knows the API better than the table.
func (o Outcome) Overrule(v Verdict) Outcome {
	o.Verdict = v
	switch {
	case v == Success:
		o.Count = CountSuccess
		if o.Server == Fails {
			o.Server = Works
		}
	case o.Count == CountSuccess:
		o.Count = CountServerError
	}
	return o
}
