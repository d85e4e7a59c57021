package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// result is the result of a run.
type result struct {
	scenario
	client   *client
	records  idempotency.Store
	outcomes []outcome // of the clients
	took     time.Duration
	struck   map[string]int // strikes of each fault
	readOnly readOnlyCheck

	mu       sync.Mutex
	longest  time.Duration // wait of a client
	timedOut int           // clients without an outcome after chargeTimeout

	audit
	booked, none int // records that were Unknown: booked by the bank, and not booked
	unknown      int // records that are Unknown at the end
}

func newResult(s scenario, c *client, records idempotency.Store) *result {
	return &result{readOnly: readOnlyCheck{client: c, unanswered: map[string]bool{}}, scenario: s, client: c, records: records, outcomes: make([]outcome, s.charges)}
}

// verdict returns nil if each charge was made exactly once.
func (r *result) verdict() error {
	errs := r.readOnly.verdict(r.struck["readonly"])
	if r.passed(r.charges) && r.timedOut+r.unknown+len(errs) == 0 {
		return nil
	}
	errs = append(errs, errors.New("not each charge was made exactly once and answered"))
	for _, o := range r.outcomes {
		if o.err != nil {
			errs = append(errs, o.err)
		}
	}
	return errors.Join(errs...)
}

func (r *result) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what string, n int64) { fmt.Fprintf(table, "%s\t%d\t\n", what, n) }
	fmt.Fprintf(out, "\n%s, %s, %.1f s\n\n", r.Database, r.mode, r.took.Seconds())
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		row(name, int64(r.struck[name]))
	}
	row("charges", int64(r.charges))
	row("in the ledger exactly once", int64(r.once))
	row("declined, and not in the ledger", int64(r.declined))
	row("doubled", int64(r.doubled))
	row("lost", int64(r.lost))
	row("in the ledger without an order", int64(r.strange))
	row("clients with the wrong receipt", int64(r.wrong))
	row("clients without an outcome", int64(r.unanswered))
	row("clients that timed out", int64(r.timedOut))
	row("became unknown", int64(r.booked+r.none+r.unknown))
	row("… and the bank had booked them", int64(r.booked))
	row("… and the bank had not booked them", int64(r.none))
	row("… and are unknown at the end", int64(r.unknown))
	row("longest wait of a client, in ms", r.longest.Milliseconds())
	row("attempts", r.client.attempts.Load())
	row("stored responses", r.client.replayed.Load())
	row("calls after a failed call", r.client.repeated.Load())
	if r.struck["readonly"] > 0 {
		row("duplicates answered while read-only", int64(r.readOnly.replayed))
		row("new keys rejected while read-only", int64(r.readOnly.rejected))
		row("wrong responses while read-only", int64(len(r.readOnly.wrong)))
	}
	_ = table.Flush()
}
