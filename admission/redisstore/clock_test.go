package redisstore_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission/redisstore"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// model is a token bucket in rational numbers.
type model struct {
	used *big.Rat
	at   int64 // microseconds
}

func (m *model) take(now, want, minUnits int64, r *quotastore.Rule) (int64, bool) {
	gained := big.NewRat(max(now-m.at, 0), 1)
	gained.Mul(gained, big.NewRat(int64(r.Limit), r.Window.Microseconds()))
	m.at = now
	if m.used.Sub(m.used, gained); m.used.Sign() < 0 {
		m.used.SetInt64(0)
	}
	left := new(big.Rat).Sub(big.NewRat(int64(r.Capacity()), 1), m.used)
	whole := new(big.Int).Quo(left.Num(), left.Denom()).Int64()
	if whole < minUnits {
		return 0, false
	}
	taken := min(want, whole)
	m.used.Add(m.used, big.NewRat(taken, 1))
	return taken, true
}

// A5: the bucket's arithmetic equals that of rational numbers, for any rule, in spite of
// double precision. A3: the wait is exact to the microsecond.
func TestBucket_isExact(t *testing.T) {
	t.Parallel()
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := quotastore.Rule{
			Limit:  1 + int(math.Exp(random.Float64()*27)),
			Window: time.Duration(1+math.Exp(random.Float64()*31)) * time.Microsecond,
			Burst:  int(math.Exp(random.Float64() * 27)),
		}
		require.NoError(t, r.Validate())
		exact := model{used: new(big.Rat)}
		now, key := int64(1.7e15), strconv.FormatUint(seed, 10)
		for range 40 {
			if random.IntN(3) > 0 {
				now += int64(random.Float64() * random.Float64() * 3 * float64(r.Window.Microseconds()) / float64(r.Limit) * math.Exp(random.Float64()*5))
			}
			server.SetTime(time.UnixMicro(now))
			want := int64(random.Float64()*random.Float64()*float64(r.Capacity())) + 1
			minUnits := random.Int64N(want + 1)
			wantTaken, wantOK := exact.take(now, want, minUnits, &r)
			got := mustTake(t, s, key, int(want), int(minUnits), r)
			require.Equal(t, wantTaken, int64(got.Allowed), "seed %d, %+v", seed, r)
			require.Equal(t, wantOK, got.OK, "seed %d, %+v", seed, r)
			if enough := got.RetryAfter.Microseconds(); !got.OK && enough < 1e15 {
				server.SetTime(time.UnixMicro(now + enough - 1))
				require.False(t, mustTake(t, s, key, int(minUnits), int(minUnits), r).OK, "seed %d, %+v", seed, r)
				now += enough
				server.SetTime(time.UnixMicro(now))
				_, _ = exact.take(now, minUnits, minUnits, &r)
				require.True(t, mustTake(t, s, key, int(minUnits), int(minUnits), r).OK, "seed %d, %+v", seed, r)
			}
		}
	}
}

// A5: in any Window at most Limit units are taken, and with more demand hardly fewer. A3: the
// wait is exact.
func TestWindow_grantsLimit(t *testing.T) {
	t.Parallel()
	type grant struct{ at, units int64 }
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 2))
		r := quotastore.Rule{Limit: 1 + random.IntN(150), Window: time.Duration(1+random.IntN(3000)) * time.Millisecond, Sliding: true}
		length, now, began := r.Window.Microseconds(), int64(1.7e15), int64(1.7e15)
		var grants []grant
		total := int64(0)
		for now < began+4*length {
			now += random.Int64N(length/int64(r.Limit) + 1)
			server.SetTime(time.UnixMicro(now))
			result := mustTake(t, s, strconv.FormatUint(seed, 10), 1+random.IntN(2), 1, r)
			if result.OK {
				grants, total = append(grants, grant{now, int64(result.Allowed)}), total+int64(result.Allowed)
				continue
			}
			server.SetTime(time.UnixMicro(now + result.RetryAfter.Microseconds() - 1))
			require.False(t, mustTake(t, s, strconv.FormatUint(seed, 10), 1, 1, r).OK)
			now += result.RetryAfter.Microseconds()
		}
		for i, g := range grants {
			sum := int64(0)
			for _, later := range grants[i:] {
				if later.at < g.at+length {
					sum += later.units
				}
			}
			require.LessOrEqual(t, sum, int64(r.Limit), "seed %d, %+v", seed, r)
		}
		require.GreaterOrEqual(t, float64(total), 0.9*4*float64(r.Limit), "seed %d, %+v", seed, r)
	}
}

// If the server's clock is set back, no key waits for it. If it is set forward, the whole
// quota is available.
func TestStore_clockJumps(t *testing.T) {
	for name, sliding := range map[string]bool{"bucket": false, "window": true} {
		t.Run(name, func(t *testing.T) {
			server, client := fakeClock(t)
			s := &redisstore.Store{Client: client}
			r := quotastore.Rule{Limit: 10, Window: time.Second, Sliding: sliding}
			now := time.Unix(1_700_000_000, 0)
			set := func(at time.Time) { now = at; server.SetTime(now) }
			take := func(want int) quotastore.Result { return mustTake(t, s, "k", want, 1, r) }
			set(now)
			require.Equal(t, 10, take(20).Allowed)
			set(now.Add(-time.Hour))
			rejected := take(1)
			require.False(t, rejected.OK)
			require.LessOrEqual(t, rejected.ResetAfter, time.Second)
			set(now.Add(rejected.RetryAfter))
			require.True(t, take(1).OK)
			set(now.Add(1000 * time.Hour))
			require.Equal(t, 10, take(20).Allowed)

			// block returns the minimum time of the block: only the test's clock advances.
			block := func(d time.Duration) time.Duration {
				began := time.Now()
				require.NoError(t, s.Block(t.Context(), "k", began.Add(d)))
				return d - time.Since(began)
			}
			minUnits := block(time.Minute)
			set(now.Add(-time.Hour))
			wait := take(1).RetryAfter
			require.LessOrEqual(t, wait, time.Minute)
			require.GreaterOrEqual(t, wait, minUnits, "blocked for as long as before")
			block(2 * time.Minute)
			set(now.Add(-time.Hour))
			minUnits = block(3 * time.Minute)
			wait = take(1).RetryAfter
			require.LessOrEqual(t, wait, 3*time.Minute)
			require.GreaterOrEqual(t, wait, minUnits)
			set(now.Add(3*time.Minute + time.Second))
			require.Equal(t, 10, take(20).Allowed)
		})
	}
}

// After a change of the rule the units that were taken count, also if a bucket becomes a
// window and back.
func TestStore_ruleChanges(t *testing.T) {
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	server.SetTime(time.Unix(1_700_000_000, 0))
	bucket := quotastore.Rule{Limit: 10, Window: time.Minute}
	sliding := quotastore.Rule{Limit: 10, Window: time.Minute, Sliding: true}
	taken := 0
	for range 10 {
		taken += mustTake(t, s, "k", 2, 0, bucket).Allowed
		taken += mustTake(t, s, "k", 2, 0, sliding).Allowed
	}
	require.Equal(t, 10, taken)
	require.Zero(t, mustTake(t, s, "k", 0, 0, quotastore.Rule{Limit: 5, Window: time.Minute}).Remaining)
	require.Equal(t, 90, mustTake(t, s, "k", 0, 0, quotastore.Rule{Limit: 100, Window: time.Minute}).Remaining)
}
