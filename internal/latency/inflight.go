package latency

import (
	"sync/atomic"
	"time"
)

// InFlight counts the attempts in flight, and knows their mean age. The zero value has none. It is
// safe for concurrent use. One atomic number has both: the count in its lower bits, and above them
// the sum of the starts in milliseconds. The sum overflows, but the sum of the ages does not.
type InFlight struct{ state atomic.Uint64 }

const countBits = 20 // at most a million attempts

// Begin adds an attempt that starts at a time since the origin.
func (f *InFlight) Begin(at time.Duration) { f.state.Add(uint64(at.Milliseconds())<<countBits | 1) }

// End removes an attempt that Begin has added at the same time since the origin.
func (f *InFlight) End(start time.Duration) {
	f.state.Add(-(uint64(start.Milliseconds())<<countBits | 1))
}

// Count returns the number of attempts.
func (f *InFlight) Count() int { return int(f.state.Load() & (1<<countBits - 1)) }

// Age returns the mean age of the attempts at a time since the origin; zero if there is none.
func (f *InFlight) Age(at time.Duration) time.Duration {
	state := f.state.Load()
	n := state & (1<<countBits - 1)
	if n == 0 {
		return 0
	}
	ages := int64(n*uint64(at.Milliseconds())<<countBits-state&^(1<<countBits-1)) >> countBits
	return max(time.Duration(ages/int64(n))*time.Millisecond, 0)
}
