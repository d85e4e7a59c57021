package resilienthttp

import "time"

// timeline is where the time of a call went.
type timeline struct {
	accounted time.Time     // all time before is in the report of an attempt, or in waited
	waited    time.Duration // after the last attempt, and not in its report yet
	queued    time.Duration // after the last attempt: see Call.QueueWait
	latency   time.Duration // of a call that has ended
}

// wait counts the time until now as a wait after the last attempt, and returns the sum of these waits.
func (t *timeline) wait(now time.Time) time.Duration {
	t.waited += max(now.Sub(t.accounted), 0)
	t.accounted = now
	return t.waited
}

// noteTime notes how much time the attempt's report contains, with the wait for copies.
func (c *call) noteTime(a *attempt) {
	c.timeline.accounted = a.report.Start.Add(a.report.Latency)
	c.timeline.waited = 0
	if a.hedged == nil || !a.hedged.waited && len(a.hedged.copies) == 0 {
		return
	}
	a.report.RetryWait = c.timeline.wait(time.Now())
	if c.last != a {
		c.timeline.waited = 0 // it was the wait after a, and not after the copy that followed
	}
}

// noteTrailingWait notes the wait after the last attempt. If copies follow the attempt, it is
// the attempt's RetryWait; otherwise it is the call's QueueWait.
func (c *call) noteTrailingWait() {
	if c.retries != nil && len(c.retries.later) > 0 && c.last != c.retries.later[len(c.retries.later)-1] {
		c.last.report.RetryWait = c.timeline.waited
	} else {
		c.timeline.queued += c.timeline.waited
	}
	c.timeline.waited = 0
}
