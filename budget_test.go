package resilienthttp

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var budgetEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// budgetDrain takes tokens until there are no more, or more than enough.
func budgetDrain(b *Budget, scope string, now time.Time) (n int) {
	for n < 10_000 {
		if _, ok := b.withdraw(scope, now, nil); !ok {
			break
		}
		n++
	}
	return n
}

func TestBudgetAllows(t *testing.T) {
	const uncapped = 10_000
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		budget *Budget
		calls  int
		want   int
	}{
		{name: "zero value, idle: one per second", budget: &Budget{}, want: 10},
		{name: "zero value: a tenth on top", budget: &Budget{}, calls: 100, want: 20},
		{name: "rounded down", budget: &Budget{}, calls: 109, want: 20},
		{name: "rounded down after the sum", budget: &Budget{Ratio: 0.5, MinPerSecond: 0.05}, calls: 1, want: 1},
		{name: "no floor, idle", budget: &Budget{MinPerSecond: -1}, want: 0},
		{name: "no floor, too few calls", budget: &Budget{MinPerSecond: -1}, calls: 9, want: 0},
		{name: "no floor", budget: &Budget{MinPerSecond: -1}, calls: 10, want: 1},
		{name: "floor is NaN: none", budget: &Budget{MinPerSecond: nan}, calls: 10, want: 1},
		{name: "floor is -Inf: none", budget: &Budget{MinPerSecond: -inf}, calls: 10, want: 1},
		{name: "floor is +Inf", budget: &Budget{MinPerSecond: inf}, want: uncapped},
		{name: "floor is of the window", budget: &Budget{MinPerSecond: 2, Window: time.Minute}, want: 120},
		{name: "floor of a short window", budget: &Budget{MinPerSecond: 10, Window: 100 * time.Millisecond}, want: 1},
		{name: "floor is less than one", budget: &Budget{MinPerSecond: 0.01}, want: 0},
		{name: "negative ratio: no cap", budget: &Budget{Ratio: -1, MinPerSecond: -1}, want: uncapped},
		{name: "ratio is NaN: no cap", budget: &Budget{Ratio: nan}, want: uncapped},
		{name: "ratio is -Inf: no cap", budget: &Budget{Ratio: -inf}, want: uncapped},
		{name: "ratio is tiny: the floor alone", budget: &Budget{Ratio: math.SmallestNonzeroFloat64}, calls: 1000, want: 10},
		{name: "ratio above one", budget: &Budget{Ratio: 3, MinPerSecond: -1}, calls: 7, want: 21},
		{name: "ratio is +Inf, no calls", budget: &Budget{Ratio: inf, MinPerSecond: -1}, want: 0},
		{name: "ratio is +Inf, one call", budget: &Budget{Ratio: inf, MinPerSecond: -1}, calls: 1, want: uncapped},
		{name: "ratio and floor are +Inf", budget: &Budget{Ratio: inf, MinPerSecond: inf}, want: uncapped},
		{name: "everything is huge", budget: &Budget{Ratio: math.MaxFloat64, MinPerSecond: math.MaxFloat64, Window: math.MaxInt64}, calls: 1, want: uncapped},
		{name: "negative window: the default", budget: &Budget{Window: -1}, want: 10},
		{name: "tiny window", budget: &Budget{Window: 1, MinPerSecond: -1}, calls: 20, want: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := [3]any{tt.budget.Ratio, tt.budget.MinPerSecond, tt.budget.Window}
			for range tt.calls {
				tt.budget.deposit("h", budgetEpoch)
			}
			require.Equal(t, tt.want, budgetDrain(tt.budget, "h", budgetEpoch))
			if tt.want < uncapped {
				require.Zero(t, budgetDrain(tt.budget, "h", budgetEpoch.Add(-time.Hour)), "a clock that goes back makes no room")
			}
			if !math.IsNaN(tt.budget.Ratio) && !math.IsNaN(tt.budget.MinPerSecond) {
				after := [3]any{tt.budget.Ratio, tt.budget.MinPerSecond, tt.budget.Window}
				require.Equal(t, before, after, "the fields are the user's")
			}
		})
	}
}

func TestBudgetSlides(t *testing.T) {
	b := &Budget{}
	at := budgetEpoch
	for range 50 {
		b.deposit("h", at)
	}
	require.Equal(t, 15, budgetDrain(b, "h", at))
	require.Zero(t, budgetDrain(b, "h", at.Add(10*time.Second-1)))
	// The calls have left the window with the retries: only the floor is left.
	require.Equal(t, 10, budgetDrain(b, "h", at.Add(10*time.Second)))

	require.Equal(t, 10, budgetDrain(b, "other", at.Add(10*time.Second)), "scopes are apart")
	require.Equal(t, 10, budgetDrain(b, "h", at.Add(1000*time.Hour)), "nothing is saved up")
}

