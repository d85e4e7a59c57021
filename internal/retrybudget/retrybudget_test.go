package retrybudget

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bucket is a Bucket with its rules.
type bucket struct {
	Bucket

	rules Rules
}

func with(rules Rules) *bucket {
	rules.Origin = epoch
	return &bucket{rules: rules.Checked()}
}

func (b *bucket) calls(n int, at time.Time) {
	for range n {
		b.Deposit(&b.rules, at)
	}
}

func (b *bucket) take(at time.Time, r Request) (Permit, bool) { return b.Admit(r, &b.rules, at) }

// cheap takes half a token.
func (b *bucket) cheap(at time.Time) Permit {
	p, _ := b.take(at, Request{Cost: 0.5})
	return p
}

const many = 1000

// fail takes tokens until there are none, for retries that fail, and counts them.
func (b *bucket) fail(at time.Time) (granted int) {
	for ; granted < many; granted++ {
		p, ok := b.take(at, Request{})
		if !ok {
			break
		}
		p.Done(Result{})
	}
	return granted
}

// §4.16
func TestBucket_grantsTheTokensThatItHas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules Rules
		then  func(b *bucket)
		want  int
	}{
		{"no calls: the first tokens", Rules{Ratio: 0.1, Tokens: 5}, func(*bucket) {}, 5},
		{"50 calls: 5 + 5", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.calls(50, epoch) }, 10},
		{"59 calls: rounded down", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.calls(59, epoch) }, 10},
		{"ten tenths are one", Rules{Ratio: 0.1}, func(b *bucket) { b.calls(10, epoch) }, 1},
		{"nine tenths are none", Rules{Ratio: 0.1}, func(b *bucket) { b.calls(9, epoch) }, 0},
		{"ratio above one", Rules{Ratio: 3}, func(b *bucket) { b.calls(7, epoch) }, 21},
		{"no rule: none", Rules{}, func(b *bucket) { b.calls(99, epoch) }, 0},
		{"calls of the last 1.25 s, less a sixteenth: kept", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.calls(50, epoch.Add(-1171*time.Millisecond)) }, 10},
		{"calls before the last 1.25 s: not kept", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.calls(50, epoch.Add(-1250*time.Millisecond)) }, 5},
		{"calls of long ago fill it", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) {
			b.fail(epoch.Add(-time.Hour))
			b.calls(30, epoch.Add(-time.Minute))
		}, 3},
		{"spent: none", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.fail(epoch) }, 0},
		{"time alone adds nothing", Rules{Ratio: 0.1, Tokens: 5}, func(b *bucket) { b.fail(epoch.Add(-time.Hour)) }, 0},
		{"a success: what it took, and two", Rules{Tokens: 1}, func(b *bucket) {
			p, _ := b.take(epoch, Request{})
			b.rules.Tokens = 5 // room for them
			p.Done(Result{Succeeded: true})
		}, 3},
		{"a success in a full bucket: no more than it holds", Rules{Tokens: 5}, func(b *bucket) {
			p, _ := b.take(epoch, Request{})
			p.Done(Result{Succeeded: true})
		}, 5},
		{"canceled: returned", Rules{Tokens: 5}, func(b *bucket) {
			p, _ := b.take(epoch, Request{})
			p.Cancel()
		}, 5},
		{"static, a success: nothing returned", Rules{Tokens: 5, Static: true}, func(b *bucket) {
			p, _ := b.take(epoch, Request{})
			p.Done(Result{Succeeded: true})
		}, 4},
		{"static, after a timeout: one", Rules{Tokens: 5, Static: true}, func(b *bucket) { b.take(epoch, Request{Slow: true}) }, 4},
		{"a limit rejects, a success: nothing returned, because another request is rejected for it", Rules{Tokens: 5}, func(b *bucket) {
			b.Rejected(epoch)
			p, _ := b.take(epoch, Request{Limited: true})
			b.rules.Tokens = 9
			p.Done(Result{Succeeded: true})
		}, 4},
		{"a limit rejects, canceled: returned", Rules{Tokens: 5}, func(b *bucket) {
			b.Rejected(epoch)
			p, _ := b.take(epoch, Request{Limited: true})
			p.Cancel()
		}, 5},
		{"a limit rejects other requests, a success after a failure: one, and two", Rules{Tokens: 5}, func(b *bucket) {
			b.Rejected(epoch)
			p, _ := b.take(epoch, Request{})
			b.rules.Tokens = 9
			p.Done(Result{Succeeded: true})
		}, 7},
		{"a limit has rejected none of ten requests, a success: one, and two", Rules{Tokens: 5}, func(b *bucket) {
			b.Rejected(epoch)
			b.calls(quietCalls, epoch)
			p, _ := b.take(epoch, Request{Limited: true})
			b.rules.Tokens = 9
			p.Done(Result{Succeeded: true})
		}, 7},
		{"cheap: half a token", Rules{Tokens: 5}, func(b *bucket) { b.cheap(epoch) }, 4},
		{"cheap, after five seconds in which no retry has succeeded: one", Rules{Tokens: 5}, func(b *bucket) {
			for ago := 6 * time.Second; ago >= 0; ago -= 2 * time.Second {
				b.cheap(epoch.Add(-ago)) // .5, .5, .5, 1
			}
		}, 2},
		{"cheap, one has succeeded", Rules{Tokens: 5}, func(b *bucket) {
			b.cheap(epoch.Add(-6 * time.Second)).Done(Result{Succeeded: true})
			for ago := 4 * time.Second; ago >= 0; ago -= 2 * time.Second {
				b.cheap(epoch.Add(-ago))
			}
		}, 3},
		{"cheap, a pause of five seconds", Rules{Tokens: 5}, func(b *bucket) {
			b.cheap(epoch.Add(-12 * time.Second))
			b.cheap(epoch.Add(-6 * time.Second))
			b.cheap(epoch)
		}, 3},
		{"after a timeout: five", Rules{Tokens: 8}, func(b *bucket) { b.take(epoch, Request{Slow: true}) }, 3},
		{"after a timeout: as many as the bucket holds without calls", Rules{Tokens: 3}, func(b *bucket) { b.take(epoch, Request{Slow: true}) }, 0},
		{"after a timeout, with fewer: none", Rules{Tokens: 5}, func(b *bucket) {
			b.take(epoch, Request{})
			b.take(epoch, Request{Slow: true})
		}, 4},
		{"after a timeout: those of recent calls are left", Rules{Ratio: 0.1, Tokens: 3}, func(b *bucket) {
			b.calls(5, epoch)
			b.take(epoch, Request{Slow: true})
			b.calls(5, epoch)
		}, 1},
		{"after a timeout, a success: five, and two", Rules{Tokens: 5}, func(b *bucket) {
			p, _ := b.take(epoch, Request{Slow: true})
			b.rules.Tokens = 9
			p.Done(Result{Succeeded: true})
		}, 7},
		{"after a timeout, canceled: all of it", Rules{Tokens: 5}, func(b *bucket) {
			p, _ := b.take(epoch, Request{Slow: true})
			p.Cancel()
		}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := with(tt.rules)
			b.rules.Origin = epoch.Add(-24 * time.Hour)
			tt.then(b)
			require.Equal(t, tt.want, b.fail(epoch))
		})
	}
}

