package durable

import "context"

// Jobs lists the newest jobs first, at most a hundred.
func (e *Engine) Jobs(ctx context.Context) ([]Job, error) {
	c, err := e.start()
	if err != nil {
		return nil, err
	}
	return c.Store.Jobs(ctx, 100)
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
