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

// Worker is a river.Worker for jobs of intents. Each run of a job sends its intent once, if
// it is due, and snoozes until it is due again. A Worker is safe for concurrent use. Its
// fields must not change after it was added to a client.
type Worker struct {
	river.WorkerDefaults[Args]

	// Engine sends the intents. It must be set; without it each job fails. Its Concurrency
	// should be at least the MaxWorkers of River's queues: jobs above it are snoozed.
	Engine *durable.Engine
}

var _ river.Worker[Args] = (*Worker)(nil)

// Work implements river.Worker. The package comment lists the results of a job.
func (w *Worker) Work(ctx context.Context, job *river.Job[Args]) error {
	if w.Engine == nil {
		return fmt.Errorf("%w: Worker.Engine is nil", durable.ErrInvalid)
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
	// engineTimeout is the default of Engine.Timeout.
	engineTimeout = 5 * time.Minute

	// margin is the time for store operations in addition to the send.
	margin = time.Minute
)

// Timeout implements river.Worker. It is Engine.Timeout plus a minute, and none if
// Engine.Timeout is negative. River rescues a job only after its timeout, so
// Engine.Timeout must be positive.
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
