package storetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// dead returns n new dead intents.
func (k *kit) dead(n int) (ids []driver.Record) {
	k.Helper()
	for range n {
		ids = append(ids, k.reach(driver.StateDead, false))
	}
	return ids
}

// open returns the open dead letters.
func (k *kit) open() []driver.DeadLetter {
	k.Helper()
	open, err := k.store.DeadLetters(k.ctx(), driver.Filter{}, nil, 10000)
	k.fatalIf(err != nil, "DeadLetters: %v", err)
	return open
}

func (k *kit) addJob(job driver.Job) driver.Job {
	k.Helper()
	job, err := k.store.AddJob(k.ctx(), job)
	k.fatalIf(err != nil, "AddJob: %v", err)
	return job
}

// workJob works a page, and checks that each change is stored.
func (k *kit) workJob(handle, limit int) driver.Job {
	k.Helper()
	job, changes, err := k.handle(handle).WorkJob(k.ctx(), limit)
	k.fatalIf(err != nil, "WorkJob: %v", err)
	for i := range changes {
		c := &changes[i]
		c.Record.Payload = intent("").Payload
		k.note(c)
		k.checkStored(&c.Record)
	}
	return job
}

// checkJobs compares the newest jobs with those that the verbs have returned.
func (k *kit) checkJobs(limit int, want ...driver.Job) {
	k.Helper()
	got, err := k.again.Jobs(k.ctx(), limit)
	if d := diff(got, want); d != "" || err != nil {
		k.Errorf("Jobs: %v\n%s", err, d)
	}
}

// testJobs (D22): each page begins after the last one, in any process, until the job is finished
// or canceled.
func (k *kit) testJobs() {
	if job := k.workJob(0, 10); job.ID != "" {
		k.Errorf("without a job: %+v", job)
	}
	dead := k.dead(25)
	seenAt := k.open()[24].DeadAt.Add(time.Microsecond)
	request := driver.Job{Filter: driver.Filter{Until: seenAt, NewestFirst: true, IncludeResolved: true}, By: "ann", Note: "why", PerSecond: .01}
	k.eventually("a later time", func() bool { // the clock of a store may have milliseconds
		return k.must(enqueue(intent("clock"))).CreatedAt.After(seenAt)
	})
	younger := k.dead(1)[0]
	job := k.addJob(request)
	if job.ID == "" || job.CreatedAt.IsZero() || !job.FinishedAt.IsZero() || job.Filter.NewestFirst || job.Filter.IncludeResolved || job.By != "ann" {
		k.Errorf("a new job is %+v", job)
	}
	joined, err := k.again.AddJob(k.ctx(), request)
	if d := diff(joined, job); d != "" || err != nil {
		k.Errorf("an equal request does not join: %v\n%s", err, d)
	}
	request.Filter.Code = "code"
	other := k.addJob(request)
	k.failIf(other.ID == job.ID, "another filter joins")
	k.checkJobs(10, other, job)
	k.checkJobs(1, other)
	k.checkJobs(0)
	k.checkJobs(-1)

	gone, cancel := context.WithCancel(k.ctx())
	cancel()
	if _, _, err := k.store.WorkJob(gone, 10); !errors.Is(err, context.Canceled) || len(k.open()) != 26 {
		k.Errorf("a page that was given up: %v, and %d letters are open", err, len(k.open()))
	}
	k.must(event(driver.EventRedrive, dead[3].ID)) // by a person: it is not of the job any more
	for i, want := range []struct{ redriven, open int }{{10, 15}, {20, 5}, {24, 1}} {
		job = k.workJob(i, 10)
		if job.Redriven != want.redriven || job.Skipped != 0 || len(k.open()) != want.open || job.FinishedAt.IsZero() == (i == 2) {
			k.Errorf("page %d: %+v, and %d letters are open", i, job, len(k.open()))
		}
		k.checkJobs(10, other, job)
	}
	if open := k.open(); len(open) != 1 || open[0].ID != younger.ID {
		k.Errorf("open is %v, want the younger one", open)
	}
	var due []time.Duration
	for i := range dead {
		if i != 3 {
			due = append(due, k.look(dead[i].ID).NextAt.Sub(job.CreatedAt))
		}
	}
	slices.Sort(due)
	for i := range due {
		if d := due[i] - time.Duration(i)*100*time.Second; d < 0 || d > 50*time.Second {
			k.Errorf("the %d-th of one in 100 s is due after %v", i, due[i])
		}
	}

	k.dead(12)
	request.Filter = driver.Filter{}
	third := k.addJob(request)
	if got := k.workJob(0, 5); got.ID != other.ID || got.FinishedAt.IsZero() || got.Redriven != 0 {
		k.Errorf("the oldest open job is %+v", got)
	}
	if got := k.workJob(0, 5); got.ID != third.ID || got.Redriven != 5 {
		k.Errorf("the next job is %+v", got)
	}
	for _, row := range []struct {
		name string
		id   driver.JobID
		by   string
		want error
	}{
		{"by no person: invalid", third.ID, "", driver.ErrInvalid},
		{"no such job: not found", "1234", "bob", driver.ErrNotFound},
		{"no number: not found", "x", "bob", driver.ErrNotFound},
		{"in the middle: canceled", third.ID, "bob", nil},
		{"again: invalid state", third.ID, "bob", driver.ErrInvalidState},
		{"finished: invalid state", job.ID, "bob", driver.ErrInvalidState},
	} {
		if err := k.again.CancelJob(k.ctx(), row.id, row.by); !errors.Is(err, row.want) {
			k.Errorf("%s: %v", row.name, err)
		}
	}
	if got := k.workJob(0, 5); got.ID != "" || len(k.open()) != 8 {
		k.Errorf("after it was canceled: %+v, and %d letters are open", got, len(k.open()))
	}
	jobs, err := k.store.Jobs(k.ctx(), 1)
	if err != nil || len(jobs) != 1 || jobs[0].CanceledBy != "bob" || jobs[0].FinishedAt.IsZero() || jobs[0].Redriven != 5 {
		k.Errorf("a canceled job is %+v, %v", jobs, err)
	}
}

