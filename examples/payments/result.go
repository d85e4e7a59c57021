package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// result is what became of the charges: what the clients hold, and what the
// ledger has.
type result struct {
	scenario
	client   *client
	receipts []charge
	failures []error
	took     time.Duration

	once, doubled, lost, wrong, unanswered, strange int
	died                                            int // executions that were killed, and made again
}

// audit compares. The ledger is the truth.
func (r *result) audit(booked []charge) {
	byReference := map[string][]charge{}
	for _, c := range booked {
		byReference[c.Reference] = append(byReference[c.Reference], c)
	}
	for i := range r.charges {
		want := r.order(i)
		found := byReference[want.Reference]
		delete(byReference, want.Reference)
		switch {
		case len(found) == 0:
			r.lost++
		case len(found) > 1:
			r.doubled++
		default:
			r.once++
		}
		switch {
		case r.failures[i] != nil:
			r.unanswered++
		case len(found) != 1 || r.receipts[i] != found[0] || found[0].order != want:
			r.wrong++
		}
	}
	r.strange = len(byReference)
}

// countTakeovers asks the records how often an execution died in the middle.
func (r *result) countTakeovers(ctx context.Context, records idempotency.Store) error {
	for i := range r.charges {
		id := idempotency.ID{Scope: accountOfClient, Operation: chargeOperation, Key: r.order(i).Reference}
		record, err := records.Load(ctx, id)
		if err != nil {
			return fmt.Errorf("the record of charge %d: %w", i, err)
		}
		r.died += int(record.Generation) - 1
	}
	return nil
}

// verdict is nil if the promise was kept.
func (r *result) verdict() error {
	if r.once == r.charges && r.doubled+r.lost+r.wrong+r.unanswered+r.strange == 0 {
		return nil
	}
	return errors.Join(append([]error{errors.New("the promise was not kept")}, r.failures...)...)
}

func (r *result) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what string, n int64) { fmt.Fprintf(table, "%s\t%d\t\n", what, n) }
	fmt.Fprintf(out, "\n%s, %d kills, %.1f s\n\n", r.database, r.kills, r.took.Seconds())
	row("charges", int64(r.charges))
	row("in the ledger exactly once", int64(r.once))
	row("doubled", int64(r.doubled))
	row("lost", int64(r.lost))
	row("booked, but never ordered", int64(r.strange))
	row("clients with the wrong receipt", int64(r.wrong))
	row("clients without an answer", int64(r.unanswered))
	row("executions that died, and were made again", int64(r.died))
	row("attempts", r.client.attempts.Load())
	row("replays of the first answer", r.client.replayed.Load())
	row("calls after a call that failed", r.client.askedAgain.Load())
	_ = table.Flush()
}
