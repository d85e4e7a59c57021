package quotastore

import (
	"math"
	"math/bits"
)

// bucket is a token bucket. It stores the units that are missing from it. Its
// arithmetic is exact: fractions are counted in parts of a unit, so that no unit is
// lost or added, however often it is used. Times are nanoseconds since any moment.
type bucket struct {
	used int64  // units that were taken and have not been refilled
	part uint64 // the refilled part of the next unit; Rule.Window parts are a unit
	at   int64  // the time at which used and part were true
}

// fill adds the units since the last call. A clock that was set back adds nothing, and
// the bucket continues from its new time.
func (b *bucket) fill(now int64, r *Rule) {
	elapsed := now - b.at
	b.at = now
	if elapsed <= 0 || b.used == 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(r.Limit))
	lo, carry := bits.Add64(lo, b.part, 0)
	window := uint64(r.Window)
	if hi += carry; hi >= window {
		b.used, b.part = 0, 0
		return
	}
	units, part := bits.Div64(hi, lo, window)
	if units >= uint64(b.used) {
		b.used, b.part = 0, 0
		return
	}
	b.used, b.part = b.used-int64(units), part
}

// take takes up to want units if at least minUnits are left, and returns how many.
func (b *bucket) take(now int64, want, minUnits int64, r *Rule) (taken int64, ok bool) {
	b.fill(now, r)
	// The rule may differ from that of the last call.
	b.used, b.part = min(b.used, int64(r.Capacity())), min(b.part, uint64(r.Window)-1)
	switch left := b.left(r); {
	case want < 0:
		taken = max(want, -b.used)
	case left < minUnits:
		return 0, false
	default:
		taken = min(want, left)
	}
	if b.used += taken; b.used == 0 {
		b.part = 0
	}
	return taken, true
}

func (b *bucket) left(r *Rule) int64 { return int64(r.Capacity()) - b.used }

// wait returns the time from b.at until so many units are left.
func (b *bucket) wait(units int64, r *Rule) int64 {
	missing := units - b.left(r)
	if missing <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(missing), uint64(r.Window))
	lo, borrow := bits.Sub64(lo, b.part, 0)
	hi -= borrow
	limit := uint64(r.Limit)
	if hi >= limit {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(hi, lo, limit)
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, math.MaxInt64))
}

func (b *bucket) reset(r *Rule) int64 { return b.wait(int64(r.Capacity()), r) }