func TestBudgetIsFrozenAtFirstUse(t *testing.T) {
	b := &Budget{}
	b.deposit("h", budgetEpoch)
	b.Ratio, b.MinPerSecond, b.Window = -1, 1000, time.Hour
	require.Equal(t, 10, budgetDrain(b, "h", budgetEpoch))
}

func TestBudgetRefund(t *testing.T) {
	b := &Budget{Ratio: 0.1, MinPerSecond: -1}
	at := budgetEpoch
	for range 20 {
		b.deposit("h", at)
	}
	first, ok := b.withdraw("h", at, nil)
	require.True(t, ok)
	second, ok := b.withdraw("h", at, nil)
	require.True(t, ok)
	_, ok = b.withdraw("h", at, nil)
	require.False(t, ok)

	first.refund()
	first.refund()
	require.Equal(t, 1, budgetDrain(b, "h", at), "what is given back twice is back once")

	// Long after: the token has left the window by itself, and those who came
	// after it must not lose theirs.
	at = at.Add(time.Minute)
	for range 20 {
		b.deposit("h", at)
	}
	require.Equal(t, 2, budgetDrain(b, "h", at))
	second.refund()
	require.Zero(t, budgetDrain(b, "h", at))

	budgetToken{}.refund() // one that an uncapped Budget gave
	token, ok := (&Budget{Ratio: -1}).withdraw("h", at, nil)
	require.True(t, ok)
	token.refund()
}

// A refused withdrawal must not leave anything behind for scopes of clients
// that never retry.
func TestBudgetStateOfAnIdleScopeIsSmall(t *testing.T) {
	b := &Budget{MinPerSecond: -1}
	b.deposit("h", budgetEpoch)
	_, ok := b.withdraw("h", budgetEpoch, nil)
	require.False(t, ok)
	require.Nil(t, b.scopes.Peek("h").taken)

	for i := range 10_000 {
		b.deposit(strconv.Itoa(i), budgetEpoch)
	}
	require.LessOrEqual(t, b.scopes.Len(), 4096, "§4.18")

	off := &Budget{Ratio: -1}
	off.deposit("h", budgetEpoch)
	off.withdraw("h", budgetEpoch, nil)
	require.Zero(t, off.scopes.Len())
}

// §4.16, against the definition: whenever a token is given, those of the last
// window are within the share of the calls of the last window. And it is no
// tighter than documented: a token is refused only if it would break the rule
// with calls forgotten a sixteenth early and retries a fifteenth late.
func TestBudgetModel(t *testing.T) {
	type taken struct {
		at    time.Time
		token budgetToken
		back  bool
	}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		length := time.Duration(1+r.Int64N(20_000)) * time.Millisecond
		b := &Budget{Ratio: r.Float64() * 2, MinPerSecond: r.Float64() * 2, Window: length}
		floor := b.MinPerSecond * length.Seconds()
		var calls []time.Time
		var takes []*taken
		now := budgetEpoch
		given := 0
		for range 500 {
			switch r.IntN(20) {
			case 0:
				now = now.Add(time.Duration(r.Int64N(int64(2 * length))))
			case 1:
				now = now.Add(length)
			default:
				now = now.Add(time.Duration(r.Int64N(int64(length) / 50)))
			}
			for range r.IntN(4) {
				b.deposit("h", now)
				calls = append(calls, now)
			}
			if len(takes) > 0 && r.IntN(5) == 0 {
				k := takes[len(takes)-1-r.IntN(min(len(takes), 10))]
				k.token.refund()
				k.back = true
			}
			for range r.IntN(4) {
				count := func(window time.Duration) (n float64) {
					for _, at := range calls {
						if now.Sub(at) < window {
							n++
						}
					}
					return n
				}
				held := func(window time.Duration) (n float64) {
					for _, k := range takes {
						if now.Sub(k.at) < window && !k.back {
							n++
						}
					}
					return n
				}
				token, ok := b.withdraw("h", now, nil)
				if ok {
					given++
					takes = append(takes, &taken{at: now, token: token})
					require.LessOrEqual(t, held(length), math.Floor(b.Ratio*count(length)+floor), "seed %d", seed)
				} else {
					require.Greater(t, held(length+length/15+1)+1,
						math.Floor(b.Ratio*count(length-length/16-1)+floor), "seed %d: refused for nothing", seed)
				}
			}
		}
		if b.Ratio > 0.5 {
			require.NotZero(t, given)
		}
	}
}

