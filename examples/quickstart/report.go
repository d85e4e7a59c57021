package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clientResult is the result of one client.
type clientResult struct {
	outcomes []outcome
	took     time.Duration

	// Numbers of customers, from the bank's ledger.
	once, twice, lost int
	// wrong is the number of customers with a wrong receipt, or with an error after a charge.
	wrong    int
	bookings int // the number of charges

	bank                  counts
	openings, calledAgain int64
}

// close closes the bank and audits its ledger.
func (t *clientResult) close(ctx context.Context, b *bank, orders []order) error {
	b.Close()
	booked, err := b.ledger.all(ctx)
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	t.audit(booked, orders)
	t.bank = b.count()
	return nil
}

// audit compares the outcomes that the client reported with the bookings.
func (t *clientResult) audit(booked bookings, orders []order) {
	t.bookings = booked.total()
	for i, o := range orders {
		charges := booked[o.Reference]
		switch len(charges) {
		case 0:
			t.lost++
		case 1:
			t.once++
		default:
			t.twice++
		}
		reported := t.outcomes[i]
		paid := reported.err == nil
		if paid != (len(charges) > 0) || paid && (reported.charge.order != o || !slices.Contains(charges, reported.charge)) {
			t.wrong++
		}
	}
}

// latency returns a quantile of the times of all charges.
func (t *clientResult) latency(q float64) time.Duration {
	times := make([]time.Duration, len(t.outcomes))
	for i, o := range t.outcomes {
		times[i] = o.took
	}
	slices.Sort(times)
	return times[min(int(q*float64(len(times))), len(times)-1)].Round(time.Millisecond)
}

// comparison is the result of the program.
type comparison struct{ ours, theirs clientResult }

// verdict returns an error unless each customer of the Transport was charged once.
func (c *comparison) verdict() error {
	t := &c.ours
	if t.once == len(t.outcomes) && t.twice == 0 && t.lost == 0 && t.wrong == 0 {
		return nil
	}
	for _, o := range t.outcomes {
		if o.err != nil {
			return fmt.Errorf("the Transport failed: %d charged twice, %d never charged, %d wrong results, first error: %w", t.twice, t.lost, t.wrong, o.err)
		}
	}
	return fmt.Errorf("the Transport failed: %d charged twice, %d never charged, %d wrong results", t.twice, t.lost, t.wrong)
}

// row is a row of the table: a value of each client, and its meaning.
type row struct {
	name    string
	value   func(*clientResult) any
	meaning string
}

// rows returns the rows of the table in groups.
func (c *comparison) rows() [][]row {
	bank := func(count func(counts) int) func(*clientResult) any {
		return func(t *clientResult) any { return count(t.bank) }
	}
	onlyOurs := func(count func(*clientResult) int64) func(*clientResult) any {
		return func(t *clientResult) any {
			if t != &c.ours {
				return "-"
			}
			return count(t)
		}
	}
	return [][]row{{
		{"customers", func(t *clientResult) any { return len(t.outcomes) }, "one charge for each"},
		{"charged exactly once", func(t *clientResult) any { return t.once }, "must be all, as the bank's ledger shows"},
		{"charged more than once", func(t *clientResult) any { return t.twice }, "must be 0; a retry without a key is a second charge"},
		{"never charged", func(t *clientResult) any { return t.lost }, "must be 0; the loop ends after three attempts"},
		{"wrong result", func(t *clientResult) any { return t.wrong }, "must be 0; for example an error, but charged"},
	}, {
		{"requests to the bank", bank(func(n counts) int { return n.requests }), "all attempts"},
		{"  response lost after the charge", bank(func(n counts) int { return n.lost }), "the client cannot know that it was charged"},
		{"  503, overloaded", bank(func(n counts) int { return n.overloaded }), "not charged; retried after Retry-After"},
		{"  held for 0.4 s", bank(func(n counts) int { return n.held }), "only the loop has a timeout, and sends it again"},
		{"  connection reset in the outage", bank(func(n counts) int { return n.reset }), "the Transport retries later; the loop ends"},
		{"  429, quota exhausted", bank(func(n counts) int { return n.throttled }), "the Transport reads X-RateLimit-… and waits first"},
		{"  retries with a known key", bank(func(n counts) int { return n.repeated }), "the bank replays the response; the loop has no keys"},
		{"circuit breaker opened", onlyOurs(func(t *clientResult) int64 { return t.openings }), "no requests to a bank in an outage"},
		{"calls repeated by the application", onlyOurs(func(t *clientResult) int64 { return t.calledAgain }), "with the same key: see resilient.go"},
	}, {
		{"latency of a charge, p50", func(t *clientResult) any { return t.latency(0.50) }, "the Transport waits for the quota"},
		{"latency of a charge, p99", func(t *clientResult) any { return t.latency(0.99) }, "the Transport waits until the outage ends"},
		{"total time", func(t *clientResult) any { return t.took.Round(10 * time.Millisecond) }, "the loop ends early, because it drops charges"},
	}}
}

func (c *comparison) print(w io.Writer) {
	const line = "%-35s %10v %10v   %s\n"
	fmt.Fprintf(w, line, "", "Transport", "for loop", "meaning")
	for _, group := range c.rows() {
		for _, r := range group {
			fmt.Fprintf(w, line, r.name, r.value(&c.ours), r.value(&c.theirs), r.meaning)
		}
		fmt.Fprintln(w)
	}
}

// progress prints the number of finished charges: on a terminal one line that is rewritten,
// otherwise one line per second.
type progress struct {
	ours, theirs atomic.Int64

	out   io.Writer
	all   int
	start time.Time
	live  bool
	quit  chan struct{}
	ended sync.WaitGroup
}

func watchProgress(out io.Writer, all int) *progress {
	p := &progress{out: out, all: all, start: time.Now(), live: isTerminal(out), quit: make(chan struct{})}
	interval := time.Second
	if p.live {
		interval = 100 * time.Millisecond
	}
	p.ended.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.print()
			case <-p.quit:
				return
			}
		}
	})
	return p
}

func (p *progress) stop() {
	close(p.quit)
	p.ended.Wait()
	p.print()
	fmt.Fprintln(p.out)
}

func (p *progress) print() {
	end := "\n"
	if p.live {
		end = "\r"
	}
	fmt.Fprintf(p.out, "%4.1f s   Transport: %4d of %d done   for loop: %4d of %d done%s", time.Since(p.start).Seconds(), p.ours.Load(), p.all, p.theirs.Load(), p.all, end)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
