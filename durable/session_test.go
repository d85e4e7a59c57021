package durable_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// D10: Run returns nil within DrainTimeout and a second. Sends that are not over are unknown, also
// if a Gateway ignores its context.
func TestDrain(t *testing.T) {
	for name, deaf := range map[string]bool{"a Gateway that listens": false, "one that does not": true} {
		bubble.Run(t, name, func(t *testing.T) {
			release := make(chan struct{})
			e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
				if deaf {
					<-release
				}
				<-ctx.Done()
				return durable.Outcome{Err: ctx.Err()}
			}))
			e.DrainTimeout = 10 * time.Second
			in := enqueuePay(t, e)
			began := time.Now()
			runFor(t, e, time.Minute)
			assert.LessOrEqual(t, time.Since(began), time.Minute+11*time.Second)
			assert.GreaterOrEqual(t, time.Since(began), time.Minute+10*time.Second)
			assertState(t, e, in.ID, durable.StateUnknown)
			attempts := journal(t, e, in.ID)
			assert.Len(t, attempts, 1)
			assert.False(t, attempts[0].FinishedAt.IsZero())
			close(release)
		})
	}
}

// D1, D9: the attempt is in the journal, with key and generation, before the Gateway is called. A
// claim takes at most the number of free workers, and of a tenant at most PerTenant.
func TestClaimBeforeSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *durable.Engine
		var most, now, maxOfOne, ofOne, claimed int
		var mu sync.Mutex
		store := &shaky{Store: new(durable.Memory), claimed: func(claim durable.Claim, _ *durable.Claimed) {
			mu.Lock()
			defer mu.Unlock()
			claimed = max(claimed, now+claim.Limit)
		}}
		count := func(s *durable.Send, by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
			if s.ID.Scope == "a" {
				ofOne += by
				maxOfOne = max(maxOfOne, ofOne)
			}
		}
		e = through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			attempts := journal(t, e, s.ID)
			last := attempts[len(attempts)-1]
			assert.Equal(t, s.Key, last.Key)
			assert.Equal(t, s.Generation, last.Generation)
			assert.Equal(t, s.Epoch, last.Epoch)
			assert.Equal(t, durable.KindSend, last.Kind)
			assert.True(t, last.FinishedAt.IsZero())
			assert.Equal(t, durable.StateSending, find(t, e, s.ID).State)
			assert.Equal(t, []byte("pay"), s.Payload)
			count(s, 1)
			defer count(s, -1)
			time.Sleep(time.Duration(1+len(s.ID.Key)) * time.Second)
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Store, e.Concurrency, e.PerTenant = store, 5, 2
		for i := range 20 {
			enqueue(t, e, pay("a", strings.Repeat("x", i+1)), pay("b", strings.Repeat("x", i+1)), pay("c", strings.Repeat("x", i+1)))
			enqueue(t, e, pay("a", strings.Repeat("y", i+1))) // a has intents left when all others are done
		}
		running(t, e)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, map[durable.State]int{durable.StateDone: 80}, statsOf(t, e).States)
		assert.Equal(t, 5, most)
		assert.Equal(t, 2, maxOfOne)
		assert.Equal(t, 5, claimed)
	})
}

// D5: a second Enqueue finds the first intent. Another payload is a mismatch, unless the first
// payload was declined. Then it is sent under a new key.
func TestEnqueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			keys = append(keys, s.Key)
			if string(s.Payload) == "mended" {
				return durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_1"}
			}
			return durable.Outcome{Class: durable.ClassDeclined, Code: "card_declined", Status: 402}
		}))
		in := pay("comp1", "1")
		assert.Equal(t, durable.Receipt{ID: in.ID}, enqueueOne(t, e, in))
		assert.Equal(t, durable.Receipt{ID: in.ID, Existing: true}, enqueueOne(t, e, in))
		other := in
		other.Payload = []byte("mended")
		require.ErrorIs(t, errOf(e.Enqueue(t.Context(), other)), durable.ErrMismatch)
		require.ErrorIs(t, errOf(e.Enqueue(t.Context(), durable.Intent{ID: id, Gateway: "other"})), durable.ErrInvalid)
		assert.Equal(t, 1, work(t, e, 0))
		assert.Equal(t, durable.Receipt{ID: in.ID, State: durable.StateDead, Existing: true}, enqueueOne(t, e, in))
		assert.Equal(t, durable.Receipt{ID: in.ID, State: durable.StateWaiting, Existing: true, Revised: true}, enqueueOne(t, e, other))
		work(t, e, 0)
		assert.Equal(t, durable.Receipt{ID: in.ID, State: durable.StateDone, Existing: true}, enqueueOne(t, e, other))
		require.ErrorIs(t, errOf(e.Enqueue(t.Context(), in)), durable.ErrMismatch)
		assert.Equal(t, []string{durable.IdempotencyKey(in.ID, 1), durable.IdempotencyKey(in.ID, 2)}, keys)
	})
}

