package sqlquery

import (
	"cmp"
	"context"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func scanJob(from Row, job *durable.Job) error {
	var (
		id   int64
		text string
	)
	err := from.Scan(&id, &text)
	if err == nil {
		*job, err = durable.JobOf(id, text)
	}
	return err
}

// AddJob implements durable.Store.
func (v Verbs) AddJob(ctx context.Context, job durable.Job) (durable.Job, error) {
	var stored []durable.Job
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
		return durable.Job{}, err
	}
	return stored[0], nil
}

// Jobs implements durable.Store.
func (v Verbs) Jobs(ctx context.Context, limit int) ([]durable.Job, error) {
	return collect(ctx, v.db.List, newestJobs, []any{int64(max(limit, 0))}, scanJob)
}

// CancelJob implements durable.Store.
func (v Verbs) CancelJob(ctx context.Context, id durable.JobID, by string) error {
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
			return durable.ErrNotFound
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

// WorkJob implements durable.Store. It reads first, without a lock: usually there is no job.
func (v Verbs) WorkJob(ctx context.Context, limit int) (job durable.Job, changes []durable.Change, err error) {
	open, err := Exists(ctx, v.db, findJob)
	if err != nil || !open || limit <= 0 {
		return durable.Job{}, nil, err
	}
	err = v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		job, changes, err = workJob(ctx, t, limit)
		return err
	})
	if err != nil {
		return durable.Job{}, nil, err
	}
	return job, changes, nil
}

func workJob(ctx context.Context, t Transaction, limit int) (job durable.Job, changes []durable.Change, err error) {
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
func advance(ctx context.Context, t Transaction, job *durable.Job) error {
	n, err := job.ID.Number()
	if err != nil {
		return err
	}
	return t.Query(ctx, updateJob, []any{n, job.FinishedAt.IsZero(), job.Text()}, nil)
}
