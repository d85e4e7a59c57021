package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// resetSlack is how far two exact readings of one reset may lie apart.
const resetSlack = 10 * time.Millisecond

// reading is one response's word on one axis, by our clock.
type reading struct {
	word         ratelimitheader.Axis
	sent, now    time.Time     // when the request was sent, and the response came
	early, reset time.Time     // the reset lies between
	least, most  time.Duration // and so long after the response was written
	window       time.Duration // which is so long at least, as it looks
	longest      time.Duration // that anybody waits for a server
	cut          bool          // the reset is later than anybody is ready to believe
	refused      bool          // the request was
	scout        bool          // it was sent in spite of a claim, and was not
	mute         bool          // the response speaks of no axis at all
	newer        bool          // it was sent after what is known was learned
	version      uint64        // of the bucket, now
}

// read takes the axis as the response has it. Servers round a reset up to what
// they can write: mostly to the second. A delta counts from the moment of
// writing, some time between sent and now. A moment goes by the server's clock,
// as far as that is known; a nil clock is one that the server does not show.
func (r *reading) read(axis ratelimitheader.Axis, clock *serverClock) {
	r.word = axis
	r.word.Remaining = min(axis.Remaining, mostLimit)
	grain := grainOf(axis)
	r.most, r.least = axis.Reset, axis.Reset-grain
	r.reset, r.early = r.now.Add(r.most), r.sent.Add(r.least)
	// Windows last whole seconds, nearly always.
	r.window = (axis.Reset + 900*time.Millisecond).Truncate(time.Second)
	if !axis.Instant.IsZero() {
		// Reset is the moment less the Date, and that is cut to the second.
		r.least -= time.Second
		if grain < time.Second {
			r.window = axis.Reset.Truncate(time.Second)
		}
	}
	if !axis.Instant.IsZero() && clock != nil {
		left := axis.Instant.Sub(r.now)
		r.reset, r.early = r.now.Add(left-clock.least), r.now.Add(left-clock.most-grain)
		r.most, r.least = min(r.most, r.reset.Sub(r.sent)), max(r.least, r.early.Sub(r.now))
	}
	r.early = r.early.Add(-resetSlack)
	last := r.now.Add(r.longest)
	if r.cut = r.reset.After(last); r.cut {
		r.reset = last
	}
	r.early = sooner(r.early, r.reset)
}

// grainOf is to what the reset was rounded, judged by its last digits.
func grainOf(axis ratelimitheader.Axis) time.Duration {
	fraction := axis.Reset % time.Second
	if !axis.Instant.IsZero() {
		fraction = time.Duration(axis.Instant.Nanosecond())
	}
	if fraction == 0 {
		return time.Second
	}
	return time.Millisecond
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
