package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

func scanJob(rows *sql.Rows) (driver.Job, error) {
	var (
		id   int64
		text string
	)
	if err := rows.Scan(&id, &text); err != nil {
		return driver.Job{}, err
	}
	return driver.JobOf(id, text)
}

// AddJob implements durable.Store.
func (s *Store) AddJob(ctx context.Context, job driver.Job) (driver.Job, error) {
	if _, _, err := job.Opened(time.Now()); err != nil {
		return driver.Job{}, err
	}
	var found []driver.Job
	err := s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		opened, filter, err := job.Opened(now)
		if err != nil {
			return err
		}
		if found, err = collect(ctx, t.statement(sameJob), []any{filter}, scanJob); err != nil || len(found) > 0 {
			return err
		}
		found, err = collect(ctx, t.statement(addJob), []any{filter, opened.Text()}, scanJob)
		return err
	})
	if err != nil {
		return driver.Job{}, err
	}
	return found[0], nil
}

// Jobs implements durable.Store.
func (s *Store) Jobs(ctx context.Context, limit int) (all []driver.Job, err error) {
	return list(ctx, s, newestJobs.text(), []any{max(limit, 0)}, scanJob)
}

// CancelJob implements durable.Store.
func (s *Store) CancelJob(ctx context.Context, id driver.JobID, by string) error {
	n, err := id.Number()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	return s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		found, err := collect(ctx, t.statement(oneJob), []any{n}, scanJob)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return driver.ErrNotFound
		}
		if err := found[0].Cancel(by, now); err != nil {
			return err
		}
		return t.advance(ctx, &found[0])
	})
}

// WorkJob implements durable.Store. It reads first, without a lock: usually there is no job.
func (s *Store) WorkJob(ctx context.Context, limit int) (job driver.Job, changes []driver.Change, err error) {
	open, err := s.exists(ctx, findJob)
	if err != nil || !open || limit <= 0 {
		return driver.Job{}, nil, err
	}
	err = s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		job, changes, err = t.workJob(ctx, now, limit)
		return err
	})
	if err != nil {
		return driver.Job{}, nil, err
	}
	return job, changes, nil
}

func (t *transaction) workJob(ctx context.Context, now time.Time, limit int) (job driver.Job, changes []driver.Change, err error) {
	found, err := collect(ctx, t.statement(takeJob), nil, scanJob)
	if err != nil || len(found) == 0 {
		return job, nil, err
	}
	job = found[0]
	text, args := lettersQuery(&job.Filter, job.After, limit)
	page, err := collect(ctx, sqlitekit.In(t.tx, text), args, scanLetter)
	if err != nil {
		return job, nil, err
	}
	events := job.Events(page, now)
	results := make([]driver.Result, len(events))
	for i := range events {
		if results[i], err = t.apply(ctx, &events[i], now); err != nil {
			return job, nil, err
		}
	}
	changes = job.Advance(page, results, limit, now)
	err = t.advance(ctx, &job)
	return job, changes, err
}

// advance writes a job.
func (t *transaction) advance(ctx context.Context, job *driver.Job) error {
	n, _ := job.ID.Number()
	return t.must(ctx, updateJob, n, job.FinishedAt.IsZero(), job.Text())
}
