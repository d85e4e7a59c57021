package resilienthttp

import "time"

const (
	// spreadTime is the longest over which those who waited for a reset are
	// spread; half the window is the other bound.
	spreadTime = time.Second

	// scoutTime is how long, at most, the first request after a reset goes
	// alone; an eighth of the window is the other bound.
	scoutTime = time.Second

	// tooEarly is within what time after a reset a refusal means that the reset
	// was taken for too early: some servers round down.
	tooEarly = 1200 * time.Millisecond

	// probeTime is how long the last of a quota is left alone when requests that
	// were lost may have used it up.
	probeTime = time.Second

	// maxForesight bounds how far ahead a turn can be foreseen, and how long a
	// server can be waited for.
	maxForesight = 24 * time.Hour

	// mostLimit bounds what servers say of limits, for the arithmetic.
	mostLimit = 1 << 40
)

// quota is what is known of one axis of a bucket: requests, tokens, a policy's
// window. It is guarded by its bucket's lock, and its times are by our clock.
type quota struct {
	name   string
	costed bool  // one request takes more than one: those in flight cannot be counted
	silent bool  // the server speaks of it no more
	limit  int64 // what the server says, or the most that was ever seen to remain

	low     int64     // what remained, by the newest news
	refused bool      // which came with a refusal
	blind   int64     // of that, what may be gone without news of it
	lost    time.Time // when the last of those was
	old     int64     // those in flight that were so before the window began

	since        time.Time     // when this window began; zero: before anything was known
	early, reset time.Time     // it ends between them; zero: nobody has said
	guessed      bool          // they are only what windows before were like
	cut          bool          // reset is the longest that is waited, not the server's
	margin       time.Duration // what resets were too early by

	window  time.Duration // its length: as the server says, or as it looks
	told    bool          // the former
	seen    time.Duration // it is not shorter than this
	apart   time.Duration // nor longer than this, the least time between two resets
	ended   time.Time     // the last reset that was read
	widened time.Time     // who was sent before this says nothing about it
	period  time.Duration // from one beginning to the next, while calls wait for it

	refill refill
	pace   *pace // nil until answers come too late to go by them

	mentioned uint64    // the bucket's version at the last word
	version   uint64    // and when low was learned
	heard     time.Time // when that was
}

// learn joins one reading to what is known.
//
// Answers overtake each other. A request that was sent after the last news came
// brings newer ones. Of those that were under way together nobody knows which
// the server saw last, but within a window what remains only falls: the lowest
// is the newest. A reset that is rounded up is never earlier than its earliest
// reading; and a reset that moves on before it has come, again and again, is that
// of a bucket which fills up all the time.
func (q *quota) learn(r reading, lag time.Duration) {
	r.axis.Remaining = min(r.axis.Remaining, mostLimit)
	q.learnSize(r)
	if r.refused {
		q.learnRefusal(r, r.reset, lag)
	}
	if !r.reset.After(r.now) || r.sent.Before(q.since) && !r.early.After(r.now) {
		return // of the window before
	}
	r.reset = r.reset.Add(q.margin)
	switch {
	case q.reset.IsZero(), q.guessed:
		q.take(r)
	case q.refill.known():
		if r.newer || r.axis.Remaining < q.low+q.refill.gain(r.now.Sub(q.heard)) {
			q.take(r)
		}
	case r.early.After(q.reset):
		q.refill.moves++
		q.take(r)
	case r.reset.Before(q.early):
		if r.newer {
			q.take(r)
		}
	case r.newer && r.axis.Remaining > q.low:
		// It has been whole again meanwhile, or a little fuller: sooner than said.
		q.take(r)
	default:
		early, reset := later(q.early, r.early), sooner(q.reset, r.reset)
		if r.newer || r.axis.Remaining < q.low {
			q.take(r)
		}
		q.early, q.reset = sooner(early, reset), reset
	}
}

// take makes the reading what is known.
func (q *quota) take(r reading) {
	if r.newer || q.guessed || q.reset.IsZero() {
		q.blind = 0
	}
	q.low, q.refused = r.axis.Remaining, r.refused
	q.early, q.reset, q.guessed, q.cut = r.early, r.reset, false, r.cut
	q.heard, q.version = r.now, r.version
}

