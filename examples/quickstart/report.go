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

// tally is what one client's load came to.
type tally struct {
	outcomes []outcome
	took     time.Duration

	// By the bank's ledger.
	once, twice, lost int
	bookings          int // in all
	// wrong counts the customers who hold no receipt for what was booked, or one
	// for something that was not.
	wrong int

	bank                 counts // its requests
	openings, askedAgain int64
}

// close takes what the bank has to say, when the last of its requests is done.
func (t *tally) close(ctx context.Context, b *bank, orders []order) error {
	b.Close()
	booked, err := b.ledger.all(ctx)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	t.audit(booked, orders)
	t.bank = b.count()
	return nil
}

// audit compares what the customers believe with what the bank has booked.
func (t *tally) audit(booked bookings, orders []order) {
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
		believed := t.outcomes[i]
		paid := believed.err == nil
		if paid != (len(charges) > 0) || paid && (believed.charge.order != o || !slices.Contains(charges, believed.charge)) {
			t.wrong++
		}
	}
}

// latency is the q-th part of the times that customers waited.
func (t *tally) latency(q float64) time.Duration {
	times := make([]time.Duration, len(t.outcomes))
	for i, o := range t.outcomes {
		times[i] = o.took
	}
	slices.Sort(times)
	return times[min(int(q*float64(len(times))), len(times)-1)].Round(time.Millisecond)
}

// comparison is the result of the program.
type comparison struct{ ours, theirs tally }

// verdict is nil if the Transport did what it promises.
func (c *comparison) verdict() error {
	t := &c.ours
	if t.once == len(t.outcomes) && t.twice == 0 && t.lost == 0 && t.wrong == 0 {
		return nil
	}
	for _, o := range t.outcomes {
		if o.err != nil {
			return fmt.Errorf("the Transport has failed: %d charged twice, %d lost, %d wrong answers, such as: %w", t.twice, t.lost, t.wrong, o.err)
		}
	}
	return fmt.Errorf("the Transport has failed: %d charged twice, %d lost, %d wrong answers", t.twice, t.lost, t.wrong)
}

// row is a line of the table: what of each client, and what there is to see in it.
type row struct {
	name  string
	value func(*tally) any
	see   string
}

// rows are the table, in groups.
func (c *comparison) rows() [][]row {
	bank := func(count func(counts) int) func(*tally) any {
		return func(t *tally) any { return count(t.bank) }
	}
	onlyOurs := func(count func(*tally) int64) func(*tally) any {
		return func(t *tally) any {
			if t != &c.ours {
				return "-"
			}
			return count(t)
		}
	}
	return [][]row{{
		{"charges asked for", func(t *tally) any { return len(t.outcomes) }, "one for each customer"},
		{"charged exactly once", func(t *tally) any { return t.once }, "must be all, by the bank's ledger"},
		{"charged twice, or more often", func(t *tally) any { return t.twice }, "must be 0: a retry without a key is a second charge"},
		{"lost: never charged", func(t *tally) any { return t.lost }, "must be 0: the loop gives up after three attempts"},
		{"told something else", func(t *tally) any { return t.wrong }, "must be 0: told that it failed, but charged, say"},
	}, {
		{"attempts, as the bank counts them", bank(func(n counts) int { return n.requests }), "what it took, for all of them"},
		{"  charged, but the answer lost", bank(func(n counts) int { return n.lost }), "the caller cannot know that it was charged"},
		{"  503, overloaded", bank(func(n counts) int { return n.overloaded }), "not charged: repeated after what Retry-After says"},
		{"  held for 0.4 s", bank(func(n counts) int { return n.held }), "slow is not failed: only the loop cuts it off, and asks anew"},
		{"  reset while the bank was gone", bank(func(n counts) int { return n.dark }), "the Transport comes back; the loop's customers are lost"},
		{"  429, quota exhausted", bank(func(n counts) int { return n.throttled }), "the Transport reads X-RateLimit-… and waits before"},
		{"  repeats known by their key", bank(func(n counts) int { return n.repeated }), "lost answers, given again; the loop sends no keys"},
		{"breaker openings", onlyOurs(func(t *tally) int64 { return t.openings }), "a bank that is gone is left alone for a moment"},
		{"asked again by the application", onlyOurs(func(t *tally) int64 { return t.askedAgain }), "after a refusal, under the same key: see resilient.go"},
	}, {
		{"p50 of a charge", func(t *tally) any { return t.latency(0.50) }, "the Transport's stand in line for the quota"},
		{"p99 of a charge", func(t *tally) any { return t.latency(0.99) }, "they wait until the bank is back, and the loop does not"},
		{"all of them", func(t *tally) any { return t.took.Round(10 * time.Millisecond) }, "the loop is done early with those that it has lost"},
	}}
}

func (c *comparison) print(w io.Writer) {
	const line = "%-35s %10v %10v   %s\n"
	fmt.Fprintf(w, line, "", "Transport", "for loop", "what to see")
	for _, group := range c.rows() {
		for _, r := range group {
			fmt.Fprintf(w, line, r.name, r.value(&c.ours), r.value(&c.theirs), r.see)
		}
		fmt.Fprintln(w)
	}
}

// progress tells how far both loads are: a line that is rewritten on a terminal,
// and now and then a line elsewhere.
type progress struct {
	ours, theirs atomic.Int64

	out   io.Writer
	all   int
	began time.Time
	live  bool
	quit  chan struct{}
	ended sync.WaitGroup
}

func watchProgress(out io.Writer, all int) *progress {
	p := &progress{out: out, all: all, began: time.Now(), live: isTerminal(out), quit: make(chan struct{})}
	fmt.Fprintf(out, "%d charges each, through a bad bank that is gone for a while after a third of them.\n", all)
	every := time.Second
	if p.live {
		every = 100 * time.Millisecond
	}
	p.ended.Go(func() {
		ticker := time.NewTicker(every)
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
	fmt.Fprintf(p.out, "%4.1f s   Transport: %4d of %d done   for loop: %4d of %d done%s", time.Since(p.began).Seconds(), p.ours.Load(), p.all, p.theirs.Load(), p.all, end)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
