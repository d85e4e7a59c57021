package durable_test

import (
	"context"
	"errors"
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

// D2: without heartbeats, the send ends a quarter of the lease before its end. Outcomes of an
// earlier generation change nothing.
func TestLostLease(t *testing.T) {
	for _, row := range []struct {
		name   string
		listen bool
	}{
		{"a Gateway that listens", true},
		{"one that does not", false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := &shaky{Store: new(durable.Memory)}
			var first, ended time.Time
			old := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
				first = time.Now()
				<-ctx.Done()
				ended = time.Now()
				if !row.listen {
					time.Sleep(10 * time.Minute)
				}
				return durable.Outcome{Class: durable.ClassSucceeded, Reference: "old"}
			}))
			old.Store = store
			var second time.Time
			other := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				second = time.Now()
				assert.EqualValues(t, 2, s.Generation)
				assert.Equal(t, durable.IdempotencyKey(s.ID, 1), s.Key)
				time.Sleep(time.Minute)
				return durable.Outcome{Class: durable.ClassSucceeded, Reference: "new"}
			}))
			other.Store = store.Store
			in := enqueuePay(t, old)
			running(t, old)
			synctest.Wait()
			store.set(func(string) error { return errDown })
			running(t, other)
			time.Sleep(time.Minute)
			store.set(nil)
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			assert.Equal(t, first.Add(30*time.Second*3/4), ended)
			assert.GreaterOrEqual(t, second.Sub(first), 30*time.Second)
			assert.LessOrEqual(t, second.Sub(first), 33*time.Second, "pick-up within Lease and two Polls")
			record := find(t, other, in.ID)
			assert.Equal(t, durable.StateDone, record.State)
			assert.Equal(t, "new", record.Reference)
			assert.Len(t, journal(t, other, in.ID), 2)
		})
	}
}

// D2: if the answer to a claim comes when the lease is about to end, the intents are not sent,
// and no attempt is counted. The context of a send has the deadline of the lease.
func TestWorker_lateAnswerToClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := 30 * time.Second * 3 / 4
		store := &shaky{Store: new(durable.Memory), fail: noHeartbeat, claimed: func(durable.Claim, *durable.Claimed) { time.Sleep(late) }}
		sends := 0
		e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
			sends++
			at, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, time.Now().Add(5*time.Minute), at)
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Store = store
		in := enqueuePay(t, e)
		work(t, e, 1)
		assert.Zero(t, sends)
		record := find(t, e, in.ID)
		assert.Equal(t, durable.StateWaiting, record.State)
		assert.Zero(t, record.Attempts)
		require.Len(t, journal(t, e, in.ID), 1)
		late -= time.Millisecond
		time.Sleep(time.Hour)
		work(t, e, 1)
		assert.Equal(t, 1, sends)
	})
}

func noHeartbeat(verb string) error { return map[string]error{"beat": errDown}[verb] }

// If the answer to a claim is lost, the worker may hold intents that it does not know of. It must
// not keep them with its heartbeats.
func TestWorker_lostAnswerToClaim(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "while it sends other things": false} {
		bubble.Run(t, name, func(t *testing.T) {
			e, store := shakyStore(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				if s.ID.Key == "long" {
					time.Sleep(4 * time.Minute)
				}
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			running(t, e)
			if !alone {
				enqueue(t, e, pay("comp1", "long"))
			}
			synctest.Wait()
			lost := false
			store.set(func(verb string) error {
				if verb == "claim" && !lost {
					lost = true
					return errSilent
				}
				return nil
			})
			in := enqueuePay(t, e)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.True(t, lost)
			assertState(t, e, in.ID, durable.StateSending)
			later := pay("comp1", "2")
			enqueue(t, e, later)
			time.Sleep(10 * time.Second)
			assertState(t, e, later.ID, durable.StateDone)
			time.Sleep(6 * time.Minute)
			assertState(t, e, in.ID, durable.StateDone)
			if !alone {
				assert.Len(t, journal(t, e, pay("comp1", "long").ID), 1, "what it knows of stays its own")
			}
			assert.Equal(t, 1, statsOf(t, e).Workers)
		})
	}
}

