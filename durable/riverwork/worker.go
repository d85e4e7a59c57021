package riverwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Worker is a river.Worker whose jobs are intents: each run of a job sends its intent
// once, if it is due, and snoozes until it is due again. Its fields are frozen when it is
// added to a client; it is safe for concurrent use.
type Worker struct {
	river.WorkerDefaults[Args]

	// Engine sends. It must be set; without it each job fails. Its Concurrency should be
	// no less than the MaxWorkers of River's queues: what goes beyond is snoozed.
	Engine *durable.Engine
}

var _ river.Worker[Args] = (*Worker)(nil)

// Work implements river.Worker. What becomes of the job is said in the package comment.
func (w *Worker) Work(ctx context.Context, job *river.Job[Args]) error {
	if w.Engine == nil {
		return fmt.Errorf("%w: the Worker has no Engine", durable.ErrInvalid)
	}
	id := idempotency.ID(job.Args)
	if err := id.Validate(); err != nil {
		return river.JobCancel(fmt.Errorf("%w: %w", durable.ErrInvalid, err))
	}
	next, err := w.Engine.WorkOne(ctx, id)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return river.JobCancel(err)
	case err != nil:
		return err
	case next.IsZero():
		return nil
	default:
		return river.JobSnooze(max(time.Until(next), 0))
	}
}

const (
	// engineTimeout is what Engine.Timeout is by default.
	engineTimeout = 5 * time.Minute

	// margin is for the store, beside the send.
	margin = time.Minute
)

// Timeout implements river.Worker: a minute more than the Engine's, and none where that
// has none. River rescues no job before it is over, and no job ever that has none: so
// leave Engine.Timeout positive.
func (w *Worker) Timeout(*river.Job[Args]) time.Duration {
	timeout := engineTimeout
	if w.Engine != nil {
		timeout = cmp.Or(w.Engine.Timeout, engineTimeout)
	}
	if timeout < 0 {
		return -1
	}
	return timeout + margin
}
