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

func (c *comparison) print(w io.Writer) {
	line := func(name string, value func(*tally) any) {
		fmt.Fprintf(w, "%-40s %12v %12v\n", name, value(&c.ours), value(&c.theirs))
	}
	count := func(name string, value func(counts) int) {
		line(name, func(t *tally) any { return value(t.bank) })
	}
	onlyOurs := func(t *tally, n int64) any {
		if t == &c.ours {
			return n
		}
		return "-"
	}
	fmt.Fprintf(w, "%-40s %12s %12s\n", "", "Transport", "a for loop")
	line("charges asked for", func(t *tally) any { return len(t.outcomes) })
	line("charged exactly once", func(t *tally) any { return t.once })
	line("charged twice, or more often", func(t *tally) any { return t.twice })
	line("lost: never charged", func(t *tally) any { return t.lost })
	line("customers told something else", func(t *tally) any { return t.wrong })
	fmt.Fprintln(w)
	count("attempts, as the bank counts them", func(n counts) int { return n.requests })
	count("  charged, but the answer lost", func(n counts) int { return n.lost })
	count("  503, overloaded", func(n counts) int { return n.overloaded })
	count("  held for longer than anybody waits", func(n counts) int { return n.held })
	count("  reset while the bank was gone", func(n counts) int { return n.dark })
	count("  429, quota exhausted", func(n counts) int { return n.throttled })
	count("  repeats recognised by their key", func(n counts) int { return n.repeated })
	line("breaker openings", func(t *tally) any { return onlyOurs(t, t.openings) })
	line("asked again by the application", func(t *tally) any { return onlyOurs(t, t.askedAgain) })
	fmt.Fprintln(w)
	line("p50 of a charge", func(t *tally) any { return t.latency(0.50) })
	line("p99 of a charge", func(t *tally) any { return t.latency(0.99) })
	line("all of them", func(t *tally) any { return t.took.Round(10 * time.Millisecond) })
	fmt.Fprintln(w, "\nThe Transport's customers stand in line while the quota is used up or the bank is gone;")
	fmt.Fprintln(w, "the loop's are sent away with a 429, or give up.")
}

// progress tells how far both loads are: a line that is rewritten on a terminal,
// and now and then a line elsewhere.
type progress struct {
	ours, theirs atomic.Int64

	out   io.Writer
	all   int
	live  bool
	quit  chan struct{}
	ended sync.WaitGroup
}

func watchProgress(out io.Writer, all int) *progress {
	p := &progress{out: out, all: all, live: isTerminal(out), quit: make(chan struct{})}
	every := 2 * time.Second
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
	fmt.Fprintf(p.out, "Transport: %4d of %d charges    for loop: %4d of %d%s", p.ours.Load(), p.all, p.theirs.Load(), p.all, end)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