func TestBucket_batchNeedsMoreThanHalf(t *testing.T) {
	for _, tt := range []struct {
		name          string
		rules         Rules
		calls, others int // others: retries of other priorities before
		want          int
	}{
		{"five: three", Rules{Tokens: 5}, 0, 0, 3},
		{"four: two", Rules{Tokens: 4}, 0, 0, 2},
		{"one: one", Rules{Tokens: 1}, 0, 0, 1},
		{"others took two of five: one", Rules{Tokens: 5}, 0, 2, 1},
		{"others took half: none", Rules{Tokens: 4}, 0, 2, 0},
		{"calls count", Rules{Ratio: 0.1}, 100, 0, 5},
		{"none at all", Rules{}, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := with(tt.rules)
			b.calls(tt.calls, epoch)
			for range tt.others {
				b.take(epoch, Request{})
			}
			got := 0
			for ; got < many; got++ {
				if _, ok := b.take(epoch, Request{Batch: true}); !ok {
					break
				}
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestPermit_endsOnce(t *testing.T) {
	ends := map[string]func(Permit){
		"fail": func(p Permit) { p.Done(Result{}) }, "succeed": func(p Permit) { p.Done(Result{Succeeded: true}) }, "cancel": Permit.Cancel,
	}
	want := map[string]int{"fail": 4, "succeed": 7, "cancel": 5}
	for first, end := range ends {
		for second, again := range ends {
			t.Run(first+", "+second, func(t *testing.T) {
				b := with(Rules{Tokens: 5})
				p, _ := b.take(epoch, Request{})
				b.rules.Tokens = 20
				end(p)
				again(p)
				require.Equal(t, want[first], b.fail(epoch))
			})
		}
	}
	Permit{}.Done(Result{Succeeded: true})
	Permit{}.Cancel()
}

func TestBucket_status(t *testing.T) {
	b := with(Rules{Ratio: 0.5, Tokens: 5})
	require.Equal(t, Status{Used: 0, Remaining: 5}, b.Status(&b.rules, epoch))
	b.calls(4, epoch)
	b.take(epoch, Request{})
	require.Equal(t, Status{Used: 1, Remaining: 6}, b.Status(&b.rules, epoch))
	later := epoch.Add(1250 * time.Millisecond)
	require.Equal(t, Status{Used: 0, Remaining: 5}, b.Status(&b.rules, later))
}

// §4.16: exact under a thousand goroutines. Whatever the order, no token is lost and none
// is made.
func TestBucket_thousandGoroutines(t *testing.T) {
	const goroutines, calls, asks = 1000, 5, 10
	for _, tt := range []struct {
		name string
		end  func(i int, p Permit)
		want int
	}{
		{"all fail", func(_ int, p Permit) { p.Done(Result{}) }, 5 + goroutines*calls/10},
		{"none ends", func(int, Permit) {}, 5 + goroutines*calls/10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := with(Rules{Ratio: 0.1, Tokens: 5})
			var granted atomic.Int64
			var start, counted, done sync.WaitGroup
			start.Add(1)
			counted.Add(goroutines)
			for g := range goroutines {
				done.Go(func() {
					start.Wait()
					now := epoch.Add(time.Duration(g%7) * time.Millisecond) // as goroutines read the clock: out of order
					ask := func(n int) {
						for i := range n {
							if p, ok := b.take(now, Request{}); ok {
								granted.Add(1)
								tt.end(i, p)
							}
						}
					}
					for range calls {
						b.calls(1, now)
						ask(1)
					}
					counted.Done()
					counted.Wait()
					ask(asks)
				})
			}
			start.Done()
			done.Wait()
			require.EqualValues(t, tt.want, granted.Load())
		})
	}
	t.Run("every other one is canceled", func(t *testing.T) {
		b := with(Rules{Ratio: 0.1, Tokens: 5})
		b.calls(1000, epoch)
		var failed atomic.Int64
		var done sync.WaitGroup
		for g := range goroutines {
			done.Go(func() {
				for i := range asks {
					p, ok := b.take(epoch, Request{})
					switch {
					case !ok:
					case (g+i)%2 == 0:
						p.Cancel()
					default:
						p.Done(Result{})
						failed.Add(1)
					}
				}
			})
		}
		done.Wait()
		require.EqualValues(t, 105, failed.Load()+int64(b.fail(epoch)))
	})
}

func TestRules_checked(t *testing.T) {
	values := []float64{math.NaN(), math.Inf(-1), -1, 0, math.SmallestNonzeroFloat64, 0.1, 3, math.MaxFloat64, math.Inf(1)}
	for _, ratio := range values {
		for _, tokens := range values {
			r := Rules{Ratio: ratio, Tokens: tokens}.Checked()
			for _, v := range []float64{r.Ratio, r.Tokens} {
				require.GreaterOrEqual(t, v, 0.0)
				require.LessOrEqual(t, v, 1e12)
			}
		}
	}
	same := Rules{Origin: epoch, Ratio: 0.5, Tokens: 7, Static: true}
	require.Equal(t, same, same.Checked())
}

func TestDeposit_doesNotAllocate(t *testing.T) {
	b, now := with(Rules{Ratio: 0.1}), epoch
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		b.calls(1, now)
	}))
}

// The example of docs/retry-budget.md: 20 calls meet a failure at once, and each fails quickly.
func TestBucket_example(t *testing.T) {
	b := with(Rules{Ratio: 0.1, Tokens: 5})
	b.calls(20, epoch)
	sent := func() (permits []Permit) {
		for p, ok := b.take(epoch, Request{Cost: 0.5}); ok; p, ok = b.take(epoch, Request{Cost: 0.5}) {
			permits = append(permits, p)
		}
		return permits
	}
	retries := sent()
	require.Len(t, retries, 14, "the others of 20 wait")
	retries[0].Done(Result{Succeeded: true})
	require.Len(t, sent(), 5, "they follow the first success")
}
