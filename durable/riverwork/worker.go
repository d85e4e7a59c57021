package riverwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

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

// Args are the arguments of a job: the ID of an intent. Args(intent.ID) makes them, for
// example for client.Insert after a redrive.
type Args struct {
	Scope     string `json:"scope"`
	Operation string `json:"operation"`
	Key       string `json:"key"`
}

var _ = Args(idempotency.ID{}) // the same fields

// Kind implements river.JobArgs. It is "durable_intent", and never changes.
func (Args) Kind() string { return "durable_intent" }

// InsertOpts implements river.JobArgsWithInsertOpts. An intent has at most one job that is
// not over. A job that is over does not count, because the intent may be revised or redriven.
func (Args) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// InsertTx enqueues an intent and inserts its job in a transaction of the caller. Both take
// effect with its commit. outbox is that of the transaction: store.WithTx(tx), or
// store.WithSQLTx(tx) with a client of River's driver for database/sql. InsertTx inserts no
// job for an intent that is done, dead or cancelled, or that has a job.
//
// opts may be nil. opts.ScheduledAt is the intent's NotBefore by default. The errors are
// those of the outbox and of the client. durable.ErrMismatch and durable.ErrInvalid leave
// the transaction unchanged.
func InsertTx[TTx any](
	ctx context.Context, client *river.Client[TTx], tx TTx, outbox durable.Outbox, in durable.Intent, opts *river.InsertOpts,
) (durable.Receipt, error) {
	if client == nil || outbox == nil {
		return durable.Receipt{}, fmt.Errorf("%w: InsertTx: client or outbox is nil", durable.ErrInvalid)
	}
	receipt, err := outbox.Enqueue(ctx, in)
	if err != nil || !receipt.State.Claimable() && !receipt.State.Held() {
		return receipt, err
	}
	var with river.InsertOpts
	if opts != nil {
		with = *opts
	}
	if with.ScheduledAt.IsZero() {
		with.ScheduledAt = in.NotBefore
	}
	if _, err := client.InsertTx(ctx, tx, Args(in.ID), &with); err != nil {
		return durable.Receipt{}, err
	}
	return receipt, nil
}
