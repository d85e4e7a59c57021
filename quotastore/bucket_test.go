package quotastore

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// large is a large number of units that fits into an int of 32 bits.
const large = 1 << 30

// exactBucket is a bucket in rational numbers.
type exactBucket struct {
	used *big.Rat
	at   int64
}

func (b *exactBucket) take(now, want, minUnits int64, r *Rule) (int64, bool) {
	gained := big.NewRat(max(now-b.at, 0), 1)
	gained.Mul(gained, big.NewRat(int64(r.Limit), int64(r.Window)))
	b.at = now
	if b.used.Sub(b.used, gained); b.used.Sign() < 0 {
		b.used.SetInt64(0)
	}
	left := new(big.Rat).Sub(big.NewRat(int64(r.Capacity()), 1), b.used)
	whole := new(big.Int).Quo(left.Num(), left.Denom()).Int64()
	if whole < minUnits {
		return 0, false
	}
	taken := min(want, whole)
	b.used.Add(b.used, big.NewRat(taken, 1))
	return taken, true
}

// The bucket's arithmetic equals that of rational numbers, for any rule.
func TestBucket_isExact(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := Rule{Limit: 1 + int(math.Exp(random.Float64()*21)), Window: time.Duration(1 + math.Exp(random.Float64()*37)), Burst: int(math.Exp(random.Float64() * 21))}
		require.NoError(t, r.Validate())
		got, exact := bucket{}, exactBucket{used: new(big.Rat)}
		now := int64(0)
		for range 300 {
			if random.IntN(3) > 0 {
				now += int64(random.Float64() * random.Float64() * 3 * float64(r.Window) / float64(r.Limit) * math.Exp(random.Float64()*5))
			}
			want := int64(random.Float64()*random.Float64()*float64(r.Capacity())) + 1
			minUnits := random.Int64N(want + 1)
			wantTaken, wantOK := exact.take(now, want, minUnits, &r)
			taken, ok := got.take(now, want, minUnits, &r)
			require.Equal(t, wantTaken, taken, "seed %d, %+v", seed, r)
			require.Equal(t, wantOK, ok, "seed %d, %+v", seed, r)
			if !ok { // A3: the wait is exact to the nanosecond
				enough := got.wait(minUnits, &r)
				if enough > math.MaxInt64-now {
					continue // after three centuries
				}
				early, late := got, got
				_, ok = early.take(now+enough-1, minUnits, minUnits, &r)
				require.False(t, ok, "seed %d, %+v", seed, r)
				_, ok = late.take(now+enough, minUnits, minUnits, &r)
				require.True(t, ok, "seed %d, %+v", seed, r)
			}
		}
	}
}

// A10: after a million idle hours the bucket is full, and nothing overflows.
func TestBucket_afterLongTime(t *testing.T) {
	for _, r := range []Rule{
		{Limit: 1, Window: maxWindow}, {Limit: large, Window: 1}, {Limit: large, Window: maxWindow},
		{Limit: 3, Window: time.Second, Burst: large}, {Limit: 1, Window: maxWindow, Burst: large},
	} {
		var b bucket
		taken, ok := b.take(0, int64(r.Capacity()), int64(r.Capacity()), &r)
		require.True(t, ok)
		require.EqualValues(t, r.Capacity(), taken)
		require.Positive(t, b.wait(1, &r))
		require.GreaterOrEqual(t, b.reset(&r), b.wait(1, &r))
		if reset := b.reset(&r); reset < math.MaxInt64 {
			_, ok = b.take(reset, int64(r.Capacity()), int64(r.Capacity()), &r)
			require.True(t, ok)
		}
		b.fill(math.MaxInt64, &r)
		require.LessOrEqual(t, b.used, int64(r.Capacity()))
		require.GreaterOrEqual(t, b.used, int64(0))
	}
}

// FuzzBucket checks that any rule and any times give consistent results, and no panic.
func FuzzBucket(f *testing.F) {
	f.Add(100, int64(time.Minute), 0, int64(0), int64(1), int64(1), int64(5))
	f.Add(1, int64(1), large, int64(math.MaxInt64), int64(-5), int64(math.MinInt64), int64(7))
	f.Fuzz(func(t *testing.T, limit int, length int64, burst int, first, want, second, more int64) {
		for _, sliding := range []bool{false, true} {
			r := Rule{Limit: limit, Window: time.Duration(length), Burst: burst, Sliding: sliding}
			if r.Validate() != nil {
				return
			}
			var a account
			for _, step := range [][2]int64{{first, want}, {second, more}, {second, 1}} {
				now, want := max(step[0], 0)/2, max(step[1], -maxUnits)
				result := a.take(now, want, min(max(want, 0), int64(r.Capacity())), &r)
				require.GreaterOrEqual(t, result.Remaining, 0)
				require.LessOrEqual(t, result.Remaining, r.Capacity())
				require.LessOrEqual(t, result.Allowed, r.Capacity())
				require.GreaterOrEqual(t, result.RetryAfter, time.Duration(0))
				require.GreaterOrEqual(t, result.ResetAfter, result.RetryAfter)
				require.Equal(t, result.OK, result.RetryAfter == 0)
			}
		}
	})
}

