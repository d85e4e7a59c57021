package quota

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// maxSpread is the longest time over which queued calls are released after a reset. Half of
	// the window is another bound.
	maxSpread = time.Second

	// maxRelease is the longest time over which queued calls are released if no quota is known.
	// Half of their wait is another bound.
	maxRelease = 10 * time.Second

	// maxPacing is how long calls are released at the rate of a quota that responses no longer
	// show.
	maxPacing = time.Minute

	// maxAlone is the longest time for which other requests wait for the first one after a reset.
	// An eighth of the window is another bound.
	maxAlone = time.Second
)

// pacer releases queued calls evenly until its end.
type pacer struct {
	next    time.Time     // when the next call is released
	spacing time.Duration // time between two calls; 0: the time until end, divided by their number
	end     time.Time
}

// interval returns the time between two of that many calls.
func (p *pacer) interval(now time.Time, calls int64) time.Duration {
	switch {
	case !p.end.After(now):
		return 0
	case p.spacing > 0:
		return p.spacing
	}
	return p.end.Sub(now) / time.Duration(calls)
}

// alone is the request that is sent alone after a reset.
type alone struct {
	until time.Time // other requests wait until then, at most
	since time.Time // a request that was sent earlier is another one
	sent  bool
}

// hold records that calls wait for a reset or for the end of a block.
func (b *bucket) hold(now time.Time) {
	if b.Len() > 0 && b.heldSince.IsZero() {
		b.heldSince = now
	}
}

// release begins to release the calls evenly: at the rate of a quota, or over half of the time
// that they have waited. The first is sent alone.
func (b *bucket) release(now time.Time) {
	b.goAlone(now)
	b.pacer = pacer{next: now, end: now.Add(min(now.Sub(b.heldSince)/2, maxRelease))}
	b.heldSince = time.Time{}
	if b.pacer.spacing = b.spacing(b.Len()); b.pacer.spacing > 0 {
		b.pacer.end = now.Add(maxPacing)
	} else { // other processes may wait for the same moment
		b.pacer.next = now.Add(rand.N(b.pacer.interval(now, b.Len()) + 1))
	}
}

// spacing returns the time between two of that many calls after a reset; 0 if no quota is known.
func (b *bucket) spacing(calls int64) (spacing time.Duration) {
	for i := range b.dims {
		if d := &b.dims[i]; d.paces() {
			n := min(calls, d.limit)
			if s := d.spread(n) / time.Duration(n); spacing == 0 || s < spacing {
				spacing = s
			}
		}
	}
	return spacing
}

// goAlone makes the other requests wait for the response of the next one.
func (b *bucket) goAlone(now time.Time) {
	longest := maxAlone
	for i := range b.dims {
		if d := &b.dims[i]; d.standing != refuted && d.window > 0 {
			longest = min(longest, d.alone())
		}
	}
	b.alone = alone{until: now.Add(longest), since: now}
}

// paces reports whether calls are released at the rate of the dimension. One that only rejections show
// is silent when its window ends.
func (d *dimension) paces() bool {
	believed := d.standing == followed || d.standing == silent && d.proof == byRejection
	return believed && !d.costed && d.limit > 0 && d.window > 0
}

// alone returns the longest time for which other requests wait for the first one of a window.
func (d *dimension) alone() time.Duration { return min(maxAlone, d.window/8) }

// spread returns the time over which that many calls are released after a reset. It is a part of
// the window. Few calls take less: they are released at twice the rate that uses up the quota.
func (d *dimension) spread(calls int64) time.Duration {
	longest := min(maxSpread, d.window/2)
	if step := d.window / time.Duration(2*d.limit); step < longest/time.Duration(calls) {
		return step * time.Duration(calls)
	}
	return longest
}

// lessThanHalfLeft reports whether less than half of a quota was left before the newest request.
func (b *bucket) lessThanHalfLeft(now time.Time) bool {
	return slices.ContainsFunc(b.dims, func(d dimension) bool {
		return !d.ignored() && d.limit > 0 && 2*d.left(now, b.inflight-1) < d.limit
	})
}

// limitedLately reports whether there was a 429 within the last minute.
func (s *Set) limitedLately(now time.Time) bool {
	last := s.limited.Load()
	return last != 0 && (now.Sub(s.limiter.origin)-time.Duration(last)).Abs() < time.Minute
}
