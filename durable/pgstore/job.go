package pgstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

const (
	jobs = ` {{schema}}durable_job `

	// lockJobs prevents concurrent inserts, so that two equal requests get the same job.
	lockJobs   = `LOCK TABLE` + jobs + `IN SHARE ROW EXCLUSIVE MODE`
	sameJob    = `SELECT id, job FROM` + jobs + `WHERE open AND filter = $1::text`
	addJob     = `INSERT INTO` + jobs + `(open, filter, job) VALUES (true, $1::text, $2::text) RETURNING id, job`
	newestJobs = `SELECT id, job FROM` + jobs + `ORDER BY id DESC LIMIT $1::bigint`
	findJob    = `SELECT EXISTS (SELECT FROM` + jobs + `WHERE open)`
	lockJob    = `SELECT id, job FROM` + jobs + `WHERE id = $1::bigint FOR UPDATE`
	takeJob    = `SELECT id, job FROM` + jobs + `WHERE open ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`
	updateJob  = `UPDATE` + jobs + `SET open = $2::boolean, job = $3::text WHERE id = $1::bigint`
)

func scanJob(from pgkit.Row) (driver.Job, error) {
	var (
		id   int64
		text string
	)
	if err := from.Scan(&id, &text); err != nil {
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
	err := s.transact(ctx, func(t *pgkit.Transaction) error {
		var now time.Time
		found = nil // anew for each try
		if err := t.Send(ctx, &pgkit.Statement{Text: s.is.lockJobs}, clockInto(&now)); err != nil {
			return err
		}
		opened, filter, err := job.Opened(now)
		if err != nil {
			return err
		}
		if err := t.Send(ctx, listing(&found, s.is.sameJob, []any{filter}, scanJob)); err != nil {
			return err
		}
		if len(found) > 0 {
			return t.Commit(ctx)
		}
		return t.Commit(ctx, listing(&found, s.is.addJob, []any{filter, opened.Text()}, scanJob))
	})
	if err != nil {
		return driver.Job{}, err
	}
	return found[0], nil
}

// Jobs implements durable.Store.
func (s *Store) Jobs(ctx context.Context, limit int) ([]driver.Job, error) {
	return list(ctx, s, s.is.newestJobs, []any{int64(max(limit, 0))}, scanJob)
}

// CancelJob implements durable.Store.
func (s *Store) CancelJob(ctx context.Context, id driver.JobID, by string) error {
	n, err := id.Number()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	return s.transact(ctx, func(t *pgkit.Transaction) error {
		var (
			found []driver.Job
			now   time.Time
		)
		if err := t.Send(ctx, listing(&found, s.is.lockJob, []any{n}, scanJob), clockInto(&now)); err != nil {
			return err
		}
		if len(found) == 0 {
			return driver.ErrNotFound
		}
		if err := found[0].Cancel(by, now); err != nil {
			return err
		}
		return t.Commit(ctx, s.is.advance(&found[0]))
	})
}

// WorkJob implements durable.Store. It reads first, without a lock: usually there is no job.
func (s *Store) WorkJob(ctx context.Context, limit int) (job driver.Job, changes []driver.Change, err error) {
	open := false
	err = s.send(ctx, &pgkit.Statement{Text: s.is.findJob, Scan: func(from pgkit.Row) error { return from.Scan(&open) }})
	if err != nil || !open || limit <= 0 {
		return driver.Job{}, nil, err
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		job, changes, err = s.workJob(ctx, t, limit)
		return err
	})
	if err != nil {
		return driver.Job{}, nil, err
	}
	if slices.ContainsFunc(changes, func(c driver.Change) bool { return !c.Record.NextAt.After(c.Record.UpdatedAt) }) {
		s.notify(ctx)
	}
	return job, changes, nil
}

func (s *Store) workJob(ctx context.Context, t *pgkit.Transaction, limit int) (job driver.Job, changes []driver.Change, err error) {
	var (
		found []driver.Job
		page  []driver.DeadLetter
		now   time.Time
	)
	if err := t.Send(ctx, listing(&found, s.is.takeJob, nil, scanJob), clockInto(&now)); err != nil {
		return job, nil, err
	}
	if len(found) == 0 {
		return job, nil, t.Commit(ctx)
	}
	job = found[0]
	tail, args := s.is.dialect().DeadLetters(&job.Filter, job.After, limit)
	if err := t.Send(ctx, listing(&page, s.is.letters+tail, args, scanLetter)); err != nil {
		return job, nil, err
	}
	var results []driver.Result
	if len(page) > 0 {
		a := &application{is: s.is, events: job.Events(page, now)}
		a.collect()
		if results, err = a.run(ctx, joined{t}); err != nil {
			return job, nil, err
		}
	}
	changes = job.Advance(page, results, limit, now)
	err = t.Commit(ctx, s.is.advance(&job))
	return job, changes, err
}

// advance writes a job.
func (is *statements) advance(job *driver.Job) *pgkit.Statement {
	n, _ := job.ID.Number()
	return &pgkit.Statement{Text: is.updateJob, Args: []any{n, job.FinishedAt.IsZero(), job.Text()}}
}
