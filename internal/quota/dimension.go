package quota

import "time"

// dimension is one quota of a bucket: requests, tokens, or the window of a policy. The bucket's
// lock guards it. Its times are by the local clock.
type dimension struct {
	name           string
	costed         bool  // a request takes more than one unit: those in flight cannot be counted
	shownOnSuccess bool  // responses to served requests show it; otherwise only rejections do
	notShown       bool  // ignored until a response shows it again
	denied         bool  // contradicted by successes: ignored until a rejection shows it
	limit          int64 // 0: unknown

	remaining int64     // as the newest response says
	at        time.Time // when that response came
	old       int64     // requests in flight that were sent before this window
	since     time.Time // start of this window; zero: unknown

	early, reset time.Time     // bounds of the end of this window; zero: unknown
	guessed      bool          // early and reset are estimated from the last window
	cut          bool          // reset is limited by the longest block
	short        bool          // a rejection shows that too little remains
	resetMoves   int           // how often the reset moved to a later time before it was reached
	window       time.Duration // the server's window, or the longest that was observed

	plausible bool // a response has shown a remaining count or a limit of 1, or a rejection shows it
	zeros     int  // windows before it was plausible

	claimed   bool      // the newest response says that nothing remains
	confirmed bool      // a rejection or a reset has proved this once
	rejected  bool      // a rejection has proved it
	base, own int64     // what remained when this window was first seen, and requests since then
	served    int64     // requests that were served since the last exhaustion ended
	from      time.Time // when the last exhaustion ended

	mentioned uint64 // the bucket's version at the last response that showed it
	version   uint64 // the bucket's version when remaining was learned
}

// maxZeros is the number of windows without a remaining count, while requests are served, after
// which the dimension is ignored.
const maxZeros = 3

// learn adds an observation. It returns false if that is of the previous window.
//
// Responses may arrive in another order than the server wrote them. An observation is newer if
// its request was sent after the last observation. Otherwise the one with the lowest remaining
// count is the newest, because that count only falls within a window.
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
	wasSilent := d.notShown
	d.notShown, d.denied = false, false
	d.shownOnSuccess = d.shownOnSuccess || !o.rejected
	d.learnSize(o)
	if !o.reset.After(o.now) || o.sent.Before(d.since) && !o.early.After(o.now) {
		return false
	}
	switch {
	case d.reset.IsZero(), d.guessed, wasSilent:
		d.take(o)
	case o.early.After(d.reset):
		if !d.cut && d.early.After(o.now) && d.refills(o) {
			d.resetMoves++
		}
		d.take(o)
	case o.reset.Before(d.early), o.newer && o.field.Remaining > d.remaining:
		if o.newer { // a new window that no response showed, or a token bucket
			d.take(o)
		}
	default:
		early, reset := later(d.early, o.early), sooner(d.reset, o.reset)
		if o.newer || o.field.Remaining < d.remaining {
			d.take(o)
		}
		d.early, d.reset = sooner(early, reset), reset
	}
	return true
}

// take replaces the known values by the observation.
func (d *dimension) take(o observation) {
	if d.claimed && o.field.Remaining > 0 {
		d.confirmed = d.confirmed || d.resetMoves >= bucketMoves || 2*o.field.Remaining >= d.limit // the reset refilled it
	}
	d.claimed = o.field.Remaining == 0
	d.remaining, d.at, d.version = o.field.Remaining, o.now, o.version
	d.short = o.rejected && d.claimed
	d.early, d.reset, d.guessed, d.cut = o.early, o.reset, false, o.cut
}

// bucketMoves is how often the reset of a token bucket must move. bucketPart is the part of it that
// must be available after a rejection.
const (
	bucketMoves = 3
	bucketPart  = 4
)

// refill returns what a token bucket gains in a second, or 0. A dimension is a token bucket if its
// reset moves to later times before it is reached: the reset is when the bucket is full.
func (d *dimension) refill() float64 {
	if d.resetMoves < bucketMoves || d.remaining >= d.limit || !d.reset.After(d.at) {
		return 0
	}
	return float64(d.limit-d.remaining) / d.reset.Sub(d.at).Seconds()
}

// refilledAt returns when a token bucket has enough for a request with that many ahead of it.
func (d *dimension) refilledAt(ahead, inflight int64) time.Time {
	lacking := d.need() + ahead - d.left(d.at, inflight)
	wait := min(float64(lacking)/d.refill()*float64(time.Second), float64(Horizon))
	return d.at.Add(time.Duration(wait) + 1) // 1 ns later, because of rounding
}

