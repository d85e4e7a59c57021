package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// responseClass is how a call, or its last attempt, ended.
type responseClass uint8

const (
	classNone responseClass = iota // the caller canceled it, or another copy had its response first
	classSuccess
	classClientError
	classServerError
	classNetworkError
	classTimeout
	classThrottled // 408 or 429
	classRejected  // by the breaker or the rate limit
	classes
)

func (a *attempt) class() responseClass {
	resp, err := a.report.Response, a.report.Err
	switch {
	case a.end == endCanceled || a.end == endSuperseded:
		return classNone
	case a.end == endTimeout, a.end == endDeadline, resp == nil && neterr.TimedOut(err):
		return classTimeout
	case resp == nil:
		return classNetworkError
	case a.report.Verdict == VerdictSuccess:
		return classSuccess
	}
	switch status := a.report.status(); {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return classThrottled
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return classClientError
	}
	return classServerError
}

func (c *call) class() responseClass {
	switch {
	case c.failure == nil:
	case c.failure.byGate():
		return classRejected
	case errors.Is(c.failure.Err, context.Canceled):
		return classNone
	case c.failure.Reason == ErrDeadline:
		return classTimeout
	case c.last == nil:
		return classNone
	}
	return c.last.class()
}

// endCounts counts the calls by how they ended. It takes no lock.
type endCounts struct {
	failing atomic.Int64 // the start of the first call that failed since the last success, since the origin; zero means none
	failed  atomic.Int64 // the calls that failed since then
	ended   window.Window[[classes]atomic.Uint32]
}

func (e *endCounts) add(start, at time.Duration, class responseClass) {
	if class == classNone {
		return
	}
	e.ended.At(at, window.Status, window.Buckets)[class].Add(1)
	switch {
	case class != classSuccess:
		e.fail(start)
		e.failed.Add(1)
	case e.failing.Load() != 0:
		e.failed.Store(0)
		e.failing.Store(0)
	}
}

func (e *endCounts) fail(start time.Duration) {
	if e.failing.Load() == 0 {
		e.failing.CompareAndSwap(0, int64(max(start, 1)))
	}
}

// counts returns the number of calls in the buckets from one to before another, by how they ended. Bucket 0 is the newest.
func (e *endCounts) counts(at time.Duration, from, to int) (n [classes]int, calls int) {
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
		ClientErrors: n[classClientError] + n[classThrottled], Throttled: n[classThrottled], ServerErrors: n[classServerError],
		NetworkErrors: n[classNetworkError], Timeouts: n[classTimeout], Rejected: n[classRejected],
	}
	if since := e.failing.Load(); since != 0 {
		s.Since, s.CallsSince = origin.Add(time.Duration(since)), int(e.failed.Load())
	}
	return s
}
