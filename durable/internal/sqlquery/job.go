package sqlquery

import (
	"cmp"
	"context"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func scanJob(from Row, job *driver.Job) error {
	var (
		id   int64
		text string
	)
	err := from.Scan(&id, &text)
	if err == nil {
		*job, err = driver.JobOf(id, text)
	}
	return err
}

// AddJob implements driver.Store.
func (v Verbs) AddJob(ctx context.Context, job driver.Job) (driver.Job, error) {
	var stored []driver.Job
	err := v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		now, err := t.Now(ctx)
		if err != nil {
			return err
		}
		opened, filter, err := job.Opened(now)
		if err != nil {
			return err
		}
		stored, err = rowsOf(ctx, t, addJob, []any{string(idempotency.NewFingerprint([]byte(filter))), opened.Text()}, scanJob)
		return err
	})
	if err != nil {
		return driver.Job{}, err
	}
	return stored[0], nil
}

// Jobs implements driver.Store.
func (v Verbs) Jobs(ctx context.Context, limit int) ([]driver.Job, error) {
	return collect(ctx, v.db.List, newestJobs, []any{int64(max(limit, 0))}, scanJob)
}

// CancelJob implements driver.Store.
func (v Verbs) CancelJob(ctx context.Context, id driver.JobID, by string) error {
	n, err := id.Number()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	return v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		found, err := rowsOf(ctx, t, lockJob, []any{n}, scanJob)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return driver.ErrNotFound
		}
		now, err := t.Now(ctx)
		if err == nil {
			err = found[0].Cancel(by, now)
		}
		if err != nil {
			return err
		}
		return advance(ctx, t, &found[0])
	})
}

// WorkJob implements driver.Store. It reads first, without a lock: usually there is no job.
func (v Verbs) WorkJob(ctx context.Context, limit int) (job driver.Job, changes []driver.Change, err error) {
	open, err := Exists(ctx, v.db, findJob)
	if err != nil || !open || limit <= 0 {
		return driver.Job{}, nil, err
	}
	err = v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		job, changes, err = workJob(ctx, t, limit)
		return err
	})
	if err != nil {
		return driver.Job{}, nil, err
	}
	return job, changes, nil
}

func workJob(ctx context.Context, t Transaction, limit int) (job driver.Job, changes []driver.Change, err error) {
	found, err := rowsOf(ctx, t, takeJob, nil, scanJob)
	if err != nil || len(found) == 0 {
		return job, nil, err
	}
	job = found[0]
	now, err := t.Now(ctx)
	if err != nil {
		return job, nil, err
	}
	text, args := DeadLetters(&job.Filter, job.After, limit)
	page, err := rowsOf(ctx, t, text, args, scanLetter)
	if err != nil {
		return job, nil, err
	}
	results, err := t.Apply(ctx, job.Events(page, now))
	if err != nil {
		return job, nil, err
	}
	changes = job.Advance(page, results, limit, now)
	err = advance(ctx, t, &job)
	return job, changes, err
}

// advance writes a job.
func advance(ctx context.Context, t Transaction, job *driver.Job) error {
	n, err := job.ID.Number()
	if err != nil {
		return err
	}
	return t.Query(ctx, updateJob, []any{n, job.FinishedAt.IsZero(), job.Text()}, nil)
}
