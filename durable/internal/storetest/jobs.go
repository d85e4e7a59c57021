package storetest

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// dead returns n new dead intents.
func (k *kit) dead(n int) (all []durable.Record) {
	for range n {
		all = append(all, k.reach(durable.StateDead, false))
	}
	return all
}

// open returns the open dead letters.
func (k *kit) open() []durable.DeadLetter {
	open, err := k.store.DeadLetters(k.ctx(), durable.Filter{}, nil, 10000)
	require.NoError(k, err)
	return open
}

func (k *kit) addJob(job durable.Job) durable.Job {
	job, err := k.store.AddJob(k.ctx(), job)
	require.NoError(k, err)
	return job
}

// workJob works a page, and checks that each change is stored.
func (k *kit) workJob(handle, limit int) durable.Job {
	job, changes, err := k.handle(handle).WorkJob(k.ctx(), limit)
	require.NoError(k, err)
	for i := range changes {
		c := &changes[i]
		c.Record.Payload = intent("").Payload
		k.note(c)
		k.checkStored(&c.Record)
	}
	return job
}

// checkJobs compares the newest jobs with those that the verbs have returned.
func (k *kit) checkJobs(limit int, want ...durable.Job) {
	got, err := k.again.Jobs(k.ctx(), limit)
	require.NoError(k, err)
	equalRows(k, want, got)
}

// testJobs (D22): each page begins after the last one, in any process, until the job is finished
// or canceled.
func (k *kit) testJobs() {
	assert.Empty(k, k.workJob(0, 10).ID, "without a job")
	dead := k.dead(25)
	seenAt := k.open()[24].DeadAt.Add(time.Microsecond)
	request := durable.Job{Filter: durable.Filter{Until: seenAt, NewestFirst: true, IncludeResolved: true}, By: "ann", Note: "why", PerSecond: .01}
	k.eventually("a later time", func() bool { // the clock of a store may have milliseconds
		return k.must(enqueue(intent("clock"))).CreatedAt.After(seenAt)
	})
	younger := k.dead(1)[0]
	job := k.addJob(request)
	assert.NotEmpty(k, job.ID)
	assert.NotZero(k, job.CreatedAt)
	want := request
	want.ID, want.CreatedAt, want.Filter.NewestFirst, want.Filter.IncludeResolved = job.ID, job.CreatedAt, false, false
	assert.Equal(k, want, job)
	joined, err := k.again.AddJob(k.ctx(), request)
	require.NoError(k, err)
	assert.Equal(k, job, joined)
	request.Filter.Code = "code"
	other := k.addJob(request)
	assert.NotEqual(k, job.ID, other.ID, "another filter joins")
	k.checkJobs(10, other, job)
	k.checkJobs(1, other)
	k.checkJobs(0)
	k.checkJobs(-1)

	gone, cancel := context.WithCancel(k.ctx())
	cancel()
	_, _, err = k.store.WorkJob(gone, 10)
	require.ErrorIs(k, err, context.Canceled)
	assert.Len(k, k.open(), 26)
	k.must(event(durable.EventRedrive, dead[3].ID)) // by a person: it is not of the job any more
	for i, want := range []struct{ redriven, open int }{{10, 15}, {20, 5}, {24, 1}} {
		job = k.workJob(i, 10)
		assert.Equal(k, want.redriven, job.Redriven, "page %d", i)
		assert.Zero(k, job.Skipped, "page %d", i)
		assert.Len(k, k.open(), want.open, "page %d", i)
		assert.Equal(k, i < 2, job.FinishedAt.IsZero(), "page %d", i)
		k.checkJobs(10, other, job)
	}
	assert.Equal(k, younger.ID, k.open()[0].ID)
	var due []time.Duration
	for i := range dead {
		if i != 3 {
			due = append(due, k.look(dead[i].ID).NextAt.Sub(job.CreatedAt))
		}
	}
	slices.Sort(due)
	for i := range due {
		assert.InDelta(k, time.Duration(i)*100*time.Second+25*time.Second, due[i], float64(25*time.Second), "the %d-th of one in 100 s", i)
	}

	k.dead(12)
	request.Filter = durable.Filter{}
	third := k.addJob(request)
	got := k.workJob(0, 5)
	assert.Equal(k, other.ID, got.ID, "the oldest open job")
	assert.False(k, got.FinishedAt.IsZero())
	assert.Zero(k, got.Redriven)
	got = k.workJob(0, 5)
	assert.Equal(k, third.ID, got.ID)
	assert.Equal(k, 5, got.Redriven)
	for _, row := range []struct {
		name string
		id   durable.JobID
		by   string
		want error
	}{
		{"by no person: invalid", third.ID, "", durable.ErrInvalid},
		{"no such job: not found", "1234", "bob", durable.ErrNotFound},
		{"no number: not found", "x", "bob", durable.ErrNotFound},
		{"in the middle: canceled", third.ID, "bob", nil},
		{"again: invalid state", third.ID, "bob", durable.ErrInvalidState},
		{"finished: invalid state", job.ID, "bob", durable.ErrInvalidState},
	} {
		assert.ErrorIs(k, k.again.CancelJob(k.ctx(), row.id, row.by), row.want, row.name)
	}
	assert.Empty(k, k.workJob(0, 5).ID, "after it was canceled")
	assert.Len(k, k.open(), 8)
	jobs, err := k.store.Jobs(k.ctx(), 1)
	require.NoError(k, err)
	assert.Equal(k, "bob", jobs[0].CanceledBy)
	assert.NotZero(k, jobs[0].FinishedAt)
	assert.Equal(k, 5, jobs[0].Redriven)
}