type granted struct{ at, units int64 }

// mostInAnyWindow returns the maximum number of units within one window.
func mostInAnyWindow(grants []granted, length int64) int64 {
	most, sum, first := int64(0), int64(0), 0
	for _, g := range grants {
		sum += g.units
		for grants[first].at <= g.at-length {
			sum -= grants[first].units
			first++
		}
		most = max(most, sum)
	}
	return most
}

// A5: in any Window at most Limit units are taken, and with more demand hardly fewer.
func TestWindow_grantsLimit(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := Rule{Limit: 1 + random.IntN(300), Window: time.Duration(1+random.IntN(3000)) * time.Millisecond, Sliding: true}
		length := int64(r.Window)
		var w window
		var grants []granted
		total, now := int64(0), int64(0)
		for now < 20*length {
			now += random.Int64N(length/int64(r.Limit) + 1)
			units, ok := w.take(now, 1+random.Int64N(2), 1, &r)
			if ok {
				grants, total = append(grants, granted{now, units}), total+units
			}
			require.LessOrEqual(t, len(w.slots), windowSlots+1)
		}
		require.LessOrEqual(t, mostInAnyWindow(grants, length), int64(r.Limit), "seed %d, %+v", seed, r)
		require.GreaterOrEqual(t, float64(total), 0.96*20*float64(r.Limit), "seed %d, %+v", seed, r)
	}
}

// A3: the wait is exact: a take is rejected before it and accepted after it.
func TestWindow_waitIsExact(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 4))
		r := Rule{Limit: 1 + random.IntN(200), Window: time.Second, Sliding: true}
		var w window
		now := int64(0)
		for range 500 {
			now += random.Int64N(int64(r.Window) / 20)
			n := 1 + random.Int64N(int64(r.Limit))
			if _, ok := w.take(now, n, n, &r); ok {
				continue
			}
			enough := w.wait(now, n, &r)
			require.LessOrEqual(t, enough, w.reset(now, &r))
			early, late := clone(w), clone(w)
			_, ok := early.take(now+enough-1, n, n, &r)
			require.False(t, ok)
			_, ok = late.take(now+enough, n, n, &r)
			require.True(t, ok)
		}
	}
}

func clone(w window) window {
	w.slots = append([]slot(nil), w.slots...)
	return w
}

// Returned units are removed from the oldest takes, so the others count for long enough.
func TestWindow_returnedUnits(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		r := Rule{Limit: 1 + random.IntN(100), Window: time.Second, Sliding: true}
		length := int64(r.Window)
		var w window
		var grants []granted
		now := int64(0)
		for range 2000 {
			now += random.Int64N(2 * length / int64(r.Limit))
			if random.IntN(4) == 0 && len(grants) > 0 {
				// Any take of the last window is returned.
				i := len(grants) - 1 - random.IntN(min(len(grants), 10))
				if now-grants[i].at < length && grants[i].units > 0 {
					require.Equal(t, -grants[i].units, w.giveBack(grants[i].units))
					grants[i].units = 0
				}
			} else if units, ok := w.take(now, 1+random.Int64N(3), 1, &r); ok {
				grants = append(grants, granted{now, units})
			}
			require.LessOrEqual(t, mostInAnyWindow(grants[max(0, len(grants)-500):], length), int64(r.Limit), "seed %d", seed)
		}
	}
}

// If the clock is set back, a bucket continues from there, and the takes of a window move with it. If it is set forward, both
// are full.
func TestAccount_clockJumps(t *testing.T) {
	for _, sliding := range []bool{false, true} {
		r := Rule{Limit: 10, Window: time.Second, Burst: 10, Sliding: sliding}
		var a account
		hour := int64(time.Hour)
		require.True(t, a.take(hour, 10, 10, &r).OK)
		back := a.take(0, 1, 1, &r) // an hour back
		require.False(t, back.OK)
		require.LessOrEqual(t, back.ResetAfter, time.Second)
		require.True(t, a.take(int64(back.RetryAfter), 1, 1, &r).OK)
		require.Equal(t, 10, a.take(1000*hour, 100, 1, &r).Allowed)
	}
}
