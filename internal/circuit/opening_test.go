package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.15: a half-open circuit admits a few probes, each with a slot for one cooldown. The ratio
// of failures decides.
func TestOpening_probes(t *testing.T) {
	// Steps, all on one circuit that is half-open:
	//   a     a call is admitted       r     a call is rejected
	//   0-9   that call ends, with the outcome of the next letter
	//   x     that call is canceled    +     half a cooldown passes
	for _, tt := range []struct {
		name  string
		ratio float64
		steps string
		want  string // the changes
	}{
		{"three successes close", 0, "aaa0S1S2Saaaaaaaa", "half-open closed"},
		{"one after the other", 0, "a0Sa1Sa2Saaaaaaaaa", "half-open closed"},
		{"no more than three at once", 0, "aaarrr", "half-open"},
		{"a success keeps its slot", 0, "aaa0Srr1Sr2Saaaaa", "half-open closed"},
		{"nothing but a failure opens", 0, "a0Fr", "half-open open"},
		{"a failure beside probes in flight does not", 0, "aaa0F1Fr", "half-open"},
		{"nothing but failures opens", 0, "aaa0F1F2Fr", "half-open open"},
		{"failures beside a success do not", 0, "aaa0S1Fr2Faaaa", "half-open closed"},
		{"a failure keeps its slot", 0, "aaa0Sr1Frr", "half-open"},
		{"a success does not close before the others have their results", 0, "aaa0S1Srr", "half-open"},
		{"one of two is half", 0.5, "aa0S1Fr", "half-open open"},
		{"one of three is less than half", 0.5, "aaa0S1S2Faaaa", "half-open closed"},
		{"one of three is a third", 0.3, "aaa0S1S2Fr", "half-open open"},
		{"late results after that are ignored", 0.3, "aaa0F1F2S1Sr", "half-open open"},
		{"429 is a success", 0, "aaa0A1A2Aaaaa", "half-open closed"},
		{"429 is a success, beside failures", 0, "aaa0A1F2Faaaa", "half-open closed"},
		{"a canceled probe frees its slot", 0, "aaar0xar1x2xaar", "half-open"},
		{"an unknown result frees its slot", 0, "aaar0Nar1N2Naar", "half-open"},
		{"a canceled probe is not a success", 0, "aaa0x1x2xa3S", "half-open"},
		{"slots are free after a cooldown", 0, "aaa+r+aaar", "half-open"},
		{"each slot in its time", 0, "a+aar+ar+aar", "half-open"},
		{"a late success counts", 0, "aaa++0S1S2Saaaaa", "half-open closed"},
		{"a late success counts beside new probes", 0, "aaa++aaa0S1S3Saaaaa", "half-open closed"},
		{"a late success takes a slot", 0, "aaa++0Saar", "half-open"},
		{"late failures open beside new probes", 0, "aaa++aaa0F1F2Fr", "half-open open"},
		{"a late failure opens", 0, "aaa++0Fr", "half-open open"},
		{"a late cancel frees nothing", 0, "aaa++aaa0x1x2xr", "half-open"},
		{"a second result is ignored", 0, "aaa0S0S0S0F1S", "half-open"},
		{"a second failure is ignored", 0.5, "aaa0S1S1F1F1F", "half-open"},
		{"a second result is ignored when the first was late", 0, "aaa++0S0S0S0F", "half-open"},
		{"a second cancel frees nothing", 0, "aaa0xa0x0xr", "half-open"},
		{"a success after a cancel is ignored", 0, "aaa0x0S0S0S", "half-open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const cooldown = 8 * time.Second
			b := record(Rules{FailureRatio: tt.ratio, MinRequests: 1, Cooldown: cooldown})
			at := b.opened(t, epoch)
			var permits []Permit
			for i := 0; i < len(tt.steps); i++ {
				msg := []any{"step %d of %s", i, tt.steps}
				switch c := tt.steps[i]; c {
				case 'a', 'r':
					permit, notBefore, ok := b.admit(at)
					require.Equal(t, c == 'a', ok, msg...)
					if ok {
						permits = append(permits, permit)
					} else {
						require.True(t, notBefore.After(at), msg...)
					}
				case '+':
					at = at.Add(cooldown / 2)
				default:
					i++
					if tt.steps[i] == 'x' {
						permits[c-'0'].Cancel(at)
						continue
					}
					b.done(permits[c-'0'], Result{Outcome: outcomes[tt.steps[i]]}, at)
				}
			}
			require.Equal(t, strings.TrimSpace("open "+tt.want), b.path())
		})
	}
}

