package resilienthttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

// Explain returns the call as a transcript, from the results of http.Client.Do or
// Transport.RoundTrip: its attempts, waits and decisions, one line each. It has the scope and the
// method, and no URL path, query, header value or body. It never reads the body. For a response or
// an error that does not come from a Transport it is one line. It is safe for concurrent use, and
// while a hedge is in flight. See docs/errors.md.
func Explain(resp *http.Response, err error) string {
	if resp == nil && err == nil {
		return "no call: response and error are nil"
	}
	c, of := callOf(resp), (*Call)(nil)
	if failed, ok := errors.AsType[*Error](err); ok {
		if c = failed.call; c == nil { // the Transport did not begin the call
			of = &Call{Err: failed, Attempts: failed.Attempts, NotBefore: failed.NotBefore}
		}
	}
	switch {
	case c != nil:
		of = c.done()
	case of == nil:
		return "no call: no Transport returned this response or error"
	}
	e := explain(of)
	if err != nil && of.Err == nil { // for example of the response's body
		e.row("later", "", "", described(err))
	}
	return e.text()
}

// Explain returns the call as a transcript, as the function [Explain] does.
func (c *Call) Explain() string { return explain(c).text() }

// done returns the report of the call, which may not have ended.
func (c *call) done() *Call {
	done := Call{
		Scope: c.record.name, Request: c.request, Attempts: c.attempts(),
		Start: c.start, Latency: c.timeline.latency, QueueWait: c.timeline.queued, of: c,
	}
	switch {
	case !c.ended:
		done.Latency = time.Since(c.start)
		return &done
	case c.failure != nil:
		done.Err = c.failure
	default:
		done.Response = c.last.report.Response
	}
	done.NotBefore = c.notBefore()
	return &done
}

// explanation is a transcript in the making. Its times begin with the call.
type explanation struct {
	call  *Call
	title string
	rows  [][]string
}

func explain(c *Call) *explanation {
	ended := c.of == nil || c.of.ended
	if c.Start.IsZero() && len(c.Attempts) > 0 { // a program has made the call, or its Error
		begun := *c
		begun.Start, c = c.Attempts[0].Start, &begun
	}
	e := &explanation{call: c, title: title(c, ended)}
	var free time.Duration // the end of the attempts so far
	for i := range c.Attempts {
		a := &c.Attempts[i]
		at := a.Start.Sub(c.Start)
		if !a.Concurrent {
			sentAfter := at - a.QueueWait
			if i > 0 && (a.Endpoint == "" || sentAfter-free >= precision) { // otherwise the call moved at once
				e.wait(free, sentAfter, c.Attempts[:i])
			}
			e.queue(sentAfter, at, a)
		}
		e.row(transcript.Duration(at), name(a), transcript.Duration(a.Latency), resultOf(a))
		free = max(free, at+a.Latency)
	}
	if ended {
		e.end(free)
	}
	return e
}

func (e *explanation) text() string {
	if len(e.rows) == 0 {
		return e.title
	}
	table := transcript.Table([]string{"at", "event", "took", "result"}, e.rows)
	return e.title + "\n" + table[:len(table)-1]
}

func (e *explanation) row(cells ...string) { e.rows = append(e.rows, cells) }

// title returns the first line: which call it was, and how it ended.
func title(c *Call, ended bool) string {
	text := cmp.Or(c.Scope, "call")
	if c.Request != nil {
		text = cmp.Or(c.Request.Method, http.MethodGet) + " to " + text
	}
	failed, _ := errors.AsType[*Error](c.Err)
	switch {
	case !ended:
		return text + ": in progress since " + transcript.Duration(c.Latency) + began(c)
	case c.Response != nil:
		text += ": " + strconv.Itoa(c.Response.StatusCode)
	case failed != nil:
		text += ": " + failed.summary()
	default:
		text += ": no result"
	}
	return text + ", " + sent(c) + ", " + transcript.Duration(c.Latency) + began(c)
}

