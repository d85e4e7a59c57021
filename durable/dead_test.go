package durable_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// refusing is a Gateway that refuses until it is told not to.
type refusing struct{ open atomic.Bool }

func (r *refusing) Send(context.Context, *durable.Send) durable.Outcome {
	if r.open.Load() {
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	return durable.Outcome{Class: durable.ClassDeclined, Code: "51"}
}

// deadLetters are many, by a refusal.
func deadLetters(t *testing.T, e *durable.Engine, many int) {
	t.Helper()
	for i := range many {
		enqueue(t, e, pay("comp"+strconv.Itoa(i%3), strconv.Itoa(i)))
	}
	n, err := e.Work(t.Context(), many)
	require.NoError(t, err)
	require.Equal(t, many, n)
}

func letters(t *testing.T, e *durable.Engine, filter durable.Filter) []durable.DeadLetter {
	t.Helper()
	var all []durable.DeadLetter
	for letter, err := range e.Dead(t.Context(), filter) {
		require.NoError(t, err)
		all = append(all, letter)
	}
	return all
}

func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 1000)
		all := letters(t, e, durable.Filter{})
		require.Len(t, all, 1000, "pages have no end")
		for i := range all[1:] {
			assert.Negative(t, all[i].Compare(&all[i+1]))
		}
		assert.Equal(t, durable.ReasonDeclined, all[0].Reason)
		assert.Equal(t, "51", all[0].Code)
		for name, row := range map[string]struct {
			filter durable.Filter
			want   int
		}{
			"tenant":  {durable.Filter{Scope: "comp1"}, 333},
			"gateway": {durable.Filter{Gateway: "other"}, 0},
			"code":    {durable.Filter{Code: "51"}, 1000},
			"reason":  {durable.Filter{Reason: durable.ReasonDeadline}, 0},
			"from":    {durable.Filter{From: time.Now().Add(time.Second)}, 0},
			"until":   {durable.Filter{Until: time.Now().Add(time.Second)}, 1000},
		} {
			assert.Len(t, letters(t, e, row.filter), row.want, name)
		}
		for _, err := range e.Dead(t.Context(), durable.Filter{}) {
			require.NoError(t, err)
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range e.Dead(ctx, durable.Filter{}) {
			require.ErrorIs(t, err, context.Canceled)
		}
		for _, err := range new(durable.Engine).Dead(ctx, durable.Filter{}) {
			require.ErrorIs(t, err, durable.ErrInvalid)
		}
	})
}

// D12: a new epoch after a refusal, a fresh count, spread, and who and why.
func TestRedrive(t *testing.T) {
	for _, row := range []struct {
		name      string
		perSecond float64
		last      time.Duration // the 500th is due
	}{
		{"the default", 0, 49900 * time.Millisecond},
		{"one in two seconds", .5, 998 * time.Second},
		{"at once", -1, 0},
		{"no number", math.NaN(), 0},
		{"as good as never", 1e-300, 30 * 24 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gateway := new(refusing)
				e := through(gateway)
				deadLetters(t, e, 500)
				how := durable.Redrive{By: "ann", Note: "the bank is back", PerSecond: row.perSecond, DryRun: true}
				n, err := e.Redrive(t.Context(), durable.Filter{}, how)
				require.NoError(t, err)
				assert.Equal(t, 500, n)
				assert.Len(t, letters(t, e, durable.Filter{}), 500, "a dry run changes nothing")

				how.DryRun = false
				began := time.Now()
				n, err = e.Redrive(t.Context(), durable.Filter{}, how)
				require.NoError(t, err)
				assert.Equal(t, 500, n)
				assert.Empty(t, letters(t, e, durable.Filter{}))
				n, err = e.Redrive(t.Context(), durable.Filter{IncludeResolved: true}, durable.Redrive{DryRun: true})
				require.NoError(t, err)
				assert.Zero(t, n, "what was dealt with is not redriven")
				last := time.Duration(0)
				for _, letter := range letters(t, e, durable.Filter{IncludeResolved: true}) {
					assert.Equal(t, "ann", letter.By)
					assert.Equal(t, "the bank is back", letter.Note)
					record := find(t, e, letter.ID)
					assert.Equal(t, durable.StateWaiting, record.State)
					assert.Equal(t, 2, record.Epoch)
					assert.Zero(t, record.Attempts)
					last = max(last, record.NextAt.Sub(began))
				}
				assert.InDelta(t, row.last, last, float64(time.Microsecond))

				gateway.open.Store(true)
				time.Sleep(last)
				_, err = e.Work(t.Context(), 1000)
				require.NoError(t, err)
				stats, err := e.Stats(t.Context())
				require.NoError(t, err)
				assert.Equal(t, map[durable.State]int{durable.StateDone: 500}, stats.States)
			})
		})
	}
}