// A store that is down for a while loses nothing, and is not called all the time.
func TestStoreDown(t *testing.T) {
	for _, verb := range []string{"all", "apply", "claim", "beat", "reap", "sweep"} {
		for _, how := range []error{errDown, errSilent} {
			bubble.Run(t, verb+": "+how.Error(), func(t *testing.T) {
				var mu sync.Mutex
				done := map[string]bool{}
				e, store := shakyStore(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					done[s.Key] = true
					return durable.Outcome{Class: durable.ClassSucceeded}
				}))
				var failed atomic.Int64
				e.Trace = &durable.Trace{Failed: func(error) { failed.Add(1) }}
				enqueue(t, e, several("comp1", 40)...)
				running(t, e)
				time.Sleep(1500 * time.Millisecond)
				store.set(func(name string) error {
					if verb == "all" || verb == name {
						return how
					}
					return nil
				})
				time.Sleep(10 * time.Minute)
				assert.Positive(t, failed.Load())
				calls := 0
				for _, name := range []string{"apply", "claim", "beat", "reap", "sweep"} {
					calls += store.called(name)
				}
				assert.Less(t, calls, 6000, "ten a second at most")
				store.set(nil)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				assert.Equal(t, map[durable.State]int{durable.StateDone: 40}, statsOf(t, e).States)
				assert.Len(t, done, 40)
			})
		}
	}
}

// A worker releases its lease when it stops.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(succeeds)
		for range 2 {
			runFor(t, e, time.Minute)
			assert.Zero(t, statsOf(t, e).Workers)
		}
		for _, key := range []string{"1", "2", "3"} {
			enqueue(t, e, pay("comp1", key))
			assert.Equal(t, 1, work(t, e, 0))
		}
		assert.Equal(t, 1, statsOf(t, e).Workers, "one that knows what it holds keeps its name")
	})
}

// A Run that ends does not release the lease while a Work of the same Engine is sending.
func TestLeaveAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(succeedsAfter(func() { time.Sleep(time.Minute) }))
		in := enqueuePay(t, e)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			assert.NoError(t, errOf(e.Work(t.Context(), 1)))
		}()
		time.Sleep(time.Second)
		runFor(t, e, time.Second)
		changes, err := e.Store.Reap(t.Context(), 10)
		require.NoError(t, err)
		assert.Empty(t, changes)
		<-ended
		assertState(t, e, in.ID, durable.StateDone)
		assert.Len(t, journal(t, e, in.ID), 1)
	})
}

// A send ends after Timeout. A resend in doubt ends when its key protects no more.
func TestSendEnds(t *testing.T) {
	for _, row := range []struct {
		name             string
		timeout, keyLife time.Duration
		want             [2]time.Duration // after the first began
	}{
		{"the default", 0, 0, [2]time.Duration{5 * time.Minute, 15 * time.Minute}},
		{"a timeout", time.Minute, 0, [2]time.Duration{time.Minute, 11 * time.Minute}},
		{"the last use of the key", 2 * time.Minute, 26 * time.Minute, [2]time.Duration{2 * time.Minute, 11 * time.Minute}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var began time.Time
			var ended []time.Duration
			e := through(gatewayFunc(func(ctx context.Context, s *durable.Send) durable.Outcome {
				if s.Number == 1 {
					began = time.Now()
				}
				<-ctx.Done()
				ended = append(ended, time.Since(began))
				return durable.Outcome{}
			}))
			e.Timeout, e.KeyTTL, e.PollInterval = row.timeout, row.keyLife, time.Millisecond
			e.Policy = policyFunc(func(*durable.History, time.Time) durable.Decision {
				return durable.Decision{At: began.Add(10 * time.Minute)}
			})
			enqueue(t, e, pay("comp1", "1"))
			work(t, e, 0)
			time.Sleep(time.Until(began.Add(10 * time.Minute)))
			work(t, e, 0)
			require.Len(t, ended, 2)
			for i, want := range row.want {
				assert.InDelta(t, want, ended[i], float64(10*time.Millisecond))
			}
		})
	}
}

