package durable_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// slow is a Store with verbs as slow as those of a database, one at a time.
type slow struct {
	*shaky

	turn chan struct{} // a channel, because the clock of synctest does not advance during a mutex wait
}

func (s *slow) Apply(ctx context.Context, events []durable.Event) ([]durable.Result, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	time.Sleep(3 * time.Millisecond)
	return s.shaky.Apply(ctx, events)
}

func (s *slow) Claim(ctx context.Context, claim durable.Claim) (durable.Claimed, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	time.Sleep(3 * time.Millisecond)
	return s.shaky.Claim(ctx, claim)
}

// Claims and outcomes share commits. With quick Gateways, a claim takes nearly as many intents as
// there are workers, and so does a commit of outcomes.
func TestGroups(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "as long as a verb": 3 * time.Millisecond} {
		bubble.Run(t, name, func(t *testing.T) {
			store := &slow{&shaky{Store: new(durable.Memory)}, make(chan struct{}, 1)}
			e := through(succeedsAfter(func() { time.Sleep(takes) }))
			e.Store = store
			const intents = 2000
			require.NoError(t, errOf(e.EnqueueBatch(t.Context(), ofTenants(10, intents))))
			assert.Equal(t, intents, work(t, e, intents))
			assert.LessOrEqual(t, store.called("claim"), 2*intents/100)
			assert.LessOrEqual(t, store.called("apply"), 2*intents/100)
		})
	}
}

// An outcome is stored, and the store's answer is lost. It is reported as a change, and not as
// an outcome that was not stored.
func TestBatcher_lostAnswerIsReportedAsChange(t *testing.T) {
	for name, row := range map[string]struct {
		outcome durable.Outcome
		state   durable.State
	}{
		"done":    {durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_1"}, durable.StateDone},
		"refused": {durable.Outcome{Class: durable.ClassDeclined, Code: "do_not_honor", Status: 402}, durable.StateDead},
		"unknown": {durable.Outcome{Err: context.DeadlineExceeded}, durable.StateUnknown},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			e, store := shakyStore(returns(row.outcome))
			var states []durable.State
			var opened *durable.DeadLetter
			failed := 0
			e.Trace = &durable.Trace{
				Changed: func(c *durable.Change) {
					if c.FinishedAttempt != nil {
						states, opened = append(states, c.Record.State), c.DeadLettered
					}
				},
				Failed: func(err error) {
					failed++
					require.ErrorIs(t, err, errSilent)
				},
			}
			enqueue(t, e, pay("comp1", "1"))
			lost := 0
			store.set(func(verb string) error {
				if verb == "apply" && lost < 2 {
					lost++
					return errSilent
				}
				return nil
			})
			work(t, e, 1)
			assert.Equal(t, []durable.State{row.state}, states)
			assert.Equal(t, row.state == durable.StateDead, opened != nil)
			assert.Equal(t, 2, failed)
		})
	}
}

// An attempt ends also if the store answers neither its outcome nor the question whether that was stored.
func TestBatcher_lostAnswerAndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, store := shakyStore(succeeds)
		in := enqueuePay(t, e)
		lost := false
		store.set(func(verb string) error {
			switch {
			case verb == "apply" && !lost:
				lost = true
				return errSilent
			case verb == "attempts":
				return errHangs
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		n, err := e.Work(ctx, 1)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Less(t, time.Since(began), 2*time.Minute)
		store.set(nil)
		assertState(t, e, in.ID, durable.StateDone)
	})
}

// The change of a reaper is not that of the worker, though both end the attempt.
func TestLostAnswerOfWhatWasReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{Store: new(durable.Memory)}
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			store.set(func(string) error { return errDown })
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Store = store
		var mu sync.Mutex
		var failures []error
		e.Trace = &durable.Trace{
			Changed: func(c *durable.Change) { assert.Nil(t, c.FinishedAttempt, "%v", c) },
			Failed: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			},
		}
		in := enqueuePay(t, e)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = e.Work(t.Context(), 1)
		}()
		time.Sleep(time.Minute)
		changes, err := store.Store.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, changes, 1)
		store.set(nil)
		<-ended
		assertState(t, e, in.ID, durable.StateUnknown)
		require.NotEmpty(t, failures)
		require.ErrorIs(t, failures[len(failures)-1], durable.ErrFenced)
	})
}

// D10: an outcome that cannot be stored before Run ends is reported as an error only. Its intent
// is reaped when the store is back.
func TestBatcher_outcomeNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{Store: new(durable.Memory)}
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			store.set(func(string) error { return errDown })
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Store, e.DrainTimeout = store, time.Minute
		var mu sync.Mutex
		var last error
		e.Trace = &durable.Trace{
			Changed: func(c *durable.Change) { assert.NotEmpty(t, c.Record.ID.Key) },
			Failed: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				last = err
			},
		}
		in := enqueuePay(t, e)
		began := time.Now()
		runFor(t, e, time.Minute)
		assert.LessOrEqual(t, time.Since(began), 2*time.Minute+time.Second)
		mu.Lock()
		require.ErrorIs(t, last, errDown)
		require.ErrorContains(t, last, "an outcome was not stored")
		mu.Unlock()
		store.set(nil)
		assertState(t, e, in.ID, durable.StateSending)
		changes, err := store.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, changes, 1)
		assertState(t, e, in.ID, durable.StateUnknown)
	})
}

// A worker slot is free when its Gateway has returned: it sends the next intent while the outcome
// is stored. At most as many outcomes as workers wait to be stored.
func TestSendsWhileOutcomesAreStored(t *testing.T) {
	for _, row := range []struct {
		name      string
		perTenant int
		busy      bool // no Gateway answers
		sent      int
	}{
		{"twice as many as senders", 100, false, 8},
		{"a tenant's share is of what is sent", 3, false, 8},
		{"a tenant's share is in use", 3, true, 3},
		{"senders that are at work count", 100, true, 4},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store, open := &shaky{Store: new(durable.Memory)}, make(chan struct{})
			var sent atomic.Int64
			e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
				sent.Add(1)
				if row.busy {
					<-ctx.Done()
				}
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			e.Store, e.Concurrency, e.PerTenant, e.Timeout = store, 4, row.perTenant, -1
			enqueue(t, e, several("tenant", 20)...)
			store.set(func(verb string) error {
				if verb == "apply" { // of an outcome
					<-open
				}
				return nil
			})
			running(t, e)
			time.Sleep(5 * time.Second)
			assert.EqualValues(t, row.sent, sent.Load())
			close(open)
			if row.busy {
				return
			}
			time.Sleep(5 * time.Second)
			assert.Equal(t, map[durable.State]int{durable.StateDone: 20}, statsOf(t, e).States)
		})
	}
}
