package quota

import "time"

const (
	// maxSpread is the longest time over which queued calls are released after a reset;
	// half of the window is the other bound.
	maxSpread = time.Second

	// maxRelease is the same if no quota is known; half of the time that they have waited is
	// the other bound.
	maxRelease = 10 * time.Second

	// maxPacing is how long calls are released at the rate of a quota that no response has
	// shown since.
	maxPacing = time.Minute

	// maxAlone is how long, at most, the first request after a reset goes alone; an eighth
	// of the window is the other bound.
	maxAlone = time.Second

	// maxLimit bounds the limits that servers advertise, for the arithmetic.
	maxLimit = 1 << 40
)

// dimension is one quota of a bucket: requests, tokens, or a policy's window. The bucket's
// lock guards it; its times are by the local clock.
type dimension struct {
	name   string
	costed bool  // a request takes more than one: those in flight cannot be counted
	spoken bool  // responses to served requests have it; else only rejections have
	silent bool  // it is ignored until a response has it again
	denied bool  // successes have contradicted it: it is ignored until a rejection has it
	limit  int64 // 0: unknown

	remaining int64     // by the newest response
	old       int64     // requests in flight that were sent before this window
	since     time.Time // when this window began; zero: unknown

	early, reset time.Time     // it ends between them; zero: unknown
	guessed      bool          // they follow from the last window
	cut          bool          // reset is the longest block, not the server's
	moves        int           // of the reset to a later time, before it had come
	part         bool          // of a token bucket that is ready at the reset
	window       time.Duration // the server's, or the longest that was seen

	plausible bool // a response has shown that something remains, or a limit of 1, or a rejection has it
	zeros     int  // windows begun before that

	claimed   bool      // the newest response says that nothing remains
	confirmed bool      // that was true once: a rejection or a reset has shown it
	rejected  bool      // a rejection has
	served    int64     // requests that were served since the last exhaustion ended
	from      time.Time // when it did

	mentioned uint64 // the bucket's version at the last response that had it
	version   uint64 // and when remaining was learned
}

// maxZeros is how many windows a quota may begin with nothing, while requests are served,
// before it is taken for no quota.
const maxZeros = 3

// learn joins an observation to what is known. It returns false if it is of the window
// before.
//
// Responses overtake each other. One to a request that was sent after the last observation
// is newer. Of those in flight together it is unknown which the server saw last; but within
// a window the remaining count only falls, so the lowest is the newest.
func (d *dimension) learn(o observation) bool {
	d.mentioned = o.version
	if d.denied && !o.rejected {
		return true
	}
	d.plausible = d.plausible || o.rejected || o.field.Remaining > 0 || o.field.Limit == 1
	if !d.plausible && d.zeros >= maxZeros {
		d.denied = true
		return true
	}
	wasSilent := d.silent
	d.silent, d.denied = false, false
	d.spoken = d.spoken || !o.rejected
	d.learnSize(o)
	if !o.reset.After(o.now) || o.sent.Before(d.since) && !o.early.After(o.now) {
		return false
	}
	switch {
	case d.part && !o.newer: // of before it was empty
	case d.reset.IsZero(), d.guessed, wasSilent:
		d.take(o)
	case o.early.After(d.reset):
		if !d.cut && d.early.After(o.now) && d.refills(o) {
			d.moves++
		}
		d.take(o)
	case o.reset.Before(d.early), o.newer && o.field.Remaining > d.remaining:
		if o.newer { // a window has begun unseen, or it is a token bucket
			d.take(o)
		}
	default:
		early, reset := later(d.early, o.early), sooner(d.reset, o.reset)
		if o.newer || o.field.Remaining < d.remaining {
			d.take(o)
		}
		d.early, d.reset = sooner(early, reset), reset
	}
	if d.remaining == 0 && o.field.Remaining == 0 {
		d.empty(o.now)
	}
	return true
}

// take makes the observation what is known.
func (d *dimension) take(o observation) {
	if d.claimed && o.field.Remaining > 0 {
		announced := d.limit
		if d.bucket() {
			announced /= bucketPart
		}
		d.confirmed = d.confirmed || 2*o.field.Remaining >= announced // the reset brought it
	}
	d.claimed = o.field.Remaining == 0
	d.remaining, d.version = o.field.Remaining, o.version
	d.early, d.reset, d.guessed, d.cut = o.early, o.reset, false, o.cut
}

// A dimension whose reset moves on before it comes is a token bucket: the reset is when it
// is full. When it is empty, requests wait for a part of it.
const (
	bucketMoves = 3
	bucketPart  = 4
)

func (d *dimension) bucket() bool { return d.moves >= bucketMoves && d.limit >= bucketPart }

// refills reports whether the reset may be when a token bucket is full: one that has half
// of its tokens needs half of its window. The reset of a sliding window is always a window
// away.
func (d *dimension) refills(o observation) bool {
	used := 1 - float64(o.field.Remaining)/float64(max(d.limit, 1))
	return o.field.Window == 0 || o.reset.Sub(o.now) <= time.Duration(used*float64(d.window))+time.Second
}