// With static rules a failure opens the circuit, with any number of probes in flight.
func TestOpening_staticCountsNoProbesInFlight(t *testing.T) {
	b := record(Rules{MinRequests: 1, Static: true})
	at := b.opened(t, epoch)
	probe := b.must(t, at)
	b.must(t, at)
	b.done(probe, Result{Outcome: Failure}, at)
	require.Equal(t, "open half-open open", b.path())
}

// The circuit closes gradually if any failure since it first opened was slow, and slower
// than the responses to the probes.
func TestOpening_slowStart(t *testing.T) {
	const quick, slow = 10 * time.Millisecond, 500 * time.Millisecond
	success := func(took time.Duration) Result { return Result{Outcome: Success, Took: took} }
	failure := func(took time.Duration) Result { return Result{Outcome: Failure, Took: took} }
	for _, tt := range []struct {
		name   string
		opened time.Duration // latency of the failure that opened it
		rounds [][]Result    // of probes
		want   bool
	}{
		{"slow failure", slow, [][]Result{{success(quick), success(quick), success(quick)}}, true},
		{"quick failure", quick, [][]Result{{success(quick), success(quick), success(quick)}}, false},
		{"quick failure, a probe fails slowly", quick, [][]Result{{failure(slow), success(quick), success(quick)}}, true},
		{"quick failure, a probe fails slowly and one quickly", quick, [][]Result{{failure(slow), failure(quick), success(quick)}}, true},
		{"slow failure, then a quick one of all probes", slow, [][]Result{{failure(quick), failure(quick), failure(quick)}, {success(quick), success(quick), success(quick)}}, true},
		{"slow failure, responses are slower", slow, [][]Result{{success(quick), success(quick), success(slow + 1)}}, false},
		{"slow failure, responses are as slow", slow, [][]Result{{success(quick), success(quick), success(slow)}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{MinRequests: 1})
			b.done(b.must(t, epoch), success(quick), epoch)
			at := epoch.Add(time.Minute)
			b.done(b.must(t, at), failure(tt.opened), at)
			for _, round := range tt.rounds {
				var rejects bool
				at, rejects = b.rejects(at, false)
				require.True(t, rejects)
				probes := []Permit{b.must(t, at), b.must(t, at), b.must(t, at)}
				for i, result := range round {
					b.done(probes[i], result, at)
				}
			}
			require.Equal(t, Closed, b.Find(host).State(at))
			require.Equal(t, tt.want, b.limit() != nil)
		})
	}
}

// A retry waits for the result of the probes, or for another cooldown if that is shorter.
func TestOpening_retryWaits(t *testing.T) {
	for _, tt := range []struct{ cooldown, want time.Duration }{
		{100 * time.Millisecond, 100 * time.Millisecond},
		{time.Second, time.Second},
		{4 * time.Second, time.Second},
	} {
		t.Run(fmt.Sprintf("cooldown of %v: %v", tt.cooldown, tt.want), func(t *testing.T) {
			b := record(Rules{MinRequests: 1, Cooldown: tt.cooldown})
			at := b.opened(t, epoch)
			notBefore, rejects := b.rejects(at, true)
			require.True(t, rejects)
			require.Equal(t, at.Add(tt.cooldown), notBefore, "no probe yet")
			b.must(t, at)
			notBefore, rejects = b.rejects(at, true)
			require.True(t, rejects)
			require.Equal(t, at.Add(tt.want), notBefore)
		})
	}
}

// §4.15: NotBefore is when a slot is free, or sooner, and never in the past.
func TestOpening_fullOfProbes(t *testing.T) {
	const cooldown = 4 * time.Second
	b := record(Rules{MinRequests: 1, Probes: 2, Cooldown: cooldown})
	at := b.opened(t, epoch)
	after := at.Add
	first := b.must(t, at)
	_, rejects := b.rejects(at, false)
	require.False(t, rejects)
	b.must(t, after(time.Second))

	_, notBefore, ok := b.admit(after(2 * time.Second))
	require.False(t, ok)
	require.Equal(t, after(3*time.Second), notBefore, "the probes may have results soon")
	notBefore, rejects = b.rejects(after(2*time.Second), false)
	require.True(t, rejects)
	require.Equal(t, after(3*time.Second), notBefore)
	_, notBefore, _ = b.admit(after(cooldown - time.Second/2))
	require.Equal(t, after(cooldown), notBefore, "the first slot is free sooner")
	_, rejects = b.rejects(after(cooldown), false)
	require.False(t, rejects, "by then, the slot is free")

	first.Cancel(at)
	_, rejects = b.rejects(after(2*time.Second), false)
	require.False(t, rejects)
}