// D12: twice at once redrives once.
func TestRedriveTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 700)
		var total atomic.Int64
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				n, err := e.Redrive(t.Context(), durable.Filter{}, durable.Redrive{})
				assert.NoError(t, err)
				total.Add(int64(n))
			})
		}
		all.Wait()
		assert.EqualValues(t, 700, total.Load())
	})
}

// What dies again at once is not redriven again by the same call.
func TestRedriveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		store := &relentless{Store: e.Store, redriven: map[string]int{}}
		store.engine = through(new(refusing))
		store.engine.Store = e.Store
		e.Store = store
		deadLetters(t, e, 450)
		n, err := e.Redrive(t.Context(), durable.Filter{}, durable.Redrive{PerSecond: -1})
		require.NoError(t, err)
		assert.Equal(t, 450, n)
		for key, times := range store.redriven {
			assert.Equal(t, 1, times, key)
		}
		assert.Len(t, letters(t, e, durable.Filter{}), 450)
	})
}

// relentless is a Store whose intents are worked at once when they are redriven.
type relentless struct {
	durable.Store

	engine   *durable.Engine
	redriven map[string]int
}

func (r *relentless) Apply(ctx context.Context, events []driver.Event) ([]driver.Result, error) {
	results, err := r.Store.Apply(ctx, events)
	for i := range events {
		if events[i].Kind == driver.EventRedrive {
			r.redriven[events[i].Intent.ID.Key]++
			if _, err := r.engine.WorkOne(ctx, events[i].Intent.ID); err != nil {
				return nil, err
			}
		}
	}
	return results, err
}

// D12: in doubt the key stays; when it protects no more, and nobody can be asked, only a
// person's word helps.
func TestRedriveInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			keys = append(keys, s.Key)
			return durable.Outcome{}
		}))
		e.Policy = durable.Schedule{MaxAge: 1}
		in := pay("comp1", "1")
		enqueue(t, e, in)
		work := func() {
			_, err := e.Work(t.Context(), 0)
			require.NoError(t, err)
		}
		redrive := func() {
			n, err := e.Redrive(t.Context(), durable.Filter{Reason: durable.ReasonUnresolved}, durable.Redrive{})
			require.NoError(t, err)
			assert.Equal(t, 1, n)
		}
		work()
		redrive()
		assertState(t, e, in.ID, durable.StateUnknown)
		work()
		assertState(t, e, in.ID, durable.StateDead)
		assert.Equal(t, []string{durable.IdempotencyKey(in.ID, 1), durable.IdempotencyKey(in.ID, 1)}, keys)

		other := in
		other.Payload = []byte("mended")
		_, err := e.Enqueue(t.Context(), other)
		require.ErrorIs(t, err, durable.ErrMismatch, "it may have been done")
		time.Sleep(25 * time.Hour)
		redrive()
		work()
		assertState(t, e, in.ID, durable.StateDead)
		assert.Len(t, keys, 2)

		require.ErrorIs(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{Class: durable.ClassDeclined}, ""), durable.ErrInvalid)
		require.ErrorIs(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{}, "ann"), durable.ErrInvalid)
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{Class: durable.ClassDeclined, Code: "not there"}, "ann"))
		assertState(t, e, in.ID, durable.StateDead)
		assert.False(t, find(t, e, in.ID).InDoubt)
		_, err = e.Enqueue(t.Context(), other)
		require.NoError(t, err)
		work()
		assert.Equal(t, durable.IdempotencyKey(in.ID, 2), keys[2])
	})
}

func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			if s.Epoch == 2 {
				return durable.Outcome{Class: durable.ClassSucceeded}
			}
			return durable.Outcome{}
		}))
		done, not := pay("comp1", "1"), pay("comp1", "2")
		enqueue(t, e, done, not)
		require.ErrorIs(t, e.Resolve(t.Context(), seen(t, e, done.ID), durable.Outcome{Class: durable.ClassSucceeded}, "ann"), durable.ErrInvalid, "it was never claimed")
		_, err := e.Work(t.Context(), 0)
		require.NoError(t, err)
		running(t, e)
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, done.ID), durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_9"}, "ann"))
		assert.Equal(t, "ch_9", find(t, e, done.ID).Reference)
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, not.ID), durable.Outcome{Class: durable.ClassNotFound}, "ann"))
		synctest.Wait()
		assertState(t, e, not.ID, durable.StateDone)
		attempts := journal(t, e, done.ID)
		last := attempts[len(attempts)-1]
		assert.Equal(t, "resolve ann succeeded ch_9", fmt.Sprint(last.Kind, " ", last.Worker, " ", last.Class, " ", last.Reference))
		require.ErrorIs(t, e.Resolve(t.Context(), durable.Seen{ID: pay("comp1", "3").ID, Generation: 1}, durable.Outcome{Class: durable.ClassSucceeded}, "ann"), durable.ErrNotFound)
	})
}

