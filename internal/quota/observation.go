package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// maxLimit bounds the limits that servers advertise, for the arithmetic. MaxCost bounds Request.Cost: a
// million calls cost less than the largest integer.
const (
	maxLimit = 1 << 40
	MaxCost  = maxLimit
)

// observation is the content of one response for one dimension, by the local clock.
type observation struct {
	field     ratelimitheader.Dimension
	sent, now time.Time // when the request was sent, and its response arrived
	end       end
	window    time.Duration // the shortest window that has this reset
	longest   time.Duration // the longest time for which a server may block
	rejected  bool          // the request was rejected
	newer     bool          // the request was sent after the last observation
	version   uint64        // the bucket's version
	probe     bool          // it was a probe, so it comes before the reset in any case
	cost      int64         // the estimate of the request
	spent     int64         // the bucket's when it was sent; what is later is taken from what remains
}

// read reads a field. Servers round a reset up, mostly to a second. A duration counts from the
// moment of writing, between sent and now. An instant is by the server's clock; clock is nil if
// that is unknown.
func (o *observation) read(field *ratelimitheader.Dimension, clock *serverClock) {
	o.field = *field
	o.field.Remaining = min(field.Remaining, maxLimit)
	grain := resolution(field)
	var e end
	e.reset, e.early = o.now.Add(field.Reset), o.sent.Add(field.Reset-grain)
	// Almost all windows are whole seconds.
	o.window = (field.Reset + 900*time.Millisecond).Truncate(time.Second)
	if !field.Instant.IsZero() {
		if grain < time.Second { // Reset is the instant minus the Date, which has whole seconds
			o.window = field.Reset.Truncate(time.Second)
		}
		if clock != nil {
			left := field.Instant.Sub(o.now)
			e.reset, e.early = o.now.Add(left-clock.least), o.now.Add(left-clock.most-grain)
		}
	}
	e.cut = o.now.Add(o.longest)
	e.early = sooner(e.early, e.reset)
	o.end = e
}

// resolution returns the unit to which the reset was rounded, judged by its last digits.
func resolution(field *ratelimitheader.Dimension) time.Duration {
	fraction := field.Reset % time.Second
	if !field.Instant.IsZero() {
		fraction = time.Duration(field.Instant.Nanosecond())
	}
	unit := time.Second
	for unit > 10*time.Millisecond && fraction%unit != 0 { // finer ones differ by the time that a response takes
		unit /= 10
	}
	return unit
}

// sooner returns the earlier of two times. Zero means none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// serverClock is the difference of the server's clock to the local one, between least and most. A
// Date is truncated to its second, so each response gives two bounds. The best bounds come from a
// Date that was written just before or after a new second.
type serverClock struct {
	known       bool
	least, most time.Duration
}

// observe learns from a Date. It returns false if the Date is years away from the local time.
func (s *serverClock) observe(date, sent, received time.Time) bool {
	least, most := date.Sub(received), date.Sub(sent)+time.Second
	if least.Abs() > ratelimitheader.MaxReset {
		return false
	}
	if !s.known || least > s.most || most < s.least {
		s.known, s.least, s.most = true, least, most // the clock was set
		return true
	}
	s.least, s.most = max(s.least, least), min(s.most, most)
	return true
}
