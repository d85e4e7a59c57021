package circuit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// slowStart limits the requests in flight after a circuit has closed again, if timeouts had opened it, or if its failures became
// slower. All requests at once would fill the server's queue again. The limit grows as
// responses succeed, and shrinks when too many fail slowly, like TCP's congestion window. A limit below
// one means a pause after each request: with 1/3, the pause is twice the latency of the request.
//
// It expires after a Window without a rejection, or six without a cut. Circuit.mu guards it.
type slowStart struct {
	rules          *Rules
	quick          time.Duration // maximum latency of a response without a queue
	size           float64       // the limit
	usualFailures  float64       // ratio of failures before the outage
	inFlight       []*counted    // requests that it admitted, in their order, without those that were overtaken
	slowestFailure time.Duration // highest latency of a failure
	admitted       time.Time     // time of the last request
	loaded         time.Time     // time when half of the limit was last in flight
	paused         time.Time     // no request is admitted until then
	quiet          time.Time     // time of the last rejection or slow failure
	cut            time.Time     // time of the last cut, or of the beginning
	wasCut         bool
	results        float64 // recent results since the last cut, without quick failures
	failures       float64 // failures among these results
	quickOnes      float64 // quick responses among them
}

const (
	newSize     = 0.25 // at the beginning and after a cut, as a ratio of the requests in flight; the least limit is half of it
	maxFailures = 0.2  // ratio of slow failures that causes a cut, if more fail than before the outage
	maxWindows  = 6    // windows without a cut after which slow start ends
)

// newSlowStart returns the slow start of a circuit that closes after a probe with the given
// latency. It is nil if the slowest failure was quicker than the response: then the server has no long queue. After a quick response
// the limit is a quarter of what was in flight before, at most MinRequests.
func newSlowStart(rules *Rules, baseline time.Duration, before *outage, slowestFailure, response time.Duration, now time.Time) *slowStart {
	if rules.Static || slowestFailure < response {
		return nil
	}
	// A client that has had no success before knows nothing that is more usual than the response.
	baseline = cmp.Or(baseline, response)
	l := &slowStart{rules: rules, quick: max(min(2*baseline, (baseline+slowestFailure)/2), slowestFailure/16), slowestFailure: slowestFailure, usualFailures: before.ratio, size: newSize, quiet: now, cut: now}
	if response <= l.quick {
		l.size = min(max(l.size, l.size*float64(baseline)/float64(before.usual)), float64(rules.MinRequests))
	}
	return l
}

func (l *slowStart) expired(now time.Time) bool {
	return now.Sub(l.quiet) > l.rules.Window || now.Sub(l.cut) > maxWindows*l.rules.Window || hold.WentBack(l.quiet, now)
}

// admit returns nil if a request may be sent. The caller must then call done once.
func (l *slowStart) admit(now time.Time) *Rejection {
	// After maxWait one more request is admitted, because those in flight may never end. Timeouts
	// and healthy responses (of long polls) may take half a minute.
	maxWait := min(l.slowestFailure, max(hold.Hanging, l.slowestFailure/8))
	switch {
	case now.Before(l.paused):
		l.quiet = now
		return &Rejection{NotBefore: l.paused}
	case len(l.inFlight) > 0 && float64(len(l.inFlight)+1) > l.size && now.Sub(l.admitted) < maxWait:
		l.quiet = now
		return &Rejection{NotBefore: now.Add(min(l.admitted.Add(maxWait).Sub(now), hold.Hanging))}
	}
	l.send(now)
	return nil
}

func (l *slowStart) send(now time.Time) {
	l.inFlight = append(l.inFlight, &counted{})
	l.admitted = now
	if float64(len(l.inFlight)) >= l.size/2 {
		l.loaded = now
	}
}

// newest returns the request that was admitted last.
func (l *slowStart) newest() *counted { return l.inFlight[len(l.inFlight)-1] }

// done records the result of a request.
func (l *slowStart) done(of *counted, sent, now time.Time, server outcome.Server) {
	inFlight, took := float64(len(l.inFlight)), now.Sub(sent)
	// If a later request was answered quickly, this one is in no queue. It hangs for a reason of its own.
	i := slices.Index(l.inFlight, of)
	overtaken := i < 0
	if !overtaken {
		l.inFlight = slices.Delete(l.inFlight, i, i+1)
	}
	// A quick failure indicates no queue.
	noQueue := took <= l.quick || overtaken
	if server == outcome.Silent || server == outcome.Fails && noQueue {
		return
	}
	maxPause := l.rules.MaxCooldown
	if server == outcome.Fails {
		l.quiet = now
		l.slowestFailure = max(l.slowestFailure, took)
		l.shrink(sent, now, inFlight)
	} else {
		l.count(0)
		l.grow(sent, took)
		if took <= l.quick {
			l.quickOnes++
			// Those before it may hang until their deadlines. They would hold all slots of a server that is well.
			l.inFlight = slices.Delete(l.inFlight, 0, max(i, 0))
			return
		}
		// A slow response is still a response.
		maxPause = min(maxPause, l.rules.Window/2)
	}
	// With a limit of one or more it is over now.
	pause := float64(took) * (1/l.size - 1)
	l.paused = now.Add(time.Duration(min(pause, float64(maxPause))))
}

// grow raises the limit after a response. While responses are quick, it doubles with each round
// trip until the first cut. Then it grows by one. It does not grow while responses take half as long as the slowest failure.
func (l *slowStart) grow(sent time.Time, took time.Duration) {
	quick, slow := took <= l.quick, took >= l.slowestFailure/2
	switch {
	case l.size < 1 && quick:
		l.size = min(l.size+0.25, 1)
	case l.size < 1 && !slow:
		l.size = min(l.size+0.02, 1)
	case l.loaded.Before(sent):
		// The limit was not reached, so the success does not show that more would be answered.
	case quick && !l.wasCut:
		l.size++
	case quick, !slow:
		l.size += 1 / l.size
	}
}

// shrink cuts the limit after a failure, if many requests fail that were sent after the last cut, and more than before
// the outage. If more are answered quickly, there is no queue: a part of the backends hangs.
func (l *slowStart) shrink(sent, now time.Time, inFlight float64) {
	// The cut has reacted to what was sent before it.
	if sent.Before(l.cut) {
		return
	}
	l.count(1)
	usual := l.usualFailures * l.results
	usual += 2 * math.Sqrt(usual*(1-l.usualFailures)) // by chance
	if l.failures < max(maxFailures*l.results, l.quickOnes, usual) || l.results < min(inFlight/2, float64(l.rules.MinRequests)) {
		return
	}
	l.size = max(newSize*min(l.size, inFlight), newSize/2)
	l.cut, l.wasCut, l.results, l.failures, l.quickOnes = now, true, 0, 0, 0
}

// count counts a result. Above a number of results it halves the counts, so that old results have
// less weight.
func (l *slowStart) count(failures float64) {
	l.results++
	l.failures += failures
	if l.results > max(float64(l.rules.MinRequests), 2*l.size) {
		l.results /= 2
		l.failures /= 2
		l.quickOnes /= 2
	}
}