// TestEngine_valid: unusual values that are valid.
func TestEngine_valid(t *testing.T) {
	for name, change := range map[string]func(*durable.Engine){
		"negative":         func(e *durable.Engine) { e.Timeout, e.DrainTimeout, e.KeyTTL, e.Retention = -1, -1, -1, -1 },
		"least":            func(e *durable.Engine) { e.PollInterval, e.LeaseDuration = time.Millisecond, time.Second },
		"kept as long":     func(e *durable.Engine) { e.Retention = 24 * time.Hour },
		"keys of one year": func(e *durable.Engine) { e.KeyTTL = 365 * 24 * time.Hour },
		"its own key, of less": func(e *durable.Engine) {
			e.Retention, e.Gateways = time.Hour, map[string]durable.Gateway{"psp": protector{time.Minute, 0}}
		},
		"in order": func(e *durable.Engine) { e.Gateways["psp"] = durable.HTTP{NewRequest: post("http://psp.example/")} },
	} {
		t.Run(name, func(t *testing.T) {
			e := through(gatewayFunc(nil))
			change(e)
			require.NoError(t, e.Validate())
		})
	}
}

// TestEngine_validateReportsAllErrors: Validate reports each error, and no other.
func TestEngine_validateReportsAllErrors(t *testing.T) {
	e := &durable.Engine{Timeout: 30, LeaseDuration: 5, KeyTTL: -1, Gateways: map[string]durable.Gateway{"": nil, "x": durable.HTTP{}}}
	err := e.Validate()
	for _, want := range []string{"Store is nil", "LeaseDuration is 5ns", "Timeout is 30ns", "has no name", `"" is nil`, `"x": durable: HTTP.NewRequest`} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 6, "%v", err)
}

// protector is a Gateway with a KeyPolicy.
type protector struct{ keyLife, settles time.Duration }

func (protector) Send(context.Context, *durable.Send) durable.Outcome { return durable.Outcome{} }
func (p protector) KeyPolicy() (keyLife, settles time.Duration)       { return p.keyLife, p.settles }

// finds is an HTTP with status queries.
type finds struct{ durable.HTTP }

func (finds) Find(context.Context, *durable.Send) durable.Outcome { return durable.Outcome{} }

