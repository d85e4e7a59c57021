package quota

import (
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
)

const (
	// maxSpread is the longest time over which calls are released after a wait. Half of the wait is another bound.
	maxSpread = 10 * time.Second

	// So few calls are released within a second: no queue is too short for them.
	fewCalls = 10
)

// release is how calls are sent after a wait: the first alone, and the others evenly until the end.
type release struct {
	since time.Time // a request that was sent earlier is not the first
	alone time.Time // other requests wait for the response of the first until then, at most
	sent  bool      // the first is in flight

	next    time.Time // when the next call is released
	end     time.Time
	spacing time.Duration // between two calls, at least; 0: the time until the end, divided by their number
	usual   time.Duration // between two calls that came, or in the last window
	calls   int64         // that wait; more have come since then if there are more
}

// interval returns the time between two of the calls.
func (r *release) interval(now time.Time, calls int64) time.Duration {
	switch {
	// The release is over.
	case !r.end.After(now):
		return 0
	case r.spacing > 0:
		return slower(r.spacing, r.usual)
	}
	return r.end.Sub(now) / time.Duration(calls)
}

// slower returns the spacing, or that of calls that go half as fast again as usual: a server may have no room for more. No
// call waits longer for the one before it than for one that hangs.
func slower(spacing, usual time.Duration) time.Duration {
	return min(max(spacing, 2*usual/3), hold.Hanging)
}

// hold records that calls wait for a reset or for the end of a block.
func (b *bucket) hold(now time.Time) {
	if b.Len() > 0 && b.heldSince.IsZero() {
		b.heldSince = now
	}
}

// release begins to release the calls: at the rate of a quota, or over half of the time that they have
// waited. The first is sent alone.
func (b *bucket) release(now time.Time) {
	waited := now.Sub(b.heldSince)
	r := release{since: now, alone: now.Add(hold.Hanging), next: now, end: now.Add(spread(waited)), usual: b.pace(), calls: b.Len()}
	if r.calls <= fewCalls {
		r.usual = min(r.usual, time.Second/fewCalls)
	}
	for i := range b.dims {
		d := &b.dims[i]
		if d.standing == refuted {
			continue
		}
		r.alone = sooner(r.alone, now.Add(d.alone()))
		// Such a quota has no rate in requests, so it cannot set the time between two of them.
		if d.costed || d.size() <= 0 || d.standing == silent && d.proof != provenByRejection {
			continue
		}
		r.usual = min(r.usual, d.usual())
		if s := d.spacing(waited); r.spacing == 0 || s < r.spacing {
			r.spacing, r.end = s, now.Add(d.window)
		}
	}
	b.after, b.heldSince = r, time.Time{}
}

// releaseEvenly sends the calls that have waited for what does not hold one by one, within a second.
func (b *bucket) releaseEvenly(now time.Time) {
	b.after = release{next: now, end: now.Add(time.Second)}
}

// spread returns the time over which calls are released that have waited so long.
func spread(waited time.Duration) time.Duration { return min(waited/2, maxSpread) }

// pace returns the mean time between the beginnings of the calls that wait, or of the earlier half, if those came quicker: a burst.
func (b *bucket) pace() time.Duration {
	if b.Len() == 0 {
		return 0
	}
	whole, half := b.Last().Since.Sub(b.First().Since), b.Middle().Since.Sub(b.First().Since)
	return min(whole, 2*half) / time.Duration(b.Len())
}

// spacing returns the time between two calls after such a wait: they could use up the quota in half of it. If responses
// do not show what remains, they are sent at 2.5 times the rate of the quota, because more than twice of it contradicts
// a quota that does not exist.
func (d *dimension) spacing(waited time.Duration) time.Duration {
	all := 2 * d.window / 5
	if d.standing == followed {
		all = min(d.window/2, spread(waited))
	}
	return max(all/time.Duration(d.size()), 1)
}

// usual returns the time between two calls of this process in the last window, at least that of the quota. It is 0 for a window
// of a second, because it would not be used up.
func (d *dimension) usual() time.Duration {
	if d.window <= time.Second {
		return 0
	}
	return d.window / time.Duration(max(min(d.lately, d.size()), 1))
}

// alone returns the longest time for which other requests wait for the first one of a window.
func (d *dimension) alone() time.Duration { return min(hold.Hanging, d.window/8) }

// lessThanHalfLeft reports whether less than half of a quota was left before the newest request.
func (b *bucket) lessThanHalfLeft(now time.Time) bool {
	return slices.ContainsFunc(b.dims, func(d dimension) bool {
		return d.standing == followed && 2*d.left(now, load{b.inflight - 1, b.spent}) < d.limit
	})
}

// limitedLately reports whether there was a 429 within the last minute.
func (s *Set) limitedLately(now time.Time) bool {
	last := s.limited.Load()
	return last != 0 && (now.Sub(s.limiter.origin)-time.Duration(last)).Abs() < time.Minute
}
