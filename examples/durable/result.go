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

// result is what became of the payments.
type result struct {
	scenario
	audit

	ordered, took time.Duration  // until the last was taken, and until nothing was left to do
	struck        map[string]int // how often each fault did
}

// verdict is nil if the promise was kept.
func (r *result) verdict() error {
	if r.kept(r.payments) {
		return nil
	}
	return errors.New("the promise was not kept")
}

func (r *result) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what string, n int) { fmt.Fprintf(table, "%s\t%d\t\n", what, n) }
	fmt.Fprintf(out, "\n%s, a bank that %s, %.1f s, of which %.1f s for the storm\n\n",
		r.Database, map[string]string{keys: "honours keys", asks: "can be asked"}[r.mode], r.took.Seconds(), r.ordered.Seconds())
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		row(name, r.struck[name])
	}
	row("orders", r.payments)
	row("charged exactly once", r.once)
	row("refused, and not charged", r.refused)
	row("given up, and never there", r.undone)
	row("doubled", r.doubled)
	row("lost", r.lost)
	row("unknown at the end", r.unknown)
	row("other than the shop knows", r.wrong)
	row("charged, but never ordered", r.strange)
	row("sends", r.sends)
	row("… of which nobody knew what became", r.doubts)
	row("questions", r.questions)
	row("keys after the first, for the bank had declined", r.keys)
	row("decisions of a person", r.decided+r.stale)
	row("… that came too late, and had no effect", r.stale)
	_ = table.Flush()
	fmt.Fprintf(out, "\n%s %s: %d orders, %d kills, %d stops, %d crashes, an outage of %v, %d decisions (%d stale): %d doubled, %d lost, %d unknown, %d wrong, in %.0f s\n",
		r.Database, r.mode, r.payments, r.struck["kill"], r.struck["stop"], r.struck["crash"], r.outage, r.decided+r.stale, r.stale,
		r.doubled, r.lost, r.unknown, r.wrong+r.strange, r.took.Seconds())
}