// §4.16: exact under a thousand goroutines.
func TestBudgetThousandGoroutines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *Budget
		refund bool
		want   int64
	}{
		{name: "defaults", budget: &Budget{}, want: 510},
		{name: "no floor", budget: &Budget{MinPerSecond: -1}, want: 500},
		{name: "with refunds", budget: &Budget{}, refund: true, want: 510},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const goroutines, calls, asks = 1000, 5, 10
			var given, late atomic.Int64
			var start, counted, done sync.WaitGroup
			start.Add(1)
			counted.Add(goroutines)
			for g := range goroutines {
				done.Go(func() {
					start.Wait()
					// Times that are out of order, as those of goroutines are.
					now := budgetEpoch.Add(time.Duration(g%7) * time.Millisecond)
					ask := func(n int, count *atomic.Int64) {
						for i := range n {
							token, ok := tt.budget.withdraw("h", now, nil)
							switch {
							case ok && tt.refund && i%2 == 0:
								token.refund()
								token.refund()
							case ok:
								count.Add(1)
							}
						}
					}
					for range calls {
						tt.budget.deposit("h", now)
						ask(1, &given) // while calls are being counted
					}
					counted.Done()
					counted.Wait()
					ask(asks, &late)
				})
			}
			start.Done()
			done.Wait()
			left := int64(budgetDrain(tt.budget, "h", budgetEpoch.Add(time.Second)))
			require.Equal(t, tt.want, given.Load()+late.Load()+left)
			if !tt.refund {
				require.Zero(t, left)
			}
		})
	}
}

// Calls go on while tokens are taken: at no moment are there more tokens out
// than the calls that had been counted by then allow.
func TestBudgetNeverAhead(t *testing.T) {
	b := &Budget{Ratio: 0.1, MinPerSecond: -1}
	var begun, given atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3000 {
				begun.Add(1)
				b.deposit("h", budgetEpoch)
			}
		})
		wg.Go(func() {
			for range 3000 {
				if _, ok := b.withdraw("h", budgetEpoch, nil); ok {
					if n, calls := given.Add(1), begun.Load(); n*10 > calls {
						t.Errorf("%d given for %d calls", n, calls)
					}
				}
			}
		})
	}
	wg.Wait()
	given.Add(int64(budgetDrain(b, "h", budgetEpoch)))
	require.EqualValues(t, 2400, given.Load())
}

// The allowance that hedging uses: a share of calls, but at least one.
func TestAllowanceLeast(t *testing.T) {
	for _, tt := range []struct {
		name        string
		calls, want int
	}{
		{name: "idle", calls: 0, want: 1},
		{name: "few calls", calls: 39, want: 1},
		{name: "enough for two", calls: 40, want: 2},
		{name: "many", calls: 1000, want: 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := newAllowanceRule(budgetEpoch, 10*time.Second, 0.05, 0, 1)
			var a allowance
			for range tt.calls {
				a.called(budgetEpoch, &rule)
			}
			n := 0
			for ; n < 10_000; n++ {
				if _, ok := a.take(budgetEpoch, &rule, nil); !ok {
					break
				}
			}
			require.Equal(t, tt.want, n)
		})
	}
}

// With the clock as the Transport reads it: monotonic, and virtual here.
func TestBudgetVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Ratio: 0.5, MinPerSecond: -1, Window: time.Second}
		sent := 0
		for range 1000 { // 100 calls per second for ten seconds, all of which fail
			b.deposit("h", time.Now())
			if _, ok := b.withdraw("h", time.Now(), nil); ok {
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, sent, 500)
		require.Greater(t, sent, 440, "the slack is a fifteenth and a sixteenth")
	})
}

func TestBudgetDepositDoesNotAllocate(t *testing.T) {
	b := &Budget{}
	now := budgetEpoch
	b.deposit("h", now)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		b.deposit("h", now)
	}))
}

func BenchmarkBudget(b *testing.B) {
	b.Run("deposit", func(b *testing.B) {
		var budget Budget
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			budget.deposit("api.example.com", now)
		}
	})
	b.Run("deposit/parallel", func(b *testing.B) {
		var budget Budget
		now := time.Now()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				budget.deposit("api.example.com", now)
			}
		})
	})
	b.Run("withdraw/given", func(b *testing.B) {
		budget := Budget{MinPerSecond: math.Inf(1)}
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			budget.withdraw("api.example.com", now, nil)
		}
	})
	b.Run("withdraw/refused/parallel", func(b *testing.B) {
		budget := Budget{MinPerSecond: -1}
		now := time.Now()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				budget.withdraw("api.example.com", now, nil)
			}
		})
	})
}

