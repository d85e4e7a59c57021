package durable_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// refusing is a Gateway that declines until open is true.
type refusing struct{ open atomic.Bool }

func (r *refusing) Send(context.Context, *durable.Send) durable.Outcome {
	if r.open.Load() {
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	return durable.Outcome{Class: durable.ClassDeclined, Code: "51"}
}

// deadLetters makes many dead letters, by declines.
func deadLetters(t *testing.T, e *durable.Engine, many int) {
	t.Helper()
	for i := range many {
		enqueue(t, e, pay("comp"+strconv.Itoa(i%3), strconv.Itoa(i)))
	}
	require.Equal(t, many, work(t, e, many))
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
		assert.Len(t, letters(t, e, durable.Filter{Scope: "comp1"}), 333)
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

// redrive adds a job and executes it, and returns the number of redriven intents.
func redrive(t *testing.T, e *durable.Engine, filter durable.Filter, how durable.Redrive) int {
	t.Helper()
	id := addJob(t, e, filter, how)
	for {
		job, _, err := e.Store.WorkJob(t.Context(), 200)
		require.NoError(t, err)
		if job.ID == "" {
			return jobOf(t, e, id).Redriven
		}
	}
}

func jobOf(t *testing.T, e *durable.Engine, id durable.JobID) durable.Job {
	t.Helper()
	jobs, err := e.Jobs(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(jobs, func(job durable.Job) bool { return job.ID == id })
	require.NotEqual(t, -1, i, "no such job")
	return jobs[i]
}

// D12: after a decline, a redriven intent has a new epoch and new counts. Redriven intents are
// spread over time. Person and reason are stored.
func TestRedrive(t *testing.T) {
	for _, row := range []struct {
		name      string
		perSecond float64
		last      time.Duration // the 500th is due
	}{
		{"the default", 0, 49900 * time.Millisecond},
		{"one in two seconds", .5, 998 * time.Second},
		{"at once", -1, 0},
		{"as good as never", 1e-300, 30 * 24 * time.Hour},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			gateway := new(refusing)
			e := through(gateway)
			deadLetters(t, e, 500)
			how := durable.Redrive{By: "ann", Note: "the bank is back", PerSecond: row.perSecond}
			began := time.Now()
			assert.Equal(t, 500, redrive(t, e, durable.Filter{}, how))
			assert.Empty(t, letters(t, e, durable.Filter{}))
			assert.Zero(t, redrive(t, e, durable.Filter{IncludeResolved: true}, how), "what is resolved is not redriven")
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
			work(t, e, 1000)
			assert.Equal(t, map[durable.State]int{durable.StateDone: 500}, statsOf(t, e).States)
		})
	}
}

// D12: in doubt the key stays. When it protects no more, and the provider cannot be queried,
// only a person can decide.
func TestRedrive_inDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			keys = append(keys, s.Key)
			return durable.Outcome{}
		}))
		e.Policy = durable.Schedule{MaxAge: 1}
		in := enqueuePay(t, e)
		work(t, e, 0)
		assert.Equal(t, 1, redrive(t, e, durable.Filter{Reason: durable.ReasonUnresolved}, durable.Redrive{}))
		assertState(t, e, in.ID, durable.StateUnknown)
		work(t, e, 0)
		assertState(t, e, in.ID, durable.StateDead)
		assert.Equal(t, []string{durable.IdempotencyKey(in.ID, 1), durable.IdempotencyKey(in.ID, 1)}, keys)

		other := in
		other.Payload = []byte("mended")
		require.ErrorIs(t, errOf(e.Enqueue(t.Context(), other)), durable.ErrMismatch, "it may have been done")
		time.Sleep(25 * time.Hour)
		assert.Equal(t, 1, redrive(t, e, durable.Filter{Reason: durable.ReasonUnresolved}, durable.Redrive{}))
		work(t, e, 0)
		assertState(t, e, in.ID, durable.StateDead)
		assert.Len(t, keys, 2)

		require.ErrorIs(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{Class: durable.ClassDeclined}, ""), durable.ErrInvalid)
		require.ErrorIs(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{}, "ann"), durable.ErrInvalid)
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, in.ID), durable.Outcome{Class: durable.ClassDeclined, Code: "not there"}, "ann"))
		assertState(t, e, in.ID, durable.StateDead)
		assert.False(t, find(t, e, in.ID).InDoubt)
		enqueueOne(t, e, other)
		work(t, e, 0)
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
		work(t, e, 0)
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

// seen returns the state of an intent as a person sees it now.
func seen(t *testing.T, e *durable.Engine, id idempotency.ID) durable.Seen {
	t.Helper()
	record := find(t, e, id)
	return record.Seen()
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