func sent(c *Call) string {
	attempts, hedges := 0, 0
	for i := range c.Attempts {
		attempts = max(attempts, c.Attempts[i].Number)
		if c.Attempts[i].Hedge {
			hedges++
		}
	}
	if attempts == 0 {
		return "nothing sent"
	}
	text := counted(attempts, "attempt")
	if hedges > 0 {
		text += ", " + counted(hedges, "hedge")
	}
	return text
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func began(c *Call) (text string) {
	const form = "15:04:05.000"
	start := c.Start.UTC()
	if start.IsZero() {
		return ""
	}
	text = ", began " + start.Format("2006-01-02 "+form)
	if c.Request != nil {
		if deadline, ok := c.Request.Context().Deadline(); ok {
			text += ", deadline " + deadline.UTC().Format(form) + " (after " + transcript.Duration(deadline.Sub(start)) + ")"
		}
	}
	return text
}

func name(a *Attempt) string {
	text := fmt.Sprintf("attempt %d", a.Number)
	switch {
	case a.Hedge:
		text = "hedge of " + text
	case a.Concurrent:
		text += ", concurrent"
	}
	if a.Endpoint != "" {
		text += " to " + a.Endpoint
	}
	return text
}

func resultOf(a *Attempt) string {
	switch {
	case a.Response != nil:
		text := strconv.Itoa(a.Response.StatusCode) + ", " + judged(a)
		if a.RetryAfter > 0 {
			text += ", server asks to wait " + transcript.Duration(a.RetryAfter)
		}
		if len(a.Policies()) > 0 {
			text += ", violated: " + strings.Join(a.Policies(), ", ")
		}
		if a.quota != nil && a.status() == http.StatusTooManyRequests {
			text += ", " + quotaSaid(a.quota)
		}
		return text
	case errors.Is(a.Err, neterr.ErrSuperseded):
		return "canceled: another attempt had its response first"
	case a.Err != nil:
		return described(a.Err) + ", " + judged(a)
	}
	return "no result yet"
}

func judged(a *Attempt) string {
	text := a.Verdict.String()
	if a.event != 0 {
		text = "failure event, " + text
	}
	if a.Resent {
		text += ", sent again by net/http"
	}
	return text
}

// described returns the type of an error, and its text without paths, queries and values.
func described(err error) string {
	text := neterr.SafeText(err)
	if failed, ok := errors.AsType[*Error](err); ok {
		text = failed.summary()
	}
	return ErrorType(err) + " (" + text + ")"
}

func (e *explanation) wait(from, to time.Duration, failed []Attempt) {
	reason := "backoff before the retry"
	last := slices.MaxFunc(failed, func(a, b Attempt) int { return a.end().Compare(b.end()) })
	if last.RetryAfter > 0 {
		reason += ", at least " + transcript.Duration(last.RetryAfter)
	}
	e.row(transcript.Duration(from), "wait", transcript.Duration(max(to-from, 0)), reason)
}

// queue adds the wait of an attempt for a permit, unless it is too short for a line: each attempt asks for one. A nil
// attempt was not sent.
func (e *explanation) queue(from, to time.Duration, a *Attempt) {
	if to-from < precision {
		return
	}
	reason := "wait for the rate limit"
	failed, _ := errors.AsType[*Error](e.call.Err)
	held := failed != nil && failed.Reason == ErrBreakerOpen
	if a != nil {
		held = a.Held
	}
	if held {
		reason = "wait for the circuit"
	}
	if a != nil && a.quota != nil && a.status() != http.StatusTooManyRequests { // otherwise the result has it
		reason += ": " + quotaSaid(a.quota)
	}
	e.row(transcript.Duration(from), "queue", transcript.Duration(to-from), reason)
}

// end adds the decision that ended the call, unless the verdict of its last attempt did.
func (e *explanation) end(free time.Duration) {
	c := e.call
	failed, _ := errors.AsType[*Error](c.Err)
	var stop error
	for i := range c.Attempts { // at most one has a StopReason
		stop = cmp.Or(stop, c.Attempts[i].StopReason)
	}
	event, reason := "", ""
	switch {
	case failed != nil && failed.byGate():
		event, reason = "rejected", failed.summary()
	case stop != nil:
		event, reason = "no retry", stop.Error()
	case failed != nil && (len(c.Attempts) == 0 || c.Latency-free >= precision): // canceled during a wait
		event, reason = "end", described(failed)
	}
	if reason == "" {
		return
	}
	if remaining := c.Latency - free; remaining >= precision {
		if len(c.Attempts) == 0 {
			e.queue(0, c.Latency, nil)
		} else {
			e.row(transcript.Duration(free), "wait", transcript.Duration(remaining), "for a retry that was not sent")
		}
	}
	if after := c.NotBefore.Sub(c.Start.Add(c.Latency)); after > 0 { // it is not if NotBefore is zero
		reason += ", next call in " + transcript.Duration(after)
	}
	e.row(transcript.Duration(c.Latency), event, "", reason)
}
