package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
)

// load is what an app does during a run, besides its service.
type load interface {
	// begin is called before the first order. stop is called after the last one.
	begin(ctx context.Context) (stop func())

	// ask sends the order with number i.
	ask(ctx context.Context, i int)

	// settle is called after the faults. It returns when no outcome changes any more.
	settle(ctx context.Context) error

	// read is called after the end of all processes. It completes the outcomes and the
	// figures, and returns the ledger.
	read(ctx context.Context) ([]bank.Charge, error)
}

// run is a run and its result.
type run struct {
	scenario

	at       *stack
	ledger   *ledger
	client   *client
	outcomes []outcome
	audit    audit
	struck   map[string]int // strikes of each fault
	faulty   time.Duration  // the time with faults
	took     time.Duration
	figures  []figure

	mu      sync.Mutex
	longest time.Duration // time of an order
	wrongs  []error       // besides those of the audit
}

// figure is a line of the result.
type figure struct {
	name string
	n    int
}

// run sends the orders during the faults, waits until all outcomes are final, and audits the ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (_ *run, err error) {
	at, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	l, err := openLedger(ctx, s.app, at.Database, at.OwnDSN())
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &run{scenario: s, at: at, ledger: l, client: newClient("http://" + at.Front.Addr()), outcomes: make([]outcome, s.orders)}
	defer r.client.http.CloseIdleConnections()
	var work load
	if s.app == paymentsApp {
		work = newCharges(r)
	} else {
		work = newShopping(r)
	}
	err = r.with(ctx, work, out)
	return r, err
}

func (r *run) with(ctx context.Context, work load, out io.Writer) error {
	start := time.Now()
	stop := work.begin(ctx)
	storm := &chaos.Storm{At: &r.at.Stack, Workers: r.workers, Items: r.orders}
	err := storm.Run(ctx, out, work.ask)
	stop()
	r.struck, r.faulty = storm.Struck, time.Since(start)
	if err != nil {
		return err
	}
	if err := work.settle(ctx); err != nil {
		return err
	}
	r.took = time.Since(start)
	r.at.quiesce()
	found, err := work.read(ctx)
	r.audit = newAudit(&r.scenario, r.outcomes, found)
	return err
}

// send sends the order with number i until it has an outcome.
func (r *run) send(ctx context.Context, i int) outcome {
	start := time.Now()
	known := r.client.order(ctx, r.order(i), r.canceled(i))
	r.mu.Lock()
	r.longest = max(r.longest, time.Since(start))
	r.mu.Unlock()
	if known.err != nil {
		r.wrongf("order %d has no outcome: %w", i, known.err)
	}
	return known
}

// wrongf adds an error to the result.
func (r *run) wrongf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrongs = append(r.wrongs, fmt.Errorf(format, args...))
}

func (r *run) add(name string, n int) { r.figures = append(r.figures, figure{name, n}) }

// verdict returns an error unless each order was booked exactly once, declined or canceled, and nothing
// else was wrong.
func (r *run) verdict() error {
	if r.audit.passed(r.orders) && len(r.wrongs) == 0 {
		return nil
	}
	return errors.Join(append(r.wrongs, errors.New("not each order was booked exactly once and answered"))...)
}

func (r *run) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s, %.1f s, of which %.1f s with faults\n\n", r.name(), r.took.Seconds(), r.faulty.Seconds())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	var strikes []figure
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		strikes = append(strikes, figure{name, r.struck[name]})
	}
	for _, f := range slices.Concat(strikes, []figure{
		{"orders", r.orders},
		{"booked exactly once", r.audit.once},
		{"declined, and not booked", r.audit.declined},
		{"canceled, and not stored", r.audit.canceled},
		{"doubled", r.audit.doubled},
		{"lost", r.audit.lost},
		{"unknown at the end", r.audit.unknown},
		{"different from the ledger", r.audit.wrong},
		{"booked without an order", r.audit.strange},
		{"longest time of an order, in ms", int(r.longest.Milliseconds())},
		{"attempts of the clients", int(r.client.attempts.Load())},
		{"calls after a failed call", int(r.client.repeated.Load())},
	}, r.figures) {
		fmt.Fprintf(table, "%s\t%d\t\n", f.name, f.n)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\n%s: %d orders, %d kills, %d stops: %d doubled, %d lost, %d unknown, %d wrong, in %.0f s\n",
		r.name(), r.orders, r.struck["kill"], r.struck["stop"],
		r.audit.doubled, r.audit.lost, r.audit.unknown, r.audit.wrong+r.audit.strange+len(r.wrongs), r.took.Seconds())
}
