package durable

import (
	"context"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// Jobs lists the newest jobs first, at most a hundred.
func (e *Engine) Jobs(ctx context.Context) ([]Job, error) {
	return ask(e, func(s Store) ([]Job, error) { return s.Jobs(ctx, 100) })
}

// CancelJob ends a job that is not finished. What it has redriven stays so. ErrNotFound:
// there is no such job. ErrInvalidState: it has ended. ErrInvalid: by is empty.
func (e *Engine) CancelJob(ctx context.Context, id JobID, by string) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	return c.Store.CancelJob(ctx, id, by)
}

// jobPage is the number of dead letters that are redriven in one commit, between two claims.
const jobPage = 200

// workJob works a page of a job, and reports whether there may be more.
func (c *core) workJob(ctx context.Context) bool {
	var changes []driver.Change
	job, err := bounded(ctx, c, func(ctx context.Context) (job Job, err error) {
		job, changes, err = c.Store.WorkJob(ctx, jobPage)
		return job, err
	})
	c.report(ctx, changes, err)
	return err == nil && job.ID != ""
}