// need returns what must be left for a request. After a rejection it is a part of a token bucket:
// others use the bucket too, or a request takes several units.
func (d *dimension) need() int64 {
	if d.short && d.refill() > 0 {
		return max(d.limit/bucketPart, 1)
	}
	return 1
}

// refills reports whether the reset may be the time at which a token bucket is full: half of the
// tokens need half of the window. The reset of a sliding window is always a whole window away.
func (d *dimension) refills(o observation) bool {
	used := 1 - float64(o.field.Remaining)/float64(max(d.limit, 1))
	return o.field.Window == 0 || o.reset.Sub(o.now) <= time.Duration(used*float64(d.window))+time.Second
}

func (d *dimension) learnSize(o observation) {
	if limit := min(o.field.Limit, maxLimit); limit > 0 {
		d.limit = limit
	}
	if d.window = min(max(d.window, o.window, time.Second), o.longest); o.field.Window > 0 {
		d.window = min(o.field.Window, o.longest)
	}
}

// roll begins a new window after the reset, and reports whether it did. The quota is assumed to
// be full. A dimension that only rejections show ends with its window.
func (d *dimension) roll(now time.Time, inflight int64) bool {
	if d.reset.IsZero() || now.Before(d.reset) {
		return false
	}
	if !d.plausible {
		d.zeros++
	}
	d.old = inflight
	d.since, d.early, d.reset, d.guessed = d.reset, time.Time{}, time.Time{}, false
	switch {
	case !d.shownOnSuccess:
		d.notShown = true
	case d.cut:
		d.remaining = max(d.remaining, 1) // the server's own reset is later: one request is a probe
	default:
		d.remaining = max(d.limit, 1)
	}
	d.cut, d.at = false, now
	d.begin(inflight)
	return !d.costed
}

// begin begins to count what this process uses. Requests in flight may be counted by the server later.
func (d *dimension) begin(inflight int64) { d.base, d.own = d.remaining, max(inflight, 0) }

// usedByOthers returns what other processes have certainly used since then.
func (d *dimension) usedByOthers() int64 {
	if d.costed {
		return 0
	}
	return max(d.base-d.remaining-d.own, 0)
}

// sent counts a request that is sent. The server may begin a window with it.
func (d *dimension) sent(now time.Time) {
	d.own++
	if d.reset.IsZero() && d.window > 0 && !d.notShown {
		d.early, d.reset, d.guessed = now, now.Add(d.window), true
	}
}

// inWindow returns the number of requests in flight that were sent in this window.
func (d *dimension) inWindow(inflight int64) int64 { return max(inflight-d.old, 0) }

// left returns the remaining count after the requests in flight are served.
func (d *dimension) left(now time.Time, inflight int64) int64 {
	const exact = 1e-6
	left := d.remaining + int64(d.refill()*now.Sub(d.at).Seconds()+exact)
	if d.costed {
		return left
	}
	return left - d.inWindow(inflight)
}

func (d *dimension) ignored() bool { return d.notShown || d.denied }

// exhausted reports whether nothing remains until a reset in the future.
func (d *dimension) exhausted(now time.Time) bool {
	return !d.ignored() && d.left(now, d.old) < d.need() && d.reset.After(now)
}

// reject records a rejection that shows that the dimension is exhausted.
func (d *dimension) reject(now time.Time, current bool) {
	if current && d.remaining > 0 {
		d.remaining, d.at, d.short = 0, now, true
	}
	if d.contradicted(now) {
		d.denied = true
		return
	}
	d.confirmed, d.rejected, d.served, d.from = true, true, 0, later(d.reset, now)
}

// estimate returns when a request could be sent that has the given number of calls ahead of it.
func (d *dimension) estimate(now time.Time, ahead, inflight int64, trip time.Duration) time.Time {
	switch {
	case d.ignored():
		return now
	case d.refill() > 0 && d.left(now, inflight) < d.need()+ahead:
		return d.refilledAt(ahead, inflight)
	case d.costed && d.exhausted(now):
		return d.reset
	case d.costed, d.limit <= 0, d.window <= 0, ahead < d.left(now, d.old):
		return now // the requests in flight may still use it up
	}
	beyond := ahead - max(d.left(now, inflight), 0)
	reset := d.reset
	if reset.IsZero() {
		reset = now.Add(d.window)
	}
	period := d.window + min(trip, d.alone()) // a window may begin with its first request
	windows := min(beyond/d.limit, int64(Horizon/period))
	return reset.Add(time.Duration(windows)*period + d.spread(beyond%d.limit+1))
}