// The savings of ten good seconds must not meet a server in its first bad one.
// That goes for the zero Budget; one with a field set is the formula, no less.
func TestBudgetSavings(t *testing.T) {
	for _, tt := range []struct {
		name        string
		budget      *Budget
		least, most int // of a thousand calls a second, for ten seconds
	}{
		{"zero value: an eighth of the share", &Budget{}, 10 + 60, 10 + 125},
		{"Ratio of one's own", &Budget{Ratio: 0.1}, 940, 1010},
		{"MinPerSecond of one's own", &Budget{MinPerSecond: -1}, 930, 1000},
		{"Window of one's own", &Budget{Window: 10 * time.Second}, 940, 1010},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.budget
			for i := range 10_000 {
				b.deposit("h", budgetEpoch.Add(time.Duration(i)*time.Millisecond))
			}
			at := budgetEpoch.Add(10*time.Second - 1)
			got := budgetDrain(b, "h", at)
			require.GreaterOrEqual(t, got, tt.least)
			require.LessOrEqual(t, got, tt.most)
			require.Zero(t, budgetDrain(b, "h", at.Add(time.Second)), "what was not taken is not kept")
		})
	}
}

// A thousand clients with a minimum each are a thousand times the minimum: so
// while a server is overloaded, that of the zero Budget is for few calls at once.
func TestBudgetPlaces(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *Budget
		calls  int
		want   int // that may be retried at a time
	}{
		{"one call", &Budget{}, 1, 1},
		{"five calls", &Budget{}, 5, 1},
		{"eight calls: every third", &Budget{}, 8, 2},
		{"many calls: all that there is", &Budget{}, 100, 20},
		{"Ratio of one's own", &Budget{Ratio: 0.1}, 8, 8},
		{"MinPerSecond of one's own", &Budget{MinPerSecond: 1}, 8, 8},
		{"Window of one's own", &Budget{Window: 10 * time.Second}, 8, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := tt.budget, budgetEpoch
			for range tt.calls {
				b.deposit("h", at)
			}
			places := make([]budgetPlace, tt.calls)
			granted := 0
			for i := range places {
				if _, ok := b.withdraw("h", at, &places[i]); ok {
					granted++
				}
			}
			require.Equal(t, tt.want, granted)
		})
	}
	t.Run("a place is for the whole call, and then for the next", func(t *testing.T) {
		b, at := &Budget{}, budgetEpoch
		b.deposit("h", at)
		var one, two budgetPlace
		take := func(place *budgetPlace) bool {
			_, ok := b.withdraw("h", at, place)
			return ok
		}
		require.True(t, take(&one))
		require.True(t, take(&one))
		require.False(t, take(&two))
		require.True(t, take(nil), "other failures need none")
		two.vacate()
		require.False(t, take(&two), "it had none to give up")
		one.vacate()
		one.vacate()
		require.True(t, take(&two))
		require.False(t, take(&one))
	})
}

// What is given back can be had again, of the share and of the minimum.
func TestBudgetRefundOfParts(t *testing.T) {
	b, at := &Budget{}, budgetEpoch
	for range 100 {
		b.deposit("h", at)
	}
	for range 3 {
		var tokens []budgetToken
		for token, ok := b.withdraw("h", at, nil); ok; token, ok = b.withdraw("h", at, nil) {
			tokens = append(tokens, token)
		}
		require.Len(t, tokens, 10+10)
		for _, token := range tokens {
			token.refund()
			token.refund()
		}
	}
}

// §4.16: what the calls make up for, from outside the lock.
func TestBudgetCovers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		budget  *Budget
		calls   int
		covered int
	}{
		{"idle", &Budget{}, 0, 0},
		{"nine calls", &Budget{}, 9, 0},
		{"thirty calls", &Budget{}, 30, 3},
		{"Window of one's own", &Budget{Window: time.Minute}, 30, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range tt.calls {
				tt.budget.deposit("h", budgetEpoch)
			}
			n := 0
			for tt.budget.covers("h", budgetEpoch) {
				_, ok := tt.budget.withdraw("h", budgetEpoch, nil)
				require.True(t, ok)
				n++
			}
			require.Equal(t, tt.covered, n)
		})
	}
	require.True(t, (&Budget{Ratio: -1}).covers("h", budgetEpoch), "there is no cap")
}