func TestEngine_invalid(t *testing.T) {
	good := func() *durable.Engine { return through(gatewayFunc(nil)) }
	require.NoError(t, good().Validate())
	for name, change := range map[string]func(*durable.Engine){
		"no store":             func(e *durable.Engine) { e.Store = nil },
		"negative senders":     func(e *durable.Engine) { e.Concurrency = -1 },
		"a negative share":     func(e *durable.Engine) { e.PerTenant = -1 },
		"a gateway's":          func(e *durable.Engine) { e.PerGateway = -1 },
		"a short lease":        func(e *durable.Engine) { e.LeaseDuration = time.Millisecond },
		"an endless lease":     func(e *durable.Engine) { e.LeaseDuration = 1 << 62 },
		"a negative poll":      func(e *durable.Engine) { e.PollInterval = -1 },
		"negative settles":     func(e *durable.Engine) { e.VisibilityDelay = -1 },
		"a poll without pause": func(e *durable.Engine) { e.PollInterval = 1 },
		"30 ns for a send":     func(e *durable.Engine) { e.Timeout = 30 },
		"3 ns for a key":       func(e *durable.Engine) { e.KeyTTL = 3 },
		"15 ns to settle":      func(e *durable.Engine) { e.VisibilityDelay = 15 },
		"60 ns to drain":       func(e *durable.Engine) { e.DrainTimeout = 60 },
		"90 ns to keep":        func(e *durable.Engine) { e.Retention = 90 },
		"72 ns to try":         func(e *durable.Engine) { e.Policy = durable.Schedule{MaxAge: 72} },
		"72 ns to try a card": func(e *durable.Engine) {
			e.Policy = durable.Declines{Schedule: durable.Schedule{MaxAge: 72}}
		},
		"forgotten before its key":               func(e *durable.Engine) { e.Retention = time.Hour },
		"forgotten before its key, elsewhere":    func(e *durable.Engine) { e.Retention, e.Gateways = time.Hour, nil },
		"forgotten before its gateway's own key": func(e *durable.Engine) { e.Retention, e.Gateways["own"] = 25*time.Hour, protector{26 * time.Hour, 0} },
		"a gateway's key of 3 ns":                func(e *durable.Engine) { e.Gateways["own"] = protector{3, 0} },
		"a gateway's settling of 15 ns":          func(e *durable.Engine) { e.Gateways["own"] = protector{0, 15} },
		"an HTTP without NewRequest":             func(e *durable.Engine) { e.Gateways["x"] = durable.HTTP{} },
		"an embedded HTTP without NewRequest":    func(e *durable.Engine) { e.Gateways["x"] = finds{HTTP: durable.HTTP{}} },
		"a nil gateway":                          func(e *durable.Engine) { e.Gateways["x"] = nil },
		"a gateway of no name":                   func(e *durable.Engine) { e.Gateways[""] = gatewayFunc(nil) },
		"a name that is none":                    func(e *durable.Engine) { e.Gateways["\x00"] = gatewayFunc(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			e := good()
			change(e)
			for name, call := range map[string]func(ctx context.Context) error{
				"Validate": func(context.Context) error { return e.Validate() },
				"Run":      e.Run,
				"Work":     func(ctx context.Context) error { _, err := e.Work(ctx, 1); return err },
				"WorkOne":  func(ctx context.Context) error { _, err := e.WorkOne(ctx, id); return err },
				"Enqueue":  func(ctx context.Context) error { _, err := e.Enqueue(ctx, pay("comp1", "1")); return err },
				"Find":     func(ctx context.Context) error { _, err := e.Find(ctx, id); return err },
				"Attempts": func(ctx context.Context) error { _, err := e.Attempts(ctx, id); return err },
				"Stats":    func(ctx context.Context) error { _, err := e.Stats(ctx); return err },
				"Redrive":  func(ctx context.Context) error { return errOf(e.Redrive(ctx, durable.Filter{}, durable.Redrive{})) },
				"Cancel":   func(ctx context.Context) error { return e.Cancel(ctx, id) },
			} {
				require.ErrorIs(t, call(t.Context()), durable.ErrInvalid, name)
			}
			e.Wake()
		})
	}
}

// D7: 10,000 intents fail in one second, with one NotBefore. They are sent again after that time,
// spread over the range of the backoff. The provider answers, so it is not held. No timer and no
// goroutine waits for them.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 10_000
		again := time.Now().Add(time.Hour)
		var mu sync.Mutex
		var back []time.Time
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			if s.Number == 1 {
				return durable.Outcome{Class: durable.ClassFailed, Status: 423, NotBefore: again}
			}
			mu.Lock()
			defer mu.Unlock()
			back = append(back, time.Now())
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Concurrency, e.PollInterval, e.PerTenant = 200, 10*time.Millisecond, 200
		e.Policy = durable.Schedule{Backoff: resilienthttp.FullJitter(20*time.Second, time.Hour)}
		enqueue(t, e, several("comp1", many)...)
		before := runtime.NumGoroutine()
		assert.Equal(t, many, work(t, e, many))
		assert.Less(t, runtime.NumGoroutine(), before+100)
		assert.Equal(t, map[durable.State]int{durable.StateWaiting: many}, statsOf(t, e).States)
		time.Sleep(time.Until(again))
		running(t, e)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, back, many)
		tenths := make([]int, 11)
		for _, at := range back {
			require.False(t, at.Before(again))
			tenths[min(at.Sub(again)/(2*time.Second), 10)]++
		}
		for i, n := range tenths[:10] {
			assert.InDelta(t, many/10, n, many/50, "the tenth %d of the range", i)
		}
		assert.Less(t, tenths[10], many/100)
	})
}

