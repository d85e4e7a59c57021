package riverwork

import (
	"context"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Args are a job's: the name of an intent, and no more. Args(intent.ID) makes them, for
// client.Insert after a redrive, say.
type Args struct {
	Scope     string `json:"scope"`
	Operation string `json:"operation"`
	Key       string `json:"key"`
}

var _ = Args(idempotency.ID{}) // the same fields

// Kind implements river.JobArgs. It is "durable_intent", and never changes.
func (Args) Kind() string { return "durable_intent" }

// InsertOpts implements river.JobArgsWithInsertOpts: of one intent there is one job that
// is not over. One that is over stands in nobody's way, as the intent may be mended or
// redriven.
func (Args) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// InsertTx enqueues an intent and inserts its job, in one transaction of the caller's:
// when that commits both are there, and else neither ever was. outbox is that of the
// transaction: store.Within(tx), or store.WithSQLTx(tx) with a client of River's driver
// for database/sql. No job is inserted for an intent that is done, dead or cancelled
// already, nor where it has one.
//
// opts may be nil. Where opts.ScheduledAt is not set it is the intent's NotBefore. The
// errors are the outbox's, among them durable.ErrMismatch and durable.ErrInvalid, which
// leave the transaction as it was, and the client's.
func InsertTx[TTx any](
	ctx context.Context, client *river.Client[TTx], tx TTx, outbox durable.Outbox, in durable.Intent, opts *river.InsertOpts,
) (durable.Receipt, error) {
	if client == nil || outbox == nil {
		return durable.Receipt{}, fmt.Errorf("%w: InsertTx needs a client and an outbox", durable.ErrInvalid)
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