// testJobsInvalid adds invalid jobs.
func (k *kit) testJobsInvalid() {
	for name, job := range map[string]durable.Job{
		"no rate":       {},
		"no number":     {PerSecond: math.NaN()},
		"infinite":      {PerSecond: math.Inf(-1)},
		"no UTF-8":      {PerSecond: 1, Filter: durable.Filter{Scope: "\xff"}},
		"no such state": {PerSecond: 1, Filter: durable.Filter{States: []durable.State{99}}},
		"a year":        {PerSecond: 1, Filter: durable.Filter{From: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		assert.ErrorIs(k, ignored(k.store.AddJob(k.ctx(), job)), durable.ErrInvalid, name)
	}
	k.checkJobs(10)
}

// raceJobs works jobs in several processes while a person redrives: each letter is redriven and
// counted once.
func (k *kit) raceJobs() {
	const raced = 60
	dead := k.dead(raced)
	var byPersons atomic.Int64
	for _, f := range []durable.Filter{{}, {Code: "code"}, {Reason: durable.ReasonDeclined}} {
		k.addJob(durable.Job{Filter: f, PerSecond: -1})
	}
	ctx := k.ctx()
	together(6, func(i int) {
		if i < 2 {
			for j := i; j < len(dead); j += 5 {
				results, err := k.handle(i).Apply(ctx, []durable.Event{dead[j].Seen().Event(durable.EventRedrive)})
				if assert.NoError(k, err) && results[0].Err == nil {
					byPersons.Add(1)
				}
			}
			return
		}
		for busy := 0; busy < 3; {
			job, _, err := k.handle(i).WorkJob(ctx, 7)
			if !assert.NoError(k, err) {
				return
			}
			if job.ID == "" { // none, or others have them
				busy++
			}
		}
	})
	for job := (durable.Job{ID: "any"}); job.ID != ""; { // what was left
		job = k.workJob(0, 7)
	}
	counted := int(byPersons.Load())
	jobs, err := k.store.Jobs(ctx, 10)
	require.NoError(k, err)
	for i := range jobs {
		counted += jobs[i].Redriven
	}
	assert.Empty(k, k.open())
	assert.Equal(k, raced, counted)
	for i := range dead {
		assert.Equal(k, durable.StateWaiting, k.look(dead[i].ID).State)
	}
}

const (
	raceIDs = 20 // intents of a race
	racers  = 6  // concurrent callers for each
)

// raceRedrive redrives each intent twice concurrently. It is redriven once, even if it soon is
// dead again.
func (k *kit) raceRedrive() {
	dead := k.dead(raceIDs)
	ctx := k.ctx()
	var redriven atomic.Int64
	together(raceIDs*racers, func(i int) {
		results, err := k.handle(i/raceIDs).Apply(ctx, []durable.Event{dead[i%raceIDs].Seen().Event(durable.EventRedrive)})
		switch {
		case !assert.NoError(k, err):
		case results[0].Err == nil:
			redriven.Add(1)
		default:
			assert.ErrorIs(k, results[0].Err, durable.ErrStale)
		}
	})
	assert.EqualValues(k, raceIDs, redriven.Load())
	for i := range dead {
		assert.Equal(k, durable.StateWaiting, k.look(dead[i].ID).State)
	}
}