// A Gateway may return an outcome shortly after the end of its context.
func TestEngine_graceAfterTimeout(t *testing.T) {
	for after, want := range map[time.Duration]durable.State{
		grace - time.Millisecond: durable.StateDone, grace + time.Millisecond: durable.StateUnknown,
	} {
		bubble.Run(t, after.String(), func(t *testing.T) {
			e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
				<-ctx.Done()
				time.Sleep(after)
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			in := enqueuePay(t, e)
			work(t, e, 1)
			assertState(t, e, in.ID, want)
			time.Sleep(time.Second)
		})
	}
}

// grace is as documented at Engine.Timeout.
const grace = 200 * time.Millisecond

// An outcome that WorkOne could not store in time is reaped, though its Engine still runs.
func TestNotStoredAndAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{Store: new(durable.Memory)}
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			store.set(func(verb string) error { return map[string]error{"apply": errDown}[verb] })
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Store, e.PollInterval, e.DrainTimeout = store, 24*time.Hour, time.Second
		running(t, e)
		synctest.Wait()
		in := pay("comp1", "1")
		require.NoError(t, errOf(store.Store.Apply(t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: in}})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, errOf(e.WorkOne(ctx, in.ID)), context.DeadlineExceeded)
		store.set(nil)
		time.Sleep(time.Minute)
		changes, err := store.Reap(t.Context(), 10)
		require.NoError(t, err)
		assert.Len(t, changes, 1)
		assertState(t, e, in.ID, durable.StateUnknown)
	})
}

// A Gateway that does not return occupies its worker slot, so that at most Concurrency Gateways
// run.
func TestDeafGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		e := through(succeedsAfter(func() {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Hour)
			now.Add(-1)
		}))
		e.Concurrency, e.PerTenant, e.Timeout = 3, 3, time.Minute
		enqueue(t, e, several("comp1", 6)...)
		runFor(t, e, 5*time.Hour)
		assert.EqualValues(t, 3, most.Load())
		time.Sleep(2 * time.Hour)
	})
}

// If the store does not answer, as on a dead connection, the verb is repeated after a lease.
// Other verbs do not wait for the kernel to notice the dead connection.
func TestEngine_silentStore(t *testing.T) {
	for _, verb := range []string{"apply", "claim", "reap", "sweep"} {
		bubble.Run(t, verb, func(t *testing.T) {
			e, store := shakyStore(succeeds)
			var failed []error
			e.Trace = &durable.Trace{Failed: func(err error) { failed = append(failed, err) }}
			in := enqueuePay(t, e)
			var was atomic.Bool
			store.set(func(name string) error {
				if name != verb || was.Swap(true) {
					return nil
				}
				return errHangs
			})
			running(t, e)
			time.Sleep(35 * time.Second)
			assertState(t, e, in.ID, durable.StateDone)
			assert.Len(t, journal(t, e, in.ID), 1)
			require.Len(t, failed, 1)
			require.ErrorIs(t, failed[0], context.DeadlineExceeded)
			assert.ErrorContains(t, failed[0], "the store does not answer")
		})
	}
}

// tardy is a Store that claims at once and answers later, unless the context ends.
type tardy struct {
	durable.Store

	by time.Duration
}

func (s *tardy) Claim(ctx context.Context, claim durable.Claim) (durable.Claimed, error) {
	claimed, err := s.Store.Claim(context.WithoutCancel(ctx), claim)
	select {
	case <-time.After(s.by):
		return claimed, err
	case <-ctx.Done():
		return durable.Claimed{}, ctx.Err()
	}
}