// learnSize learns limit and window, and whether it is a window at all.
func (q *quota) learnSize(r reading) {
	q.silent, q.mentioned = false, r.version
	limit := min(r.axis.Limit, mostLimit)
	if limit <= 0 {
		limit = max(q.limit, r.axis.Remaining)
	}
	if limit != q.limit {
		q.limit, q.refill = limit, refill{moves: q.refill.moves}
	}
	if r.axis.Window > 0 {
		q.told, q.window = true, min(r.axis.Window, r.longest)
	}
	if !q.told {
		q.learnWindow(r)
	}
	q.refill.learn(q.limit-r.axis.Remaining, r.least, r.most)
}

// learnWindow learns how long the window is, from what is left of it and from the
// time between two resets.
func (q *quota) learnWindow(r reading) {
	q.seen = min(max(q.seen, r.window, time.Second), r.longest)
	if apart := r.reset.Sub(q.ended); !q.ended.IsZero() && apart > 2*time.Second && (q.apart == 0 || apart < q.apart) {
		q.apart = (apart + 900*time.Millisecond).Truncate(time.Second) // two readings of one reset are less apart
	}
	q.ended = later(q.ended, r.reset)
	if r.now.Sub(q.widened) > 8*q.window && q.apart == 0 {
		// Refused was perhaps who had been overtaken on the way.
		q.window, q.widened = q.window-q.window/16, r.now
	}
	q.window = max(q.window, q.seen)
	q.capWindow()
}

// capWindow holds the window to the longest that it can be.
func (q *quota) capWindow() {
	most := q.apart
	if !q.refill.never && q.refill.least > 0 {
		most = max(most, q.refill.time(q.limit).Truncate(time.Second)) // if it is a token bucket
	}
	if most == 0 {
		most = 2 * q.seen
	}
	q.window = min(q.window, max(most, q.seen))
}

// learnRefusal learns from a request that was refused, with the next reset, or
// with its sending if none was told.
func (q *quota) learnRefusal(r reading, reset time.Time, lag time.Duration) {
	switch {
	case q.costed || q.since.IsZero():
	case q.late(lag):
		// Who keeps the pace and is refused takes the window for shorter than it
		// is.
		if !q.told && r.sent.After(q.widened) {
			q.window, q.widened = min(q.window+q.window/4, r.longest), r.now.Add(q.window)
			q.capWindow()
		}
	case !r.sent.Before(q.since) && r.sent.Sub(q.since) < tooEarly && reset.Sub(q.since) < tooEarly:
		// By our reckoning a window had just begun, and the server is only about
		// to begin one.
		q.margin = min(max(2*q.margin, tooEarly/4), time.Second, q.window/8)
	}
}

// missing is told of an answer that does not mention the axis.
func (q *quota) missing(r reading, lag time.Duration) {
	if q.since.IsZero() || r.sent.Before(q.since) || !q.guessed && !q.reset.IsZero() {
		return
	}
	if !r.refused {
		q.silent = true // in this window it has not been mentioned yet
		return
	}
	q.learnRefusal(r, r.sent, lag)
	if !q.costed && r.sent.Sub(q.since) < tooEarly {
		q.low, q.refused = 0, true
		q.early, q.reset, q.guessed = r.now, r.now.Add(tooEarly/4), true
	}
}

// lose counts a request of which nobody knows whether the server has counted it.
func (q *quota) lose(sent, now time.Time, version uint64) {
	if !q.costed && !q.reset.IsZero() && !sent.Before(q.since) {
		q.blind++
		q.lost, q.version = now, version
	}
}

// roll begins a new window when the reset has come, and reports whether it did:
// all of the quota is there again, as far as anybody knows, but for what those
// in flight may take of it.
func (q *quota) roll(now time.Time, inflight int64, waiting bool) bool {
	if q.reset.IsZero() || now.Before(q.reset) {
		return false
	}
	if took := q.reset.Sub(q.since); waiting && took >= q.window && took < 2*q.window+2*time.Second {
		q.period = took
	}
	whole := max(q.limit, 1)
	if q.cut {
		whole = max(q.low-q.blind, 1) // it is time to ask, no more
	}
	q.low, q.blind = whole, min(q.flying(inflight), whole-1)
	q.since, q.early, q.reset = q.reset, time.Time{}, time.Time{}
	q.refused, q.guessed, q.cut, q.old = false, false, false, inflight
	q.heard = now
	return !q.costed && !q.silent
}

