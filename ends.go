package resilienthttp

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// count returns the column of State for the call.
func (c *call) count() outcome.Count {
	switch {
	case c.failure == nil:
		// The last attempt counts, also if its status is a failure.
	case c.failure.byGate():
		return outcome.CountRejected
	case errors.Is(c.failure.Err, context.Canceled):
		// The caller has canceled it, which says nothing about the scope.
		return outcome.CountNone
	case c.failure.Reason == ErrDeadline:
		// Also if the time ended during a wait, when the last attempt has another outcome.
		return outcome.CountTimeout
	case c.last == nil:
		// Nothing was sent, and no gate has rejected it.
		return outcome.CountNone
	}
	return c.last.outcome.Count
}

// endCounts counts the calls by how they ended. It takes no lock.
type endCounts struct {
	since      atomic.Int64 // the start of the first call that failed since the last success, since the origin; zero: it is not failing
	callsSince atomic.Int64 // the calls that failed since then
	ended      window.Window[[outcome.Counts]atomic.Uint32]
}

func (e *endCounts) add(start, at time.Duration, count outcome.Count) {
	if count == outcome.CountNone {
		return
	}
	e.ended.At(at, window.Status, window.Buckets)[count].Add(1)
	switch {
	case count != outcome.CountSuccess:
		e.noteFailing(start)
		e.callsSince.Add(1)
	case e.since.Load() != 0:
		e.callsSince.Store(0)
		e.since.Store(0)
	}
}

// noteFailing notes that the scope is failing since a time, unless it was before.
func (e *endCounts) noteFailing(start time.Duration) {
	e.since.CompareAndSwap(0, int64(max(start, 1)))
}

// counts returns the number of calls in the buckets from one to before another, by how they ended. Bucket 0 is the newest.
func (e *endCounts) counts(at time.Duration, from, to int) (n [outcome.Counts]int, calls int) {
	for age, ended := range e.ended.All(at, window.Status, window.Buckets) {
		if age < from || age >= to {
			continue
		}
		for class := range ended {
			some := int(ended[class].Load())
			n[class], calls = n[class]+some, calls+some
		}
	}
	return n, calls
}

func (e *endCounts) read(at time.Duration, buckets int, origin time.Time) ResponseStatus {
	n, calls := e.counts(at, 0, buckets)
	s := ResponseStatus{
		Calls:        calls,
		ClientErrors: n[outcome.CountClientError] + n[outcome.CountThrottled], Throttled: n[outcome.CountThrottled], ServerErrors: n[outcome.CountServerError],
		NetworkErrors: n[outcome.CountNetworkError], Timeouts: n[outcome.CountTimeout], Rejected: n[outcome.CountRejected],
	}
	if since := e.since.Load(); since != 0 {
		s.Since, s.CallsSince = origin.Add(time.Duration(since)), int(e.callsSince.Load())
	}
	return s
}