// empty makes a token bucket ready again when a part of it has come.
func (d *dimension) empty(now time.Time) {
	if d.bucket() {
		d.early = now.Add(d.early.Sub(now) / bucketPart)
		d.reset = now.Add(d.reset.Sub(now) / bucketPart)
		d.part = true
	}
}

// learnSize learns limit and window.
func (d *dimension) learnSize(o observation) {
	if limit := min(o.field.Limit, maxLimit); limit > 0 {
		d.limit = limit
	}
	if d.window = min(max(d.window, o.window, time.Second), o.longest); o.field.Window > 0 {
		d.window = min(o.field.Window, o.longest)
	}
}

// serve counts a request that was served, and reports whether that contradicts the dimension.
func (d *dimension) serve(o observation) bool {
	if !o.sent.Before(d.from) {
		d.served++
	}
	inWindow := !d.since.IsZero() && !o.sent.Before(d.since) && (d.guessed || d.reset.IsZero())
	if d.mentioned != o.version && d.spoken && inWindow {
		d.silent = true // in this window no response has had it
	}
	if d.denied || !d.contradicted(o.now) {
		return false
	}
	d.denied = true
	return true
}

// roll begins a new window if the reset has come, and reports whether it did. All of the
// quota is assumed to be there again, except what the requests in flight may take of it.
// What only rejections say ends with its window.
func (d *dimension) roll(now time.Time, inflight int64, trip time.Duration) bool {
	if d.reset.IsZero() || now.Before(d.reset) {
		return false
	}
	across := d.inWindow(inflight)
	if trip > d.window/2 {
		across = 0 // no response would ever tell of the same window
	}
	if !d.plausible {
		d.zeros++
	}
	d.old = inflight
	d.since, d.early, d.reset, d.guessed = d.reset, time.Time{}, time.Time{}, false
	switch {
	case !d.spoken:
		d.silent = true
	case d.cut:
		d.remaining = max(d.remaining, 1) // the server's own reset is later: one request asks
	case d.part:
		d.remaining = max(d.limit/bucketPart-1, 1)
	default:
		d.remaining = max(d.limit-across, 1)
	}
	d.cut, d.part = false, false
	return !d.costed
}

// sent counts one more request in flight. The server may begin a window with it.
func (d *dimension) sent(now time.Time) {
	if d.reset.IsZero() && d.window > 0 && !d.silent {
		d.early, d.reset, d.guessed = now, now.Add(d.window), true
	}
}

// inWindow is how many of the requests in flight were sent in this window.
func (d *dimension) inWindow(inflight int64) int64 { return max(inflight-d.old, 0) }

// left is what remains when the requests in flight are served.
func (d *dimension) left(inflight int64) int64 {
	if d.costed {
		return d.remaining
	}
	return d.remaining - d.inWindow(inflight)
}

// mute reports whether the dimension is ignored.
func (d *dimension) mute() bool { return d.silent || d.denied }

// exhausted reports whether nothing remains until a reset that lies ahead.
func (d *dimension) exhausted(now time.Time) bool {
	return !d.mute() && d.remaining <= 0 && d.reset.After(now)
}

// reject is called when a rejection has shown that the dimension is exhausted.
func (d *dimension) reject(now time.Time, current bool) {
	if current && d.remaining > 0 {
		d.remaining = 0
		d.empty(now)
	}
	if d.contradicted(now) {
		d.denied = true
		return
	}
	d.confirmed, d.rejected, d.served, d.from = true, true, 0, later(d.reset, now)
}

// contradicted reports whether more requests were served since the last exhaustion than a
// quota of that limit and window allows: then it is something else, as the size of a bucket
// that refills faster.
func (d *dimension) contradicted(now time.Time) bool {
	if d.spoken || d.costed || d.limit <= 0 || d.window <= 0 {
		return false
	}
	windows := int64(1 + max(now.Sub(d.from), 0)/d.window)
	return !d.from.IsZero() && d.served > d.limit && d.served/windows > d.limit
}

// estimate is when a request with so many ahead of it could be sent.
func (d *dimension) estimate(now time.Time, ahead, inflight int64, trip time.Duration) time.Time {
	switch {
	case d.mute():
		return now
	case d.costed && d.exhausted(now):
		return d.reset
	case d.costed, d.limit <= 0, d.window <= 0, ahead < d.remaining:
		return now // unless the requests in flight take it
	}
	beyond := ahead - max(d.left(inflight), 0)
	reset := d.reset
	if reset.IsZero() {
		reset = now.Add(d.window)
	}
	period := d.window + min(trip, d.alone()) // a window may begin with its first request
	windows := min(beyond/d.limit, int64(Horizon/period))
	return reset.Add(time.Duration(windows)*period + d.spread(beyond%d.limit+1))
}

// alone is how long the first request of a window goes alone, at most.
func (d *dimension) alone() time.Duration { return min(maxAlone, d.window/8) }

// spread is over what time so many calls are released: evenly over a part of the window,
// but not slower than twice the rate that uses up the quota.
func (d *dimension) spread(calls int64) time.Duration {
	longest := min(maxSpread, d.window/2)
	if step := d.window / time.Duration(2*d.limit); step < longest/time.Duration(calls) {
		return step * time.Duration(calls)
	}
	return longest
}