// D7: a send of which no byte was sent is no attempt, in the record and for the Policy.
func TestEngine_notSentIsNotCounted(t *testing.T) {
	for want, err := range []error{&resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, nil} {
		e := through(returns(durable.Outcome{Class: durable.ClassFailed, Err: err}))
		e.Policy = policyFunc(func(h *durable.History, _ time.Time) durable.Decision {
			assert.Equal(t, want, h.Attempts)
			return durable.Decision{Action: durable.Bury}
		})
		in := enqueuePay(t, e)
		work(t, e, 1)
		assert.Equal(t, want, find(t, e, in.ID).Attempts)
		assert.Len(t, journal(t, e, in.ID), 1)
	}
}

// policyFunc is a Policy.
type policyFunc func(h *durable.History, now time.Time) durable.Decision

func (f policyFunc) Next(h *durable.History, now time.Time) durable.Decision { return f(h, now) }

// A Policy that panics, or returns past or extreme times, causes no loop and loses no intent. The
// same holds for an extreme NotBefore.
func TestEngine_extremeTimes(t *testing.T) {
	after := func(d time.Duration) durable.Policy {
		return policyFunc(func(_ *durable.History, now time.Time) durable.Decision { return durable.Decision{At: now.Add(d)} })
	}
	for _, row := range []struct {
		name        string
		policy      durable.Policy
		notBefore   time.Duration
		least, most time.Duration // between the sends
	}{
		{"a policy that panics", policyFunc(func(*durable.History, time.Time) durable.Decision { panic("policy") }), 0, 0, 2 * time.Second},
		{"a policy that says nothing", policyFunc(func(*durable.History, time.Time) durable.Decision { return durable.Decision{} }), 0, time.Second, 3 * time.Second},
		{"a time in the past", after(-time.Hour), 0, time.Second, 3 * time.Second},
		{"a time before NotBefore", after(time.Second), time.Hour, time.Hour, time.Hour + 2*time.Second},
		{"a time in 300 years", after(1<<63 - 1), 0, 30 * 24 * time.Hour, 30*24*time.Hour + 2*time.Second},
		{"an action of the future", policyFunc(func(_ *durable.History, now time.Time) durable.Decision {
			return durable.Decision{Action: 99, At: now.Add(time.Minute)}
		}), 0, time.Minute, time.Minute + 2*time.Second},
		{"a NotBefore in 290 years", durable.Schedule{}, 1<<63 - 1, 24 * time.Hour, 24*time.Hour + 4*time.Second},
		{"a NotBefore in the past", durable.Schedule{}, -time.Hour, 0, 2 * time.Second},
		{"a backoff below zero", durable.Schedule{Backoff: func(int, time.Duration) time.Duration { return -1 << 63 }}, 0, time.Second, 3 * time.Second},
		{"a backoff without end", durable.Schedule{MaxAge: -1, Backoff: func(int, time.Duration) time.Duration { return 1<<63 - 1 }}, 0, 30 * 24 * time.Hour, 30*24*time.Hour + 2*time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var at []time.Time
			e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				at = append(at, time.Now())
				if s.Number > 1 {
					return durable.Outcome{Class: durable.ClassSucceeded}
				}
				o := durable.Outcome{Class: durable.ClassFailed}
				if row.notBefore != 0 {
					o.NotBefore = time.Now().Add(row.notBefore)
				}
				return o
			}))
			e.Policy, e.PollInterval = row.policy, 100*time.Millisecond
			if row.most > time.Hour {
				e.PollInterval = time.Second
			}
			in := enqueuePay(t, e)
			work(t, e, 0)
			next := workOne(t, e, in.ID)
			if !next.IsZero() {
				time.Sleep(time.Until(next) - 5*time.Second)
			}
			running(t, e)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			require.Len(t, at, 2)
			assert.GreaterOrEqual(t, at[1].Sub(at[0]), row.least)
			assert.LessOrEqual(t, at[1].Sub(at[0]), row.most)
			assertState(t, e, in.ID, durable.StateDone)
		})
	}
}