// A store that fails in the middle has redriven what the number says.
func TestRedriveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 500)
		store := &shaky{Store: e.Store}
		again := &durable.Engine{Store: store, Gateways: e.Gateways}
		store.set(func(verb string) error {
			if verb == "apply" && store.called("apply") == 2 {
				return errDown
			}
			return nil
		})
		n, err := again.Redrive(t.Context(), durable.Filter{}, durable.Redrive{})
		require.ErrorIs(t, err, errDown)
		assert.Len(t, letters(t, e, durable.Filter{}), 500-n)
		store.set(func(verb string) error {
			if verb == "beat" {
				return errDown
			}
			return nil
		})
		_, err = again.Redrive(t.Context(), durable.Filter{}, durable.Redrive{})
		require.ErrorIs(t, err, errDown)
		_, err = new(durable.Engine).Redrive(t.Context(), durable.Filter{}, durable.Redrive{})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorIs(t, new(durable.Engine).Resolve(t.Context(), durable.Seen{ID: id, Generation: 1}, durable.Outcome{}, "ann"), durable.ErrInvalid)
	})
}

// TestRedriveByNobody: nobody need be named, and then nobody is recorded.
func TestRedriveByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 1)
		n, err := e.Redrive(t.Context(), durable.Filter{}, durable.Redrive{})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		closed := letters(t, e, durable.Filter{IncludeResolved: true})
		require.Len(t, closed, 1)
		assert.Equal(t, time.Now(), closed[0].RedrivenAt.Local())
		assert.Empty(t, closed[0].By)
		assert.Empty(t, closed[0].Note)
	})
}

// seen returns what a person sees who looks at an intent now.
func seen(t *testing.T, e *durable.Engine, id idempotency.ID) durable.Seen {
	t.Helper()
	record := find(t, e, id)
	return record.Seen()
}

// D24: what is over can be erased by a person, and what is not cannot.
func TestErase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		in := pay("comp1", "1")
		enqueue(t, e, in)
		require.ErrorIs(t, e.Erase(t.Context(), in.ID, "ann"), durable.ErrInvalidState)
		_, err := e.Work(t.Context(), 0)
		require.NoError(t, err)
		require.ErrorIs(t, e.Erase(t.Context(), in.ID, ""), durable.ErrInvalid)
		require.ErrorIs(t, e.Erase(t.Context(), pay("comp1", "2").ID, "ann"), durable.ErrNotFound)
		require.NoError(t, e.Erase(t.Context(), in.ID, "ann"))
		assertState(t, e, in.ID, durable.StateCancelled)
		assert.Empty(t, find(t, e, in.ID).Payload)
		attempts := journal(t, e, in.ID)
		last := attempts[len(attempts)-1]
		assert.Equal(t, durable.KindErase, last.Kind)
		assert.Equal(t, "ann", last.Worker)
		assert.Empty(t, letters(t, e, durable.Filter{}))
		receipt, err := e.Enqueue(t.Context(), in)
		require.NoError(t, err)
		assert.True(t, receipt.Existing)
	})
}

// D23: intents of any state are listed in pages, oldest or newest first, and counted.
func TestIntents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 1200)
		enqueue(t, e, pay("comp1", "pending"))
		list := func(filter durable.Filter) (all []durable.Record) {
			for record, err := range e.Intents(t.Context(), filter) {
				require.NoError(t, err)
				assert.Empty(t, record.Payload)
				all = append(all, record)
			}
			return all
		}
		dead := list(durable.Filter{States: []durable.State{durable.StateDead}, NewestFirst: true})
		require.Len(t, dead, 1200, "pages have no end")
		for i := range dead[1:] {
			assert.Positive(t, dead[i].Compare(&dead[i+1]))
		}
		assert.Len(t, list(durable.Filter{}), 1201)
		counts, err := e.Counts(t.Context(), durable.StatePending, durable.StateDead)
		require.NoError(t, err)
		assert.Equal(t, []durable.Count{
			{State: durable.StatePending, Gateway: "psp", Scope: "comp1", N: 1},
			{State: durable.StateDead, Gateway: "psp", Scope: "comp0", N: 400},
			{State: durable.StateDead, Gateway: "psp", Scope: "comp1", N: 400},
			{State: durable.StateDead, Gateway: "psp", Scope: "comp2", N: 400},
		}, counts)
		for _, err := range e.Intents(t.Context(), durable.Filter{Scope: "\xff"}) {
			require.ErrorIs(t, err, durable.ErrInvalid)
		}
	})
}