// Also if results take all slots, a rejection has a NotBefore.
func TestOpening_fullOfResults(t *testing.T) {
	b := record(Rules{MinRequests: 1, Probes: 2, Cooldown: 4 * time.Second})
	at := b.opened(t, epoch)
	b.must(t, at)
	b.done(b.must(t, at), Result{Outcome: Success}, at)
	for range 20 {
		_, notBefore, ok := b.admit(at)
		if ok {
			return // the other slot is free
		}
		require.True(t, notBefore.After(at))
		at = notBefore
	}
	t.Fatal("full for ever")
}

// After a circuit has opened again, slots are held for the new cooldown.
func TestOpening_slotIsHeldForOneCooldown(t *testing.T) {
	b := record(Rules{MinRequests: 1, Probes: 1, Cooldown: time.Second, Static: true})
	at := b.opened(t, epoch)
	for cooldown := time.Second; cooldown <= DefaultMaxCooldown; cooldown *= 2 {
		permit := b.must(t, at)
		_, rejects := b.rejects(at.Add(cooldown-1), false)
		require.True(t, rejects)
		_, rejects = b.rejects(at.Add(cooldown), false)
		require.False(t, rejects)
		b.done(permit, Result{Outcome: Failure}, at)
		at, _ = b.rejects(at, false)
	}
}

// §4.15: the few slots of a half-open circuit are for new calls, unless the rules are static.
func TestOpening_retriesAreNoProbes(t *testing.T) {
	for _, static := range []bool{false, true} {
		b := record(Rules{MinRequests: 1, Cooldown: time.Second, Static: static})
		at := b.opened(t, epoch)
		ask := func() (rejected bool) {
			rejectedUntil, rejects := b.rejects(at, true)
			_, notBefore, ok := b.ask(at, true)
			require.Equal(t, rejects, !ok)
			if rejects {
				require.True(t, rejectedUntil.After(at))
				require.True(t, notBefore.After(at))
			}
			return rejects
		}
		require.Equal(t, !static, ask(), "when the cooldown is over")
		probes := []Permit{b.must(t, at)}
		require.Equal(t, !static, ask(), "half-open")
		for b.Find(host).State(at) == HalfOpen {
			if permit, _, ok := b.admit(at); ok {
				probes = append(probes, permit)
			} else {
				for _, p := range probes {
					b.done(p, Result{Outcome: Success}, at)
				}
				if static { // the retries were the other probes
					return
				}
			}
		}
		require.False(t, ask(), "closed")
	}
}

// A circuit closes even if the server responds more slowly than one cooldown.
func TestOpening_slowServerRecovers(t *testing.T) {
	const slow = 5 * time.Second
	b := record(Rules{MinRequests: 1, Cooldown: time.Second})
	at := b.opened(t, epoch)
	type out struct {
		Permit
		since time.Time
	}
	var outs []out
	for range 10 {
		if permit, _, ok := b.admit(at); ok {
			outs = append(outs, out{permit, at})
		}
		at = at.Add(time.Second)
		for len(outs) > 0 && at.Sub(outs[0].since) >= slow {
			b.done(outs[0].Permit, Result{Outcome: Success, Took: slow}, at)
			outs = outs[1:]
		}
	}
	require.Equal(t, "open half-open closed", b.path())
}

// All slots are free again after one cooldown, however the probes end.
func TestOpening_slotsDoNotLeak(t *testing.T) {
	for _, give := range []struct {
		name string
		back func(*recorded, Permit, time.Time)
	}{
		{"canceled", func(_ *recorded, p Permit, at time.Time) { p.Cancel(at) }},
		{"unknown result", func(b *recorded, p Permit, at time.Time) { b.done(p, Result{}, at) }},
		{"too short a timeout", func(b *recorded, p Permit, at time.Time) { b.done(p, Result{Outcome: Timeout}, at) }},
		{"lost", func(*recorded, Permit, time.Time) {}},
		{"canceled late", func(_ *recorded, p Permit, at time.Time) { p.Cancel(at.Add(time.Hour)) }},
	} {
		t.Run(give.name, func(t *testing.T) {
			b := record(Rules{MinRequests: 1, Cooldown: time.Second})
			at := b.opened(t, epoch)
			for range 100 {
				var probes []Permit
				for permit, _, ok := b.admit(at); ok; permit, _, ok = b.admit(at) {
					probes = append(probes, permit)
				}
				require.Len(t, probes, DefaultProbes)
				for _, p := range probes {
					give.back(b, p, at)
				}
				at = at.Add(time.Second)
			}
			require.Equal(t, "open half-open", b.path())
		})
	}
}
