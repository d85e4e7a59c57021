package limiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// visited are the requests of a test that a meter permitted.
type visited struct {
	at, until time.Duration
	cost      int
}

// keeps reports whether the permitted requests keep the limit. It knows the limit's definition, and
// nothing of the meters.
func (l Limit) keeps(all []visited) bool {
	begins, used := -l.Window, 0
	for i, last := range all {
		switch l.Kind {
		case FixedWindow:
			if last.at >= begins+l.Window {
				if begins, used = last.at, 0; l.Clock {
					begins = last.at - last.at%l.Window
				}
			}
			if used += last.cost; used > l.Quota {
				return false
			}
			continue
		default:
		}
		sum := 0
		for j := i; j >= 0; j-- {
			first := all[j]
			switch sum += first.cost; l.Kind {
			case SlidingWindow:
				if first.at > last.at-l.Window && sum > l.Quota {
					return false
				}
			case TokenBucket, GCRA:
				refilled := float64(l.Quota) * (last.at - first.at).Seconds() / l.Window.Seconds()
				if float64(sum) > float64(l.Burst)+refilled+0.001 {
					return false
				}
			case Concurrency:
				if first.until <= last.at {
					sum -= first.cost
				}
				if sum > l.Quota {
					return false
				}
			case FixedWindow:
			}
		}
	}
	return true
}

func limitsToTest() map[string]Limit {
	return map[string]Limit{
		"a window of the clock":           {Kind: FixedWindow, Quota: 20, Window: time.Minute, Clock: true},
		"a window of the first request":   {Kind: FixedWindow, Quota: 20, Window: time.Minute},
		"a sliding window":                {Kind: SlidingWindow, Quota: 20, Window: time.Minute},
		"a bucket":                        {Kind: TokenBucket, Quota: 20, Window: time.Minute, Burst: 7},
		"a bucket that holds one":         {Kind: TokenBucket, Quota: 20, Window: time.Minute, Burst: 1},
		"GCRA":                            {Kind: GCRA, Quota: 20, Window: time.Minute, Burst: 7},
		"GCRA without a burst":            {Kind: GCRA, Quota: 20, Window: time.Minute, Burst: 1},
		"requests at once":                {Kind: Concurrency, Quota: 3},
		"a bucket of tokens":              {Kind: TokenBucket, Quota: 90, Window: time.Minute, Burst: 30, Unit: Tokens},
		"a sliding window of tokens":      {Kind: SlidingWindow, Quota: 90, Window: time.Minute, Unit: Tokens},
		"a window that no second divides": {Kind: FixedWindow, Quota: 20, Window: 61700 * time.Millisecond, Clock: true},
	}
}

// Requests at random times get no more than the limit grants, and not much less.
func TestMeter_grantsTheLimit(t *testing.T) {
	for name, l := range limitsToTest() {
		t.Run(name, func(t *testing.T) {
			random, m := rand.New(rand.NewPCG(1, 2)), New(l)
			var all []visited
			units := 0
			const end = 20 * time.Minute
			for now := time.Hour; now < time.Hour+end; now += time.Duration(random.Int64N(int64(2 * time.Second))) {
				v := visited{at: now, until: now + time.Duration(random.Int64N(int64(10*time.Second))), cost: 1}
				if l.Unit == Tokens {
					v.cost = 1 + random.IntN(5)
				}
				if m.Earliest(now, v.cost) > now {
					continue
				}
				m.Take(now, v.until, v.cost)
				all, units = append(all, v), units+v.cost
			}
			require.True(t, l.keeps(all))
			held := 5 * time.Second
			require.Greater(t, float64(units), 0.8*l.PerSecond(held)*end.Seconds())
			require.False(t, l.keeps(append(all, all[len(all)-1], all[len(all)-1], all[len(all)-1], all[len(all)-1], all[len(all)-1],
				visited{all[len(all)-1].at, all[len(all)-1].until, l.Capacity()})), "the check finds what is too much")
		})
	}
}

// A meter grants units at the time that it says, and not before. What it shows is what it grants.
func TestMeter_tellsTheTruth(t *testing.T) {
	for name, l := range limitsToTest() {
		t.Run(name, func(t *testing.T) {
			now := time.Hour
			fresh := func() Meter {
				m := New(l)
				for i := range l.Capacity() {
					at := now + time.Duration(i)*time.Millisecond
					require.LessOrEqual(t, m.Earliest(at, 1), at)
					left, _ := m.Left(at)
					require.Equal(t, l.Capacity()-i, left)
					m.Take(at, now+10*time.Second+time.Duration(i)*time.Second, 1)
				}
				return m
			}
			full := now + time.Duration(l.Capacity())*time.Millisecond
			m := fresh()
			left, reset := m.Left(full)
			require.Zero(t, left)
			next := m.Earliest(full, 1)
			require.Greater(t, next, full)
			require.Greater(t, m.Earliest(next-time.Millisecond, 1), next-time.Millisecond)
			require.LessOrEqual(t, m.Earliest(next, 1), next)
			require.LessOrEqual(t, next, full+reset)
			if l.Kind != Concurrency {
				m = fresh()
				left, _ = m.Left(full + reset + time.Millisecond)
				require.Equal(t, l.Capacity(), left, "all are available at the reset")
			}
		})
	}
}

// A rejection that counts delays the next unit, or is counted in a window that is exhausted anyway.
func TestMeter_fine(t *testing.T) {
	for name, l := range limitsToTest() {
		if l.Kind == Concurrency {
			continue // a rejected request holds no slot
		}
		t.Run(name, func(t *testing.T) {
			m, now := New(l), time.Hour
			for range l.Capacity() {
				m.Take(now, now+time.Minute, 1)
			}
			before := m.Earliest(now, 1)
			at := now + (before-now)/2
			m.Take(at, at, 1)
			if after := m.Earliest(at, 1); l.Kind == FixedWindow || l.Kind == SlidingWindow {
				require.Equal(t, before, after)
			} else {
				require.Greater(t, after, before)
			}
			if left, _ := m.Left(at); left != 0 {
				t.Errorf("got %d, want none", left)
			}
		})
	}
}
