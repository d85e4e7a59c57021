package quotastore

import (
	"math"
	"math/bits"
)

// bucket is a token bucket, told by what is missing from it. Its arithmetic is
// exact: what came in since is counted in whole units and in parts of a unit, so
// that however often it is asked, not a unit is lost or won. Times are nanoseconds
// since any moment.
type bucket struct {
	used int64  // units taken that have not come back
	part uint64 // of the next one, in parts of which Rule.Window make a unit
	at   int64  // when that was so
}

// fill brings back what has come since. A clock that has been set back gives
// nothing, and goes on from where it is: nobody waits for it to catch up.
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

// take takes up to want units if there are least, and returns how many.
func (b *bucket) take(now int64, want, least int64, r *Rule) (taken int64, ok bool) {
	b.fill(now, r)
	b.used, b.part = min(b.used, int64(r.Capacity())), min(b.part, uint64(r.Window)-1) // the rule may be a new one
	switch left := b.left(r); {
	case want < 0:
		taken = max(want, -b.used)
	case left < least:
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

// wait is how long it takes from at until so many are there.
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
