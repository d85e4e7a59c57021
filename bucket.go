package resilienthttp

import (
	"container/list"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

const (
	// spreadTime is the longest over which those who waited for a reset are
	// spread; half the window is the other bound.
	spreadTime = time.Second

	// scoutTime is how long the first request after a reset goes alone, unless
	// its answer comes earlier: if the server still says no, one 429 is enough.
	scoutTime = time.Second

	// resetNoise is how far two readings of one reset may lie apart: servers
	// round to seconds.
	resetNoise = 1200 * time.Millisecond
)

// bucket is one of a server's quotas as far as its responses tell, and the line
// of those who wait for it. While nothing is known it only counts the requests
// in flight and takes no lock.
type bucket struct {
	once     sync.Once
	quotas   *quotas
	origin   time.Time // turns count from it
	inflight atomic.Int64
	armed    atomic.Bool // something is known, or somebody waits

	mu      sync.Mutex
	version uint64 // grows with all that is learned, to tell old news from new
	axes    []quota
	clock   serverClock
	closed  time.Time // by the server's Retry-After, this bucket alone
	line    list.List // of *waiter
	timer   *time.Timer

	shut     bool          // the line waits for a reset
	scout    time.Time     // until then one goes ahead, to see whether it is true
	scouting bool          // and is under way
	spacing  time.Duration // between two who leave the line; 0: none
	next     time.Time     // who leaves next may do so from here on
}

func (b *bucket) init(q *quotas) {
	b.once.Do(func() { b.quotas, b.origin = q, time.Now() })
}

// quota is one axis of a bucket: requests, tokens, a policy's window.
type quota struct {
	name    string
	costed  bool // one request takes more than one: those in flight cannot be counted
	limit   int64
	low     int64         // what remains, by the newest news
	blind   int64         // sent since then without any news
	flying  int64         // sent in this window and not answered yet
	since   time.Time     // when this window began; zero: before anything was known
	reset   time.Time     // when it ends, by our clock; zero: nobody has said
	guessed bool          // reset is only what the window before was like
	window  time.Duration // the longest that was seen
	version uint64        // of the bucket when this was learned
}

// waiter is a call in line. Its fields are the bucket's, under its lock.
type waiter struct {
	ready   chan struct{}
	granted bool
	turn    turn
}

// turn is the right to send one request, and the duty to say what came of it.
type turn struct {
	bucket  *bucket
	version uint64        // of the bucket at that time
	after   time.Duration // since the bucket's origin
}

func (t turn) sent() time.Time { return t.bucket.origin.Add(t.after) }

// enter takes a turn, standing in line for it if need be and if the line accepts
// the wait.
func (b *bucket) enter(now time.Time, line queueing) (t turn, stood bool, refused *Error) {
	if !b.armed.Load() && b.quotas.closed.Load() == nil {
		b.inflight.Add(1)
		return turn{bucket: b, after: now.Sub(b.origin)}, false, nil
	}
	b.mu.Lock()
	b.armed.Store(true)
	if b.line.Len() == 0 && b.opening(now).free(now) {
		t = b.take(now)
		b.mu.Unlock()
		return t, false, nil
	}
	turnAt, closed := b.foresee(now)
	refused = line.accepts(now, turnAt, closed)
	patience := line.patience(closed)
	if refused == nil && patience <= 0 {
		refused = &Error{Reason: ErrRateLimited, NotBefore: turnAt}
	}
	if refused != nil {
		b.mu.Unlock()
		return turn{}, false, refused
	}
	w := &waiter{ready: make(chan struct{})}
	place := b.line.PushBack(w)
	b.pump(now)
	b.mu.Unlock()
	return b.stand(w, place, now, patience, line.call)
}

// stand waits in line until the turn comes, the caller leaves, or patience ends.
func (b *bucket) stand(w *waiter, place *list.Element, since time.Time, patience time.Duration, c *call) (turn, bool, *Error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var refused *Error
	select {
	case <-w.ready:
		return w.turn, true, nil
	case <-timer.C:
		refused = &Error{Reason: ErrRateLimited}
	case <-c.ctx.Done():
		refused = c.ended(c.ctx.Err())
	case <-c.request.Cancel:
		refused = c.ended(c.callerGone())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if w.granted { // in the same instant
		if refused.Reason == ErrRateLimited {
			return w.turn, true, nil
		}
		b.landed(w.turn)
	} else {
		b.line.Remove(place)
		if refused.Reason == ErrRateLimited {
			refused.NotBefore, _ = b.foresee(now)
		}
	}
	b.pump(now)
	return turn{}, true, refused
}

// take counts one request as in flight.
func (b *bucket) take(now time.Time) turn {
	b.inflight.Add(1)
	for i := range b.axes {
		q := &b.axes[i]
		q.flying++
		if q.reset.IsZero() && q.window > 0 {
			// The server may begin its window with this request. Unless it says
			// otherwise, the window is as long as the one before.
			q.reset, q.guessed = now.Add(q.window), true
		}
	}
	b.scouting = b.scouting || now.Before(b.scout)
	return turn{bucket: b, version: b.version, after: now.Sub(b.origin)}
}

// landed takes one request from those in flight.
func (b *bucket) landed(t turn) {
	b.inflight.Add(-1)
	for i := range b.axes {
		if q := &b.axes[i]; !t.sent().Before(q.since) && q.flying > 0 {
			q.flying--
		}
	}
	if !t.sent().Before(b.scout.Add(-scoutTime)) {
		b.scouting, b.scout = false, time.Time{}
	}
}

// opening is when the next request may go.
type opening struct {
	at      time.Time // not before; the zero time is now
	closed  bool      // because the server said Retry-After
	flight  bool      // and when one that is in flight has come back
	recheck time.Time // with flight: when to look again at the latest
}

func (o opening) free(now time.Time) bool { return !o.flight && !o.at.After(now) }

func (b *bucket) opening(now time.Time) opening {
	var o opening
	for _, until := range [...]time.Time{b.closed, b.quotas.closedUntil(now)} {
		if until.After(now) && until.After(o.at) {
			o.at, o.closed = until, true
		}
	}
	for i := range b.axes {
		q := &b.axes[i]
		q.roll(now)
		switch left := q.low - q.blind; {
		case left <= 0:
			if q.reset.After(o.at) {
				o.at, o.closed = q.reset, false
			}
		case !q.costed && left <= q.flying:
			o.flight = true
			o.recheck = sooner(o.recheck, q.reset)
		}
	}
	if b.scouting && now.Before(b.scout) {
		o.flight = true
		o.recheck = sooner(o.recheck, b.scout)
	}
	return o
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// roll begins a new window when the reset has come: all of the quota is there
// again, as far as anybody knows.
func (q *quota) roll(now time.Time) {
	if q.reset.IsZero() || now.Before(q.reset) {
		return
	}
	q.since, q.reset, q.guessed = q.reset, time.Time{}, false
	q.low, q.blind, q.flying = max(q.limit, 1), 0, 0
}

// foresee is when a call that joins the line now would have its turn: the line
// ahead of it takes the quota of one window after the other.
func (b *bucket) foresee(now time.Time) (at time.Time, closed bool) {
	o := b.opening(now)
	at, closed = now, o.closed
	if o.at.After(at) {
		at = o.at
	}
	ahead := int64(b.line.Len())
	for i := range b.axes {
		q := &b.axes[i]
		if q.costed || q.limit <= 0 || q.window <= 0 || q.reset.IsZero() {
			continue
		}
		beyond := ahead - max(q.low-q.blind, 0)
		if beyond < 0 {
			continue
		}
		windows := min(beyond/q.limit, int64(maxForesight/q.window))
		if turn := q.reset.Add(time.Duration(windows) * q.window); turn.After(at) {
			at = turn
		}
	}
	return at, closed
}

const maxForesight = 24 * time.Hour

// pump lets those at the head of the line go whose turn has come, and sets the
// timer for the next.
func (b *bucket) pump(now time.Time) {
	for b.line.Len() > 0 {
		o := b.opening(now)
		if o.at.After(now) {
			b.shut = true
			b.wakeAt(o.at, now)
			return
		}
		if b.shut {
			b.reopen(now)
			continue
		}
		if o.flight {
			b.wakeAt(o.recheck, now)
			return
		}
		if b.spacing > 0 && b.next.After(now) {
			b.wakeAt(b.next, now)
			return
		}
		w := b.line.Remove(b.line.Front()).(*waiter)
		w.granted, w.turn = true, b.take(now)
		close(w.ready)
		b.next = now.Add(jittered(b.spacing))
	}
	b.shut, b.spacing = false, 0
	b.wakeAt(time.Time{}, now)
}

// reopen begins to let the line go after a reset: one goes ahead, and the others
// follow spread over a part of the window.
func (b *bucket) reopen(now time.Time) {
	b.shut = false
	b.scout, b.scouting = now.Add(scoutTime), false
	spread, going := spreadTime, int64(b.line.Len())
	for i := range b.axes {
		if q := &b.axes[i]; !q.costed && q.limit > 0 && q.window > 0 {
			spread, going = min(spread, q.window/2), min(going, q.limit)
		}
	}
	b.spacing = spread / time.Duration(going)
	b.next = now.Add(rand.N(b.spacing + 1))
}

// jittered is d, give or take a half.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

// wakeAt sets the timer that pumps; the zero time stops it.
func (b *bucket) wakeAt(at, now time.Time) {
	switch {
	case at.IsZero():
		if b.timer != nil {
			b.timer.Stop()
		}
	case b.timer == nil:
		b.timer = time.AfterFunc(at.Sub(now), b.wake)
	default:
		b.timer.Reset(at.Sub(now))
	}
}

func (b *bucket) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pump(time.Now())
}

// taken reports whether there is a turn.
func (t turn) taken() bool { return t.bucket != nil }

// giveBack returns a turn that was not used, or that nothing was learned from.
func (t turn) giveBack(now time.Time) {
	b := t.bucket
	if b == nil {
		return
	}
	if !b.armed.Load() {
		b.inflight.Add(-1)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.landed(t)
	b.pump(now)
}

// done says what came of the request: the answer's news join what is known.
func (t turn) done(now time.Time, a *attempt, said *answer) {
	b := t.bucket
	if b == nil {
		return
	}
	resp := a.record.Response
	closing := said.asksToWait && closes(resp.StatusCode)
	lost := resp == nil && !a.neverSent()
	defer t.giveBack(now)
	of := b
	if said.quota.Bucket != "" {
		of = b.quotas.learnRoute(a.call.request, said.quota.Bucket)
	}
	if closing {
		until := now.Add(min(said.retryAfter, b.quotas.limit.settings.maxClosed))
		if said.quota.Bucket != "" && resp.StatusCode == http.StatusTooManyRequests {
			of.closeUntil(until)
		} else {
			b.quotas.close(until)
		}
	}
	if said.limited {
		of.learn(t, now, resp, said.quota)
	}
	if lost && b.armed.Load() {
		b.lose()
	}
}

// closes reports whether Retry-After beside the status is a word to everybody.
func closes(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

func (b *bucket) closeUntil(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed.Store(true)
	if until.After(b.closed) {
		b.closed = until
	}
}

// lose counts a request of which nobody knows whether the server has counted it.
func (b *bucket) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	for i := range b.axes {
		if !b.axes[i].costed && !b.axes[i].reset.IsZero() {
			b.axes[i].blind++
			b.axes[i].version = b.version
		}
	}
}

// learn joins what a response says of its quotas to what is known.
func (b *bucket) learn(t turn, now time.Time, resp *http.Response, state ratelimitheader.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed.Store(true)
	if t.bucket != b {
		t.version = 0 // it did not count this bucket's news
	}
	date, err := http.ParseTime(headerValue(resp.Header, "Date"))
	dated := err == nil
	if dated {
		b.clock.observe(date, t.sent(), now)
	}
	b.version++
	for _, axis := range state.Axes {
		left := axis.Reset
		if dated && !axis.Instant.IsZero() {
			left = b.clock.until(axis.Instant, now)
		}
		left = min(left, b.quotas.limit.settings.maxClosed)
		if left <= 0 {
			continue
		}
		q := b.axis(axis)
		if q == nil {
			continue
		}
		q.learn(axis, now.Add(left), now, t)
		q.version = b.version
	}
}

// mostAxes bounds what a hostile server can make a bucket remember.
const mostAxes = 32

func (b *bucket) axis(axis ratelimitheader.Axis) *quota {
	for i := range b.axes {
		if b.axes[i].name == axis.Name {
			return &b.axes[i]
		}
	}
	if len(b.axes) >= mostAxes {
		return nil
	}
	b.axes = append(b.axes, quota{name: axis.Name, costed: axis.Costed, flying: b.inflight.Load()})
	return &b.axes[len(b.axes)-1]
}

// learn joins one reading to the axis. A request that was sent after the last
// news came brings newer ones. Of those that were under way together nobody
// knows which the server saw last, but within a window what remains only falls:
// the lowest is the newest. And a reset, rounded up to seconds, is never earlier
// than the earliest reading of it.
func (q *quota) learn(axis ratelimitheader.Axis, reset, now time.Time, t turn) {
	if t.sent().Before(q.since) {
		return // of the window before
	}
	newer := t.version >= q.version
	apart := reset.Sub(q.reset)
	switch {
	case q.reset.IsZero(), q.guessed, apart > resetNoise, newer && apart < -resetNoise:
		q.low, q.blind, q.reset, q.guessed = axis.Remaining, 0, reset, false
	case apart < -resetNoise:
		return // of the window before
	default:
		if newer {
			q.low, q.blind = axis.Remaining, 0
		}
		q.low = min(q.low, axis.Remaining)
		if apart < 0 {
			q.reset = reset
		}
	}
	if axis.Limit > 0 {
		q.limit = axis.Limit
	} else {
		q.limit = max(q.limit, axis.Remaining) // the most that was ever seen
	}
	q.window = max(q.window, axis.Window, reset.Sub(now))
}

// serverClock knows how far the server's clock is ahead of ours, at least. A
// Date is cut to its second, so each response gives a bound, the best one that
// which was written just after a second began.
type serverClock struct {
	known bool
	ahead time.Duration
}

func (s *serverClock) observe(date, sent, received time.Time) {
	least, most := date.Sub(received), date.Sub(sent)+time.Second
	if !s.known || least > s.ahead || s.ahead > most {
		s.known, s.ahead = true, least
	}
}

// until is the time from now to a moment by the server's clock, at most.
func (s *serverClock) until(instant, now time.Time) time.Duration {
	return instant.Sub(now) - s.ahead
}
