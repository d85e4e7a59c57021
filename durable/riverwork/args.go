package riverwork

import (
	"context"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

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
