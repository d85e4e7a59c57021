package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// result is the result of a run.
type result struct {
	scenario
	audit

	ordered, took time.Duration  // until the last order was taken, and until the end
	struck        map[string]int // strikes of each fault
}

// verdict returns an error unless each order was charged exactly once or declined.
func (r *result) verdict() error {
	if r.passed(r.payments) {
		return nil
	}
	return errors.New("not each order was charged exactly once or declined")
}

func (r *result) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int) { fmt.Fprintf(table, "%s\t%d\t\n", name, n) }
	fmt.Fprintf(out, "\n%s, bank %s, %.1f s, of which %.1f s with faults\n\n",
		r.Database, map[string]string{keys: "with idempotency keys", asks: "with queries"}[r.mode], r.took.Seconds(), r.ordered.Seconds())
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		row(name, r.struck[name])
	}
	row("orders", r.payments)
	row("charged exactly once", r.once)
	row("declined, and not charged", r.declined)
	row("canceled, and not stored", r.canceled)
	row("doubled", r.doubled)
	row("lost", r.lost)
	row("unknown at the end", r.unknown)
	row("different in shop and bank", r.wrong)
	row("charged without an order", r.strange)
	row("sends", r.sends)
	row("… with unknown result", r.unknownSends)
	row("status queries", r.queries)
	row("further keys after declines", r.keys)
	row("decisions of the operator", r.decided+r.stale)
	row("… too late, without effect", r.stale)
	_ = table.Flush()
	fmt.Fprintf(out, "\n%s %s: %d orders, %d kills, %d stops, %d crashes, outage of %v, %d decisions (%d stale): %d doubled, %d lost, %d unknown, %d wrong, in %.0f s\n",
		r.Database, r.mode, r.payments, r.struck["kill"], r.struck["stop"], r.struck["crash"], r.outage, r.decided+r.stale, r.stale,
		r.doubled, r.lost, r.unknown, r.wrong+r.strange, r.took.Seconds())
}
