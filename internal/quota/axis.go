package quota

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

	// mostLimit bounds what servers say of limits, for the arithmetic.
	mostLimit = 1 << 40
)

// axis is what is known of one axis of a bucket: requests, tokens, a policy's
// window. It is guarded by its bucket's lock, and its times are by our clock.
type axis struct {
	name   string
	costed bool  // one request takes more than one: those in flight cannot be counted
	spoken bool  // the server speaks of it in answers to what it serves
	silent bool  // and does so no more
	sized  bool  // the server has said the limit
	limit  int64 // what the server says, or the most that was ever seen to remain

	low     int64     // what remained, by the newest news
	refused bool      // which came with a refusal, or was proven by one
	blind   int64     // of that, what may be gone without news of it
	lost    time.Time // when the last of those was
	old     int64     // those in flight that were so before the window began

	since        time.Time     // when this window began; zero: before anything was known
	early, reset time.Time     // it ends between them; zero: nobody has said
	guessed      bool          // they are only what windows before were like
	cut          bool          // reset is the longest that is waited, not the server's
	margin       time.Duration // what resets were too early by
	window       time.Duration // its length: as the server says, or as it looks
	told         bool          // the former
	refill       refill        // or how fast it comes back, if it has no windows
	period       time.Duration // from one beginning to the next, while requests wait for it
	belief       belief        // whether it is true that nothing remains

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
// reading; one that moves on before it has come, again and again, is that of a
// bucket which fills up all the time.
func (q *axis) learn(r reading) {
	if q.belief.wrong && !r.refused {
		q.mentioned = r.version
		return
	}
	q.belief.wrong = false
	if r.refused {
		q.learnRefusal(r, r.reset)
	} else {
		q.spoken = true
	}
	q.learnSize(r)
	if !r.reset.After(r.now) || r.sent.Before(q.since) && !r.early.After(r.now) {
		return // of the window before
	}
	r.reset = r.reset.Add(q.margin)
	switch {
	case q.reset.IsZero(), q.guessed:
		q.take(r)
	case q.refill.known():
		// A scout is served beside those for whom it fills up: it takes nothing from them.
		if !r.scout && (r.newer || r.word.Remaining < q.low+q.refill.gain(r.now.Sub(q.heard))) {
			q.take(r)
		}
	case r.early.After(q.reset):
		q.refill.moves++
		q.take(r)
	case r.reset.Before(q.early), r.newer && r.word.Remaining > q.low:
		// It has been whole again meanwhile, or a little fuller: sooner than said.
		if r.newer {
			q.take(r)
		}
	default:
		early, reset := later(q.early, r.early), sooner(q.reset, r.reset)
		if r.newer || r.word.Remaining < q.low {
			q.take(r)
		}
		q.early, q.reset = sooner(early, reset), reset
	}
}

// take makes the reading what is known.
func (q *axis) take(r reading) {
	if r.newer || q.guessed || q.reset.IsZero() {
		q.blind = 0
	}
	q.low, q.refused = r.word.Remaining, r.refused
	q.heard, q.version = r.now, r.version
	q.early, q.reset, q.guessed, q.cut = r.early, r.reset, false, r.cut
}

// learnSize learns limit and window, and how fast it comes back.
func (q *axis) learnSize(r reading) {
	q.silent, q.mentioned = false, r.version
	limit := min(r.word.Limit, mostLimit)
	moves := q.refill.moves
	if limit <= 0 {
		limit = max(q.limit, r.word.Remaining)
	} else if q.sized && limit != q.limit {
		moves = 0 // of another one
	}
	q.sized = q.sized || r.word.Limit > 0
	if limit != q.limit {
		q.limit, q.refill = limit, refill{moves: moves}
	}
	q.refill.learn(q.limit-r.word.Remaining, r.least, r.most)
	switch {
	case r.word.Window > 0:
		q.told, q.window = true, min(r.word.Window, r.longest)
	case !q.told:
		q.window = min(max(q.window, r.window, time.Second), r.longest)
	}
}

// learnRefusal learns from a request that was refused, with the next reset, or
// with its sending if none was told.
func (q *axis) learnRefusal(r reading, reset time.Time) {
	if q.costed || q.since.IsZero() || r.sent.Before(q.since) || q.silent || q.doubtful() {
		return // of the doubtful and the silent it says that they are used up, not when they began
	}
	if r.sent.Sub(q.since) < tooEarly && reset.Sub(q.since) < tooEarly {
		// By our reckoning a window had just begun, and the server is only about
		// to begin one.
		q.margin = min(max(2*q.margin, tooEarly/4), time.Second, q.window/8)
	}
}

// missing is told of an answer that does not mention the axis.
func (q *axis) missing(r reading) {
	switch {
	case q.since.IsZero() || r.sent.Before(q.since) || !q.guessed && !q.reset.IsZero():
	case r.refused:
		q.learnRefusal(r, r.sent)
		switch {
		case q.doubtful():
			q.refused = r.mute // else what the refusal speaks of is used up, not this
		case !q.costed && r.sent.Sub(q.since) < tooEarly:
			q.low, q.refused = 0, true
			q.early, q.reset, q.guessed = r.now, r.now.Add(tooEarly/4), true
		}
	case q.hearsay() && (q.low > 0 || q.refused):
		// What it serves is counted here. (What remained when it refused is no
		// limit to count by.)
		q.low = max(q.low-1, 0)
	default:
		q.silent = true // in this window it has not been mentioned yet; or the scout was served
	}
}

// hearsay reports whether the server has spoken of the axis in refusals only. They
// may have meant a part of the scope that most requests have nothing to do with.
func (q *axis) hearsay() bool { return !q.spoken && !q.costed && q.sized }

// doubtful reports whether hearsay is used up by our own count, and not by the word
// of a refusal in this window. Then one request goes as a scout, alone. If it is
// served, the hearsay is wrong, and the axis has no say until it is mentioned again;
// if it is refused, the scope is shut until the reset.
//
// So it is with what was once seen to be wrong, until two refusals in a row show it.
func (q *axis) doubtful() bool {
	return q.low <= 0 && (q.belief.shaken() || q.hearsay() && q.guessed && !q.refused)
}

// lose counts a request of which nobody knows whether the server has counted it.
func (q *axis) lose(sent, now time.Time, version uint64) {
	if !q.costed && !q.reset.IsZero() && !sent.Before(q.since) {
		q.blind++
		q.lost, q.version = now, version
	}
}

// roll begins a new window when the reset has come, and reports whether it did:
// all of the quota is there again, as far as anybody knows, but for what those
// in flight may take of it. Where answers come so late that they tell only of the
// windows before, nobody would ever know better: those are not counted then.
func (q *axis) roll(now time.Time, inflight int64, waiting bool, lag time.Duration) bool {
	if q.reset.IsZero() || now.Before(q.reset) {
		return false
	}
	if took := q.reset.Sub(q.since); waiting && took >= q.window && took < 2*q.window+2*time.Second {
		q.period = took
	}
	owed := int64(0)
	if q.spoken && q.low <= 0 && !q.silent && !q.guessed && !q.cut {
		owed = q.limit
	}
	q.belief.over(owed)
	whole := max(q.limit, 1)
	if q.cut && q.spoken {
		whole = max(q.low-q.blind, 1) // it is time to ask, no more
	}
	q.low, q.blind = whole, min(q.flying(inflight), whole-1)
	if lag > q.window/2 {
		q.blind = 0
	}
	q.since, q.early, q.reset = q.reset, time.Time{}, time.Time{}
	q.refused, q.guessed, q.cut, q.old = false, false, false, inflight
	q.heard = now
	return !q.costed && !q.silent
}

// sent counts one more in flight.
func (q *axis) sent(now time.Time) {
	if q.reset.IsZero() && q.window > 0 {
		// The server may begin its window with this request. Unless it says
		// otherwise, the window is as long as the one before.
		q.early, q.reset, q.guessed = now, now.Add(q.window), true
	}
}

// flying is how many were sent in this window and are not answered yet.
func (q *axis) flying(inflight int64) int64 { return max(inflight-q.old, 0) }

// left is what remains, as far as is known, those in flight not counted.
func (q *axis) left(now time.Time) int64 {
	left := q.low - q.blind
	if q.refill.known() {
		left = min(left+q.refill.gain(now.Sub(q.heard)), q.limit)
	}
	return left
}

// opening adds to o what this axis has to say.
func (q *axis) opening(o *opening, now time.Time, inflight int64) {
	left, flying := q.left(now), q.flying(inflight)
	switch {
	case q.silent, q.costed && q.low > 0, !q.costed && left > flying:
	case !q.costed && q.refill.known():
		enough := sooner(q.reset, q.heard.Add(q.refill.time(flying+1+q.blind-q.low)))
		switch {
		case flying == 0:
			o.wait(enough)
		case enough.After(now):
			o.awaitFlight(enough)
		default:
			o.awaitFlight(q.reset) // it is full, but not larger than what is in flight
		}
	case q.low <= 0 && !q.doubtful():
		o.shutUntil(q.reset)
	case flying > 0:
		o.awaitFlight(q.reset)
	default:
		// It may be used up; or it is larger than we think, or those that were lost
		// have never come. One goes and sees; if any were lost, after a while.
		o.wait(sooner(q.reset, q.lost.Add(probeTime)))
	}
}

// foresee is when a request with so many ahead of it would have its turn.
func (q *axis) foresee(now time.Time, ahead, inflight int64, lag time.Duration) time.Time {
	if q.silent || q.costed || q.limit <= 0 || q.window <= 0 || q.doubtful() {
		return now // the scout will tell
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
	windows := min(beyond/q.limit, int64(Longest/period))
	return reset.Add(time.Duration(windows)*period + min(lag, q.scout()) + q.spread(beyond%q.limit))
}

// scout is how long the first request of a window goes alone, at most.
func (q *axis) scout() time.Duration { return min(scoutTime, q.window/8) }

// step is the time between two requests at twice the speed that it takes to use
// all of the quota. Who waited for a reset must not be held up by more.
func (q *axis) step() time.Duration { return q.window / time.Duration(2*q.limit) }

// spread is how long after a reset a request leaves the line, at most, that has so
// many ahead of it.
func (q *axis) spread(ahead int64) time.Duration {
	longest := min(spreadTime, q.window/2)
	if step := q.step(); step < longest/time.Duration(ahead+1) {
		return step * time.Duration(ahead+1)
	}
	return longest
}
