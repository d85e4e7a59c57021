package circuit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kind is a kind of calls to a server that only fails, each an attempt. A call fails after a time.
type kind struct {
	every, fails time.Duration
	rejected     bool // it fails by a response, not by a timeout
}

// fail makes evenly spaced calls for a time, until one is rejected, and returns the time until then.
func (b *recorded) fail(start time.Time, longest time.Duration, kinds ...kind) (opened time.Duration, rejected bool) {
	const step = 5 * time.Millisecond
	type call struct {
		Permit
		end time.Duration
	}
	inFlight := make([][]call, len(kinds)) // of each kind, in the order of their ends
	for at := time.Duration(0); at < longest; at += step {
		for i, k := range kinds {
			for len(inFlight[i]) > 0 && inFlight[i][0].end <= at {
				b.done(inFlight[i][0].Permit, Result{Outcome: Failure, Took: k.fails, TimeOut: !k.rejected}, start.Add(at))
				inFlight[i] = inFlight[i][1:]
			}
			if at%k.every != 0 {
				continue
			}
			permit, _, ok := b.admit(start.Add(at))
			if !ok {
				return at, true
			}
			inFlight[i] = append(inFlight[i], call{permit, at + k.fails})
		}
	}
	return longest, false
}

// L2: a server that only hangs opens the circuit two seconds after the first timeout, and one that fails quickly after
// five results, however many attempts are in flight: they were sent after those that have failed.
func TestClosed_opensForHangingServer(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		usual time.Duration // latency of a success
		kinds []kind
		want  time.Duration // until calls are rejected
	}{
		{"2 calls a second, timeout of 1 s", s / 50, []kind{{every: s / 2, fails: s}}, 3 * s},
		{"2 calls a second, timeout of 30 s: twenty failures, as no success is left in the Window", s / 50, []kind{{every: s / 2, fails: 30 * s}}, 39 * s},
		{"20 calls a second, timeout of 3 s: five failures", s / 50, []kind{{every: s / 20, fails: 3 * s}}, 3 * s},
		{"20 calls a second, timeout of 3 s, usually 200 ms: a queue, for two seconds", s / 5, []kind{{every: s / 20, fails: 3 * s}}, 5 * s},
		{"20 calls a second, timeout of 10 s: twenty failures", s / 50, []kind{{every: s / 20, fails: 10 * s}}, 10 * s},
		{"200 calls a second, timeout of 5 s: five failures", s / 50, []kind{{every: s / 200, fails: 5 * s}}, 5 * s},
		{"200 calls a second, timeout of 5 s, usually 300 ms: a queue", 3 * s / 10, []kind{{every: s / 200, fails: 5 * s}}, 7 * s},
		{"200 calls a second, timeout of 60 s: twenty failures", s / 50, []kind{{every: s / 200, fails: 60 * s}}, 60 * s},
		{"timeouts of 5 s and 30 s: the shorter one", s / 50, []kind{{every: s / 20, fails: 5 * s}, {every: s / 20, fails: 30 * s}}, 5 * s},
		{"503 at once, or timeout of 10 s: as quick ones", s / 50, []kind{{every: s / 20, rejected: true}, {every: s / 20, fails: 10 * s}}, s / 5},
		{"503 at once", s / 50, []kind{{every: s / 20, rejected: true}}, s / 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{})
			for at := -10 * s; at < 0; at += tt.kinds[0].every {
				b.done(b.must(t, epoch.Add(at)), Result{Outcome: Success, Took: tt.usual}, epoch.Add(at))
			}
			opened, rejected := b.fail(epoch, 4*time.Minute, tt.kinds...)
			require.True(t, rejected, "never")
			require.GreaterOrEqual(t, opened, tt.want)
			require.LessOrEqual(t, opened, tt.want+s)
		})
	}
}

// A burst of requests that time out together, beside few quick ones, proves nothing: no success was due meanwhile.
func TestClosed_burstOfTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration // of the successes
		opens bool
	}{{"a success was due", 10 * time.Millisecond, true}, {"none was due", 2 * time.Second, false}} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{})
			for at := -10 * time.Second; at < 0; at += tt.every {
				b.done(b.must(t, epoch.Add(at)), Result{Outcome: Success, Took: time.Millisecond}, epoch.Add(at))
			}
			var burst []Permit
			for range 8 {
				burst = append(burst, b.must(t, epoch))
			}
			for i, p := range burst {
				b.done(p, Result{Outcome: Failure, Took: time.Second, TimeOut: true}, epoch.Add(time.Second+time.Duration(10*i)*time.Millisecond))
			}
			_, _, ok := b.admit(epoch.Add(1100 * time.Millisecond))
			require.Equal(t, !tt.opens, ok)
		})
	}
}

// A client of a server that only hangs: one call a second is held, or one in five, also after many timeouts.
func TestOpening_hangingServerHoldsFewCalls(t *testing.T) {
	for _, tt := range []struct {
		perSecond int
		timeout   time.Duration
		most      float64 // ratio of the calls that are held
	}{{2, time.Second, 0.4}, {2, 5 * time.Second, 0.4}, {2, 30 * time.Second, 0.4}, {20, time.Second, 0.2}, {20, 30 * time.Second, 0.2}, {200, 10 * time.Second, 0.06}} {
		t.Run(fmt.Sprintf("%d a second, timeout of %v", tt.perSecond, tt.timeout), func(t *testing.T) {
			b := record(Rules{})
			every := time.Second / time.Duration(tt.perSecond)
			for i := range 20 {
				b.done(b.must(t, epoch), Result{Outcome: Success, Took: time.Millisecond}, epoch.Add(time.Duration(i)))
			}
			opened, rejected := b.fail(epoch, time.Hour, kind{every: every, fails: tt.timeout})
			require.True(t, rejected)
			at, calls, held := epoch.Add(opened+2*tt.timeout), 0, 0
			type probe struct {
				Permit
				end time.Time
			}
			var probes []probe
			for range 100 * tt.perSecond {
				for len(probes) > 0 && !probes[0].end.After(at) {
					b.done(probes[0].Permit, Result{Outcome: Failure, Took: tt.timeout, TimeOut: true}, at)
					probes = probes[1:]
				}
				calls++
				if permit, _, ok := b.admit(at); ok {
					held++
					probes = append(probes, probe{permit, at.Add(tt.timeout)})
				}
				at = at.Add(every)
			}
			require.LessOrEqual(t, float64(held)/float64(calls), tt.most)
			require.GreaterOrEqual(t, held, 60, "a probe at least each 1.7 s")
		})
	}
}
