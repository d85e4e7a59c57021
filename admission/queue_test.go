package admission

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// A deadline that is too short even for an idle server says nothing about the load.
func TestConcurrencyGate_ignoresHopelessDeadlines(t *testing.T) {
	g := concurrencyGate{limiter: newLimiter(20, 4, 1000, 2)}
	for range 10 {
		flight, hopeless := g.enter(0, noDeadline, &g.shared, 0, 0)
		require.False(t, hopeless)
		g.done(0, sample{took: 10 * ms, flight: flight}, &g.shared, 0)
	}
	_, hopeless := g.enter(0, 5*ms, &g.shared, 0, 0)
	require.True(t, hopeless)
	require.False(t, g.full)
}

// FuzzGate: for any requests at any time, no slot is lost or given twice, the limit stays
// within its bounds, and keys without requests are forgotten.
func FuzzGate(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 4, 5, 6, 7, 255, 0, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		g := concurrencyGate{limiter: newLimiter(3, 1, 9, 2)}
		now := time.Duration(0)
		waiting := map[*waiter]bool{}
		var inside []*waiter
		for i, b := range script {
			now += time.Duration(b%16) * time.Duration(b) * ms // and not at all, sometimes
			left := noDeadline
			if b%3 == 0 {
				left = time.Duration(int(b)-30) * 10 * ms
			}
			switch {
			case b < 128:
				w := &waiter{class: i % classes, key: &g.shared}
				if len(script)%2 == 0 {
					w.key, w.mark = g.of(string('a' + b%5))
				}
				flight, hopeless := g.enter(now, left, w.key, w.mark, w.class)
				switch {
				case flight > 0:
					inside = append(inside, w)
				case !hopeless:
					victim, why := g.join(now, left, w)
					if victim != nil {
						require.True(t, waiting[victim])
						delete(waiting, victim)
					}
					if why == ReasonNone {
						waiting[w] = true
					}
				}
			case b < 240 && len(inside) > 0:
				w := inside[i%len(inside)]
				inside = slices.Delete(inside, i%len(inside), i%len(inside)+1)
				g.done(now, sample{took: time.Duration(b-130) * ms, flight: 1 + i%9, late: b%5 == 0}, w.key, w.class)
				for w := g.admitNext(); w != nil; w = g.admitNext() {
					require.True(t, waiting[w])
					delete(waiting, w)
					inside = append(inside, w)
				}
			default:
				for w := range waiting {
					g.drop(w)
					delete(waiting, w)
					break
				}
			}
			if i < len(script)-1 {
				continue
			}
			active := map[string]bool{}
			for _, w := range inside {
				active[w.key.key] = w.key != &g.shared
			}
			for w := range waiting {
				active[w.key.key] = w.key != &g.shared
			}
			delete(active, "") // strangers
			require.Len(t, g.keys, len(active))
			require.Len(t, inside, g.limiter.inflight)
			require.Len(t, waiting, g.fairQueue.len)
			require.GreaterOrEqual(t, g.limit, 1.0)
			require.LessOrEqual(t, g.limit, 9.0)
			require.GreaterOrEqual(t, g.base, 0.0) // and no NaN
		}
	})
}

// know makes a key known.
func (g *concurrencyGate) know(key string) {
	for range knownSeconds {
		g.admitted.second++
		g.admitted.add(g.admitted.mark(key))
	}
}

// manyKeys is a gate with as many keys that wait, all known, and a slot for each four.
func manyKeys(keys int) (g *concurrencyGate, enter func(key string) *waiter) {
	slots := keys / keysPerSlot
	g = &concurrencyGate{limiter: newLimiter(slots, slots, slots, -1), queueLimit: 2 * keys, maxWait: time.Hour}
	enter = func(key string) *waiter {
		w := &waiter{class: len(key) % classes}
		w.key, w.mark = g.of(key)
		if flight, _ := g.enter(0, noDeadline, w.key, w.mark, w.class); flight > 0 {
			return nil
		}
		if victim, _ := g.join(0, noDeadline, w); victim != nil {
			return victim
		}
		return w
	}
	for n := range slots {
		enter("in flight " + strconv.Itoa(n))
	}
	for n := range keys {
		key := strconv.Itoa(n)
		g.know(key)
		enter(key)
	}
	return g, enter
}

// A17: with any order of arrivals, the next request is one that a walk through all keys finds.
func TestFairQueue_indexFindsWhatAWalkFinds(t *testing.T) {
	g, enter := manyKeys(400)
	random := rand.New(rand.NewPCG(17, 17))
	var inside []*waiter
	for range 5000 {
		key := strconv.Itoa(random.IntN(500))
		g.know(key)
		enter(key)
		if len(inside) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(inside))
			w := inside[i]
			inside = slices.Delete(inside, i, i+1)
			g.done(0, sample{took: -1}, w.key, w.class)
		} else {
			g.done(0, sample{took: -1}, &g.shared, 0)
			enter("stranger")
		}
		got, last := g.first(g.slots()), g.last()
		for _, k := range g.keys {
			if w := k.first(); w != nil {
				require.False(t, g.before(w, got, g.slots()), "%q before %q", w.key.key, got.key.key)
			}
			if k.queued > 0 && last.key != &g.shared {
				require.False(t, k.losesBefore(last.key), "%q before %q", k.key, last.key.key)
			}
		}
		require.LessOrEqual(t, len(g.longest.keys)+g.shared.queued, 5*g.slots())
		if w := g.admitNext(); w != nil && w.key != &g.shared {
			inside = append(inside, w)
		}
	}
}

// A request yields the processor if that costs little compared to its latency, or if the
// latency is unknown.
func TestConcurrencyGate_yields(t *testing.T) {
	for _, row := range []struct {
		name   string
		took   time.Duration
		flight int
		yields bool
	}{
		{"unknown", 0, 0, true},
		{"long", 5 * ms, 4, true},
		{"short, and one by one", 5 * time.Microsecond, 1, false},
		{"short, among many", 5 * time.Microsecond, 100, false},
		{"not so short, among many", 50 * time.Microsecond, 100, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var g concurrencyGate
			for range row.flight {
				g.done(0, sample{took: row.took, flight: row.flight}, &g.shared, 0)
			}
			require.Equal(t, row.yields, g.yields())
		})
	}
}