// sent counts one more in flight.
func (q *quota) sent(now time.Time) {
	if q.reset.IsZero() && q.window > 0 {
		// The server may begin its window with this request. Unless it says
		// otherwise, the window is as long as the one before.
		q.early, q.reset, q.guessed = now, now.Add(q.window), true
	}
	if q.pace != nil {
		q.pace.add(now, max(q.limit, 1))
	}
}

// flying is how many were sent in this window and are not answered yet.
func (q *quota) flying(inflight int64) int64 { return max(inflight-q.old, 0) }

// left is what remains, as far as is known, those in flight not counted.
func (q *quota) left(now time.Time) int64 {
	left := q.low - q.blind
	if q.refill.known() {
		left = min(left+q.refill.gain(now.Sub(q.heard)), q.limit)
	}
	return left
}

// late reports whether answers come too late to go by what they say of the
// window: it is half over.
func (q *quota) late(lag time.Duration) bool {
	return !q.costed && q.limit > 0 && q.window > 0 && lag > q.window/2
}

// paced is the pace to keep when answers come too late.
func (q *quota) paced(now time.Time, inflight int64) *pace {
	if q.pace == nil {
		q.pace, q.widened = newPace(min(inflight, q.limit), now), now.Add(q.window)
	}
	return q.pace
}

// opening adds to o what this axis has to say.
func (q *quota) opening(o *opening, now time.Time, inflight int64, lag time.Duration) {
	if q.silent {
		return
	}
	left, flying := q.left(now), q.flying(inflight)
	switch {
	case q.late(lag):
		o.wait(q.paced(now, inflight).room(now, q.window, q.limit, 0))
		if q.low <= 0 && q.refused {
			o.shutUntil(q.reset)
		}
	case q.costed:
		if q.low <= 0 {
			o.shutUntil(q.reset)
		}
	case left > flying:
	case q.refill.known():
		enough := sooner(q.reset, q.heard.Add(q.refill.time(flying+1+q.blind-q.low)))
		switch {
		case flying == 0:
			o.wait(enough)
		case enough.After(now):
			o.awaitFlight(enough)
		default:
			o.awaitFlight(q.reset) // it is full, but not larger than what is in flight
		}
	case q.low <= 0:
		o.shutUntil(q.reset)
	case flying > 0:
		o.awaitFlight(q.reset)
	default:
		// It may be used up, or those that were lost have never come. After a
		// while one goes and sees.
		o.wait(sooner(q.reset, q.lost.Add(probeTime)))
	}
}

// foresee is when a call with so many ahead of it would have its turn.
func (q *quota) foresee(now time.Time, ahead, inflight int64, lag time.Duration) time.Time {
	if q.silent || q.costed || q.limit <= 0 || q.window <= 0 {
		return now
	}
	if q.late(lag) {
		return q.paced(now, inflight).room(now, q.window, q.limit, ahead)
	}
	left := q.left(now)
	if left <= 0 {
		left = q.low // what was lost may not be gone
	}
	if ahead < left {
		return now // unless those in flight take it: that is known when they are back
	}
	beyond := ahead - max(left-q.flying(inflight), 0)
	if q.refill.known() {
		return now.Add(q.refill.time(beyond + 1))
	}
	reset, period := q.reset, max(q.window, q.period)
	if reset.IsZero() {
		reset = now.Add(period)
	}
	windows := min(beyond/q.limit, int64(maxForesight/period))
	return reset.Add(time.Duration(windows)*period + min(lag, q.scout()) + q.spread(beyond%q.limit))
}

// scout is how long the first request of a window goes alone, at most.
func (q *quota) scout() time.Duration { return min(scoutTime, q.window/8) }

// step is the time between two requests at twice the speed that it takes to use
// all of the quota. Who waited for a reset must not be held up by more.
func (q *quota) step() time.Duration { return q.window / time.Duration(2*q.limit) }

// spread is how long after a reset a call leaves the line, at most, that has so
// many ahead of it.
func (q *quota) spread(ahead int64) time.Duration {
	longest := min(spreadTime, q.window/2)
	if step := q.step(); step < longest/time.Duration(ahead+1) {
		return step * time.Duration(ahead+1)
	}
	return longest
}
