package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// resetSlack is how far two exact observations of one reset may lie apart.
const resetSlack = 10 * time.Millisecond

// observation is what one response says of one dimension, by the local clock.
type observation struct {
	field        ratelimitheader.Dimension
	sent, now    time.Time     // when the request was sent, and the response came
	early, reset time.Time     // the reset lies between
	window       time.Duration // the shortest window that has that reset
	longest      time.Duration // that a server may block
	cut          bool          // the reset is later than that
	rejected     bool          // the request was
	newer        bool          // it was sent after the last observation
	version      uint64        // of the bucket, now
}

// read takes the fields as the response has them. Servers round a reset up to what they
// can write: mostly to the second. A delta counts from the moment of writing, some time
// between sent and now. A moment is one of the server's clock; clock is nil if the server
// does not show it.
func (o *observation) read(field ratelimitheader.Dimension, clock *serverClock) {
	o.field = field
	o.field.Remaining = min(field.Remaining, maxLimit)
	grain := resolution(field)
	o.reset, o.early = o.now.Add(field.Reset), o.sent.Add(field.Reset-grain)
	// Windows last whole seconds, nearly always.
	o.window = (field.Reset + 900*time.Millisecond).Truncate(time.Second)
	if !field.Instant.IsZero() {
		if grain < time.Second { // Reset is the moment less the Date, which has whole seconds
			o.window = field.Reset.Truncate(time.Second)
		}
		if clock != nil {
			left := field.Instant.Sub(o.now)
			o.reset, o.early = o.now.Add(left-clock.least), o.now.Add(left-clock.most-grain)
		}
	}
	o.early = o.early.Add(-resetSlack)
	last := o.now.Add(o.longest)
	if o.cut = o.reset.After(last); o.cut {
		o.reset = last
	}
	o.early = sooner(o.early, o.reset)
}

// resolution is to what the reset was rounded, judged by its last digits.
func resolution(field ratelimitheader.Dimension) time.Duration {
	fraction := field.Reset % time.Second
	if !field.Instant.IsZero() {
		fraction = time.Duration(field.Instant.Nanosecond())
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