// An intent that cannot be sent, or that never ends, is a dead letter with its reason. It is in
// doubt if the work may have been done.
func TestEngine_deadLettersHaveReasons(t *testing.T) {
	var forever chan struct{} // of the row that runs
	for _, row := range []struct {
		name   string
		in     func(*durable.Intent)
		send   gatewayFunc
		reason string
		doubt  bool
		sends  int
	}{
		{"an unknown gateway", func(in *durable.Intent) { in.Gateway = "other" }, nil, durable.ReasonNoGateway, false, 0},
		{"a deadline that passes", func(in *durable.Intent) { in.Deadline = time.Now().Add(time.Second) }, nil, durable.ReasonDeadline, false, 0},
		{"a gateway that panics", nil, func(context.Context, *durable.Send) durable.Outcome { panic("gateway") }, durable.ReasonUnresolved, true, 3},
		{"one that ends its goroutine", nil, func(context.Context, *durable.Send) durable.Outcome {
			runtime.Goexit()
			return durable.Outcome{}
		}, durable.ReasonUnresolved, true, 3},
		{"one that blocks for ever", nil, func(context.Context, *durable.Send) durable.Outcome {
			<-forever
			return durable.Outcome{}
		}, durable.ReasonUnresolved, true, 3},
		{"one that always fails", nil, returns(durable.Outcome{Class: durable.ClassFailed}), durable.ReasonExhausted, false, 3},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var sends atomic.Int64
			e := through(gatewayFunc(func(ctx context.Context, s *durable.Send) durable.Outcome {
				sends.Add(1)
				return row.send(ctx, s)
			}))
			e.Policy, e.Timeout, e.PollInterval = thrice{}, time.Minute, 30*time.Second
			forever = make(chan struct{})
			defer close(forever)
			in := pay("comp1", "1")
			if row.in != nil {
				row.in(&in)
			}
			_, err := e.Store.Apply(t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: in}}) // as by an Outbox
			require.NoError(t, err)
			time.Sleep(time.Minute)
			runFor(t, e, 4*time.Hour)
			dead := letters(t, e, durable.Filter{})
			require.Len(t, dead, 1)
			assert.Equal(t, row.reason, dead[0].Reason)
			assert.Equal(t, row.doubt, dead[0].InDoubt)
			assert.EqualValues(t, row.sends, sends.Load())
			assert.Equal(t, in.Payload, find(t, e, in.ID).Payload, "nothing is lost")
		})
	}
}

// An invalid class is unknown. Texts that are too long or invalid are stored in part.
func TestEngine_invalidOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		strange := []durable.Outcome{
			{},
			{Class: 99},
			{Class: durable.ClassNotFound},
			{Code: "\xff\x00", Reference: strings.Repeat("ü", 1000), Err: nilError()},
			{Status: -1, Err: errors.New(strings.Repeat("long ", 1000))},
			{Class: durable.ClassSucceeded, Reference: "\x00", Result: make([]byte, durable.LongestPayload+1)},
		}
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome { return strange[s.Number-1] }))
		in := enqueuePay(t, e)
		running(t, e)
		time.Sleep(time.Hour)
		synctest.Wait()
		assertState(t, e, in.ID, durable.StateDone)
		assert.Empty(t, find(t, e, in.ID).Result)
		attempts := journal(t, e, in.ID)
		require.Len(t, attempts, len(strange))
		for i := range attempts[:5] {
			assert.Equal(t, durable.ClassUnknown.String(), strings.Replace(attempts[i].Class.String(), "not_found", "unknown", 1))
		}
		assert.Len(t, attempts[4].Error, 1024)
	})
}

type panicError struct{ text string }

func (e *panicError) Error() string { return e.text }

func nilError() error { var e *panicError; return e }