// testJobsInvalid adds invalid jobs.
func (k *kit) testJobsInvalid() {
	for name, job := range map[string]driver.Job{
		"no rate":       {},
		"no number":     {PerSecond: math.NaN()},
		"infinite":      {PerSecond: math.Inf(-1)},
		"no UTF-8":      {PerSecond: 1, Filter: driver.Filter{Scope: "\xff"}},
		"no such state": {PerSecond: 1, Filter: driver.Filter{States: []driver.State{99}}},
		"a year":        {PerSecond: 1, Filter: driver.Filter{From: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		if _, err := k.store.AddJob(k.ctx(), job); !errors.Is(err, driver.ErrInvalid) {
			k.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	k.checkJobs(10)
}

// raceJobs works jobs in several processes while a person redrives: each letter is redriven
// once.
func (k *kit) raceJobs() {
	dead := k.dead(60)
	for _, f := range []driver.Filter{{}, {Code: "code"}, {Reason: driver.ReasonDeclined}} {
		k.addJob(driver.Job{Filter: f, PerSecond: -1})
	}
	ctx := k.ctx()
	var redriven atomic.Int64
	together(6, func(i int) {
		if i < 2 {
			for j := i; j < len(dead); j += 5 {
				e := dead[j].Seen().Event(driver.EventRedrive)
				results, err := k.handle(i).Apply(ctx, []driver.Event{e})
				if err != nil {
					k.Errorf("Apply: %v", err)
				} else if results[0].Err == nil {
					redriven.Add(1)
				}
			}
			return
		}
		for busy := 0; busy < 3; {
			job, changes, err := k.handle(i).WorkJob(ctx, 7)
			if err != nil {
				k.Errorf("WorkJob: %v", err)
				return
			}
			if job.ID == "" { // none, or others have them
				busy++
			}
			redriven.Add(int64(len(changes)))
		}
	})
	for job := (driver.Job{ID: "any"}); job.ID != ""; { // what was left
		job = k.workJob(0, 7)
	}
	counted := 0
	jobs, err := k.store.Jobs(ctx, 10)
	if err != nil {
		k.Fatal(err)
	}
	for i := range jobs {
		counted += jobs[i].Redriven
	}
	if open := k.open(); len(open) != 0 || counted > len(dead) {
		k.Errorf("%d letters are open, and the jobs have redriven %d of %d", len(open), counted, len(dead))
	}
	for i := range dead {
		if r := k.look(dead[i].ID); r.State != driver.StateWaiting {
			k.Errorf("it is %v, want waiting", r.State)
		}
	}
}