// D10, D27: if the Engine stops during a claim, it waits for the answer, at most for DrainTimeout.
// The claimed intents are free at once. Otherwise they would be unknown, though nothing was sent.
func TestEngine_stopDuringClaim(t *testing.T) {
	for _, row := range []struct {
		name      string
		by, drain time.Duration
		want      durable.State
		longest   time.Duration
	}{
		{"it answers", 20 * time.Millisecond, 0, durable.StateWaiting, 20 * time.Millisecond},
		{"it does not", time.Hour, 0, durable.StateSending, time.Second},
		{"nothing is waited for", 20 * time.Millisecond, -1, durable.StateSending, 0},
	} {
		for name, work := range map[string]func(*durable.Engine, context.Context) error{
			"Run":     (*durable.Engine).Run,
			"Work":    func(e *durable.Engine, ctx context.Context) error { _, err := e.Work(ctx, 1); return err },
			"WorkOne": func(e *durable.Engine, ctx context.Context) error { return errOf(e.WorkOne(ctx, pay("comp1", "1").ID)) },
		} {
			bubble.Run(t, row.name+": "+name, func(t *testing.T) {
				e := through(succeeds)
				e.Store, e.DrainTimeout = &tardy{e.Store, row.by}, row.drain
				in := enqueuePay(t, e)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				began := time.Now()
				if err := work(e, ctx); err != nil {
					require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded), err)
				}
				assert.LessOrEqual(t, time.Since(began), 10*time.Millisecond+row.longest)
				assertState(t, e, in.ID, row.want)
			})
		}
	}
}

// A call with a context that has ended claims nothing.
func TestEngine_endedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { panic("sent") }))
		in := enqueuePay(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, errOf(e.WorkOne(ctx, in.ID)), context.Canceled)
		assertState(t, e, in.ID, durable.StatePending)
	})
}

// WorkOne returns a time by its caller's clock, not by the store's.
func TestWorkOne_byOurClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		bubble.Run(t, by.String(), func(t *testing.T) {
			e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { panic("sent") }))
			e.Store = &skewed{e.Store, by}
			in := pay("comp1", "1")
			in.NotBefore = time.Now().Add(2 * time.Hour)
			enqueue(t, e, in)
			assert.WithinDuration(t, in.NotBefore, workOne(t, e, in.ID), time.Millisecond)
		})
	}
}

// D30: the store's clock is set while WorkOne sends the intent. The next send is not later than planned.
func TestWorkOne_clockIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		bubble.Run(t, by.String(), func(t *testing.T) {
			store, sends := new(durable.Memory), 0
			e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
				if sends++; sends == 1 {
					durable.MoveClock(store, by)
				}
				return durable.Outcome{Class: durable.ClassFailed}
			}))
			e.Store, e.Policy = store, durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)}
			in, began := enqueuePay(t, e), time.Now()
			for sends < 2 {
				time.Sleep(time.Until(workOne(t, e, in.ID)))
			}
			assert.LessOrEqual(t, time.Since(began), 2*time.Minute+time.Second)
		})
	}
}

// WorkOne of an intent that is not due does not wait for more free slots.
func TestWorkOne_atOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(succeedsAfter(func() { time.Sleep(time.Minute) }))
		in, later := pay("comp1", "1"), pay("comp1", "2")
		later.NotBefore = time.Now().Add(time.Hour)
		enqueue(t, e, in, later)
		go func() { _, _ = e.WorkOne(t.Context(), in.ID) }()
		synctest.Wait()
		began := time.Now()
		workOne(t, e, later.ID)
		assert.Zero(t, time.Since(began))
		time.Sleep(2 * time.Minute)
		assertState(t, e, in.ID, durable.StateDone)
	})
}

// D2: a send ends a quarter of the lease before the end that the claim returned.
func TestLeaseAsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return durable.Outcome{}
		}))
		e.LeaseDuration = 20 * time.Second
		e.Store = &shaky{Store: e.Store, fail: noHeartbeat, claimed: func(claim durable.Claim, claimed *durable.Claimed) {
			claimed.Lease = claim.Lease * 9 / 10 // it was not extended after its first tenth
		}}
		enqueue(t, e, pay("comp1", "1"))
		work(t, e, 1)
		assert.Equal(t, 13*time.Second, took)
	})
}
