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

// result is what became of the charges.
type result struct {
	scenario
	client   *client
	records  idempotency.Store
	outcomes []outcome // what the clients know
	took     time.Duration
	struck   map[string]int // how often each fault did

	mu        sync.Mutex    // while the clients ask
	longest   time.Duration // that a client has waited
	impatient int           // clients that have waited for as long as they would, for nothing

	audit
	booked, none int // records that became Unknown, and what the bank said of them
	unknown      int // those that still are
}

func newResult(s scenario, c *client, records idempotency.Store) *result {
	return &result{scenario: s, client: c, records: records, outcomes: make([]outcome, s.charges)}
}

// verdict is nil if the promise was kept.
func (r *result) verdict() error {
	if r.kept(r.charges) && r.impatient+r.unknown == 0 {
		return nil
	}
	errs := []error{errors.New("the promise was not kept")}
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
	row("refused, and not in the ledger", int64(r.refused))
	row("doubled", int64(r.doubled))
	row("lost", int64(r.lost))
	row("booked, but never ordered", int64(r.strange))
	row("clients with the wrong receipt", int64(r.wrong))
	row("clients without an answer", int64(r.unanswered))
	row("clients that lost patience", int64(r.impatient))
	row("became unknown", int64(r.booked+r.none+r.unknown))
	row("… and were found to be booked", int64(r.booked))
	row("… and not to be booked", int64(r.none))
	row("… and still are", int64(r.unknown))
	row("longest wait of a client, in ms", r.longest.Milliseconds())
	row("attempts", r.client.attempts.Load())
	row("replays of the first answer", r.client.replayed.Load())
	row("calls after a call that failed", r.client.askedAgain.Load())
	_ = table.Flush()
}