// The outcome of a Finder counts only as far as the Finder can know it.
func TestFinders(t *testing.T) {
	for _, row := range []struct {
		name  string
		find  func(n int) durable.Outcome
		state durable.State
		sends int
	}{
		{"not found, at once and for ever", func(int) durable.Outcome { return durable.Outcome{Class: durable.ClassNotFound} }, durable.StateDone, 2},
		{"found", func(int) durable.Outcome { return durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_1"} }, durable.StateDone, 1},
		{"refused", func(int) durable.Outcome { return durable.Outcome{Class: durable.ClassDeclined} }, durable.StateDead, 1},
		{"no answer, ever", func(int) durable.Outcome { return durable.Outcome{} }, durable.StateDead, 1},
		{"the question failed, ever", func(int) durable.Outcome { return durable.Outcome{Class: durable.ClassFailed} }, durable.StateDead, 1},
		{"panics, then found", func(n int) durable.Outcome {
			if n < 3 {
				panic("finder")
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		}, durable.StateDone, 1},
		{"not found, too early, then found", func(n int) durable.Outcome {
			if n == 1 {
				return durable.Outcome{Class: durable.ClassNotFound}
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		}, durable.StateDone, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			sends, asks := 0, 0
			var sent, asked time.Time
			e := through(finderFunc{
				func(context.Context, *durable.Send) durable.Outcome {
					sends++
					if sends > 1 {
						assert.GreaterOrEqual(t, asked.Sub(sent), 15*time.Minute)
						return durable.Outcome{Class: durable.ClassSucceeded}
					}
					sent = time.Now()
					return durable.Outcome{}
				},
				func(_ context.Context, s *durable.Send) durable.Outcome {
					asks++
					asked = time.Now()
					assert.Equal(t, durable.IdempotencyKey(s.ID, 1), s.Key)
					assert.Equal(t, 1, s.Number)
					return row.find(asks)
				},
			})
			e.KeyTTL, e.PollInterval = -1, time.Minute
			in := enqueuePay(t, e)
			running(t, e)
			time.Sleep(80 * time.Hour)
			synctest.Wait()
			record := find(t, e, in.ID)
			assert.Equal(t, row.state.String(), record.State.String())
			assert.Equal(t, row.sends, sends)
			assert.LessOrEqual(t, asks, 200, "it is asked ever more rarely")
			if row.state == durable.StateDead {
				assert.NotEmpty(t, record.Reason)
				assert.Equal(t, record.Class != durable.ClassDeclined, record.InDoubt)
			}
		})
	}
}

// An Engine without a Gateway sends nothing: it would bury all intents.
func TestEngine_withoutGateways(t *testing.T) {
	e := &durable.Engine{Store: new(durable.Memory)}
	require.NoError(t, e.Validate())
	require.ErrorIs(t, e.Run(t.Context()), durable.ErrInvalid)
	require.ErrorIs(t, errOf(e.Work(t.Context(), 1)), durable.ErrInvalid)
	require.ErrorIs(t, errOf(e.WorkOne(t.Context(), id)), durable.ErrInvalid)
	require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", ""), "a console holds by name")
}

// D15: the time in which an intent was due and not tried does not count. So a person's hold longer than
// MaxAge leaves nothing dead when the provider is still down after it, whether the intents were
// tried before it or not.
func TestMaxAge_afterAHold(t *testing.T) {
	for _, triedBefore := range []time.Duration{0, 20 * time.Minute, 170 * time.Minute} {
		bubble.Run(t, fmt.Sprint("tried before for ", triedBefore), func(t *testing.T) {
			e := through(returns(durable.Outcome{Class: durable.ClassFailed, Status: 500}))
			e.Policy = durable.Schedule{MaxAge: 3 * time.Hour, Backoff: resilienthttp.FullJitter(time.Second, 10*time.Minute)}
			running(t, e)
			if triedBefore == 0 {
				require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "maintenance"))
			}
			const many = 145
			enqueue(t, e, several("a", many)...)
			time.Sleep(triedBefore)
			require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "maintenance"))
			time.Sleep(4 * time.Hour)
			require.NoError(t, e.Release(t.Context(), "psp", "ann"))
			time.Sleep(30 * time.Minute)
			for i := range many {
				require.NotEqual(t, durable.StateDead, find(t, e, pay("a", strconv.Itoa(i)).ID).State)
			}
			time.Sleep(6 * time.Hour)
			assertState(t, e, pay("a", "7").ID, durable.StateDead)
		})
	}
}

func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		e := through(succeedsAfter(func() {
			time.Sleep(time.Second)
			sends.Add(1)
		}))
		e.Concurrency = 8
		enqueue(t, e, several("comp1", 50)...)
		assert.Equal(t, 3, work(t, e, 3))
		assert.EqualValues(t, 3, sends.Load())
		assert.Equal(t, 8, work(t, e, 0), "as many as Concurrency, though a tenant has but a quarter of it at once")
		assert.Equal(t, 39, work(t, e, 1000))
		assert.EqualValues(t, 50, sends.Load())
		assert.Zero(t, work(t, e, 1000))
	})
}

func TestWorkOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hour := time.Now().Add(time.Hour)
		hold := make(chan struct{})
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			switch s.Number {
			case 1:
				return durable.Outcome{Class: durable.ClassFailed, NotBefore: hour}
			case 2:
				<-hold
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Concurrency = 1
		in, other := pay("comp1", "1"), pay("comp1", "2")
		require.ErrorIs(t, errOf(e.WorkOne(t.Context(), in.ID)), durable.ErrNotFound)
		enqueue(t, e, in, other)
		next := workOne(t, e, in.ID)
		assert.False(t, next.Before(hour))
		assertState(t, e, other.ID, durable.StatePending)
		assert.Equal(t, next, workOne(t, e, in.ID), "it is not due")
		time.Sleep(time.Until(next))
		go func() { _, _ = e.WorkOne(t.Context(), in.ID) }()
		synctest.Wait()
		assert.Equal(t, time.Now().Add(30*time.Second), workOne(t, e, in.ID), "another worker holds it")
		assert.Equal(t, time.Now().Add(time.Second), workOne(t, e, other.ID), "no sender is free")
		close(hold)
		synctest.Wait()
		assert.Zero(t, workOne(t, e, in.ID))
	})
}

// D11: a done intent is swept after Retention, and never before KeyTTL. A dead intent stays.
func TestSweep(t *testing.T) {
	for _, row := range []struct {
		name         string
		ttl, keyLife time.Duration
		after        time.Duration // when it is deleted; 0: never
	}{
		{"the default", 0, 0, 90 * 24 * time.Hour},
		{"a day", 24 * time.Hour, time.Hour, 24 * time.Hour},
		{"the default, and a key that lives longer", 0, 120 * 24 * time.Hour, 120 * 24 * time.Hour},
		{"for ever", -1, 0, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				if s.ID.Key == "dead" {
					return durable.Outcome{Class: durable.ClassDeclined}
				}
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			e.Retention, e.KeyTTL, e.PollInterval = row.ttl, row.keyLife, time.Minute
			done, dead := pay("comp1", "done"), pay("comp1", "dead")
			enqueue(t, e, done, dead)
			work(t, e, 0)
			time.Sleep(cmp.Or(row.after, 10*365*24*time.Hour) - time.Hour)
			running(t, e)
			time.Sleep(50 * time.Minute)
			synctest.Wait()
			assertState(t, e, done.ID, durable.StateDone)
			time.Sleep(15 * time.Minute)
			if row.after != 0 {
				require.ErrorIs(t, errOf(e.Find(t.Context(), done.ID)), durable.ErrNotFound)
			} else {
				assertState(t, e, done.ID, durable.StateDone)
			}
			assertState(t, e, dead.ID, durable.StateDead)
		})
	}
}

// More intents than a page are swept page after page, without a pause: faster than they can be sent.
func TestSweepPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(nil))
		e.Retention, e.KeyTTL = time.Hour, time.Hour
		for i := range 2200 {
			in := pay("comp1", strconv.Itoa(i))
			enqueue(t, e, in)
			require.NoError(t, e.Cancel(t.Context(), in.ID))
		}
		time.Sleep(2 * time.Hour)
		running(t, e)
		time.Sleep(time.Second)
		assert.Empty(t, statsOf(t, e).States)
	})
}

// knowing is a Gateway with its own Policy and KeyPolicy.
type knowing struct{ gatewayFunc }

func (knowing) Next(*durable.History, time.Time) durable.Decision {
	return durable.Decision{Action: durable.Bury, Reason: "mine"}
}

func (knowing) KeyPolicy() (keyLife, settles time.Duration) { return time.Minute, 0 }

func TestGatewayOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends := 0
		e := through(knowing{func(context.Context, *durable.Send) durable.Outcome {
			sends++
			return durable.Outcome{}
		}})
		e.Policy = durable.Schedule{MaxAge: 1}
		in := enqueuePay(t, e)
		work(t, e, 0)
		assert.Equal(t, "mine", find(t, e, in.ID).Reason)
		time.Sleep(2 * time.Minute)
		require.NoError(t, e.RedriveOne(t.Context(), seen(t, e, in.ID), durable.Redrive{}))
		work(t, e, 0)
		assert.Equal(t, durable.ReasonUnresolved, find(t, e, in.ID).Reason, "its key protects for a minute")
		assert.Equal(t, 1, sends)
	})
}

// thrice is a Policy that allows three sends.
type thrice struct{ durable.Schedule }

func (p thrice) Next(h *durable.History, now time.Time) durable.Decision {
	d := p.Schedule.Next(h, now)
	if h.Attempts >= 3 {
		d = durable.Decision{Action: durable.Bury, Reason: durable.ReasonExhausted}
		if h.InDoubt {
			d.Reason = durable.ReasonUnresolved
		}
	}
	return d
}
