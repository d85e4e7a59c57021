package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// demo is one order. The shop is killed during its charge.
type demo struct {
	out    io.Writer
	order  bank.Order
	dir    string
	ledger ledger
	bank   *bank.Bank
	shop   *process.Process
	once   sync.Once
	booked chan struct{} // closed after the booking
	dead   chan struct{} // closed when the shop is dead
}

// runDemo prints the steps. It returns an error if a step has another result.
func runDemo(ctx context.Context, o *options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "pay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dsn, stop, err := o.database(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	d := &demo{out: out, order: o.demoOrder(), dir: dir, booked: make(chan struct{}), dead: make(chan struct{})}
	if d.ledger, err = openLedger(ctx, o.Database, dsn); err != nil {
		return err
	}
	defer d.ledger.close()
	if d.bank, err = bank.Open(d.bankLedger()); err != nil {
		return err
	}
	d.bank.Keys = true
	socket := filepath.Join(dir, "bank")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, err := process.Serve(ctx, socket, d.holding(d.bank.Handler()))
	if err != nil {
		return errors.Join(err, d.bank.Close())
	}
	defer func() { cancel(); err = errors.Join(err, <-served, d.bank.Close()) }()
	d.shop = process.New(filepath.Join(dir, "shop"), o.log, shopCommand, "-db", o.Database, "-dsn", dsn, "-mode", keys,
		"-bank", socket, "-timeout", timeLimit.String())
	defer d.shop.Stop()
	return o.shown(ctx, d.ledger.store(), out, func() error { return d.run(ctx) })
}

func (d *demo) bankLedger() string { return filepath.Join(d.dir, "bank.jsonl") }

// holding lets the bank book, and delays its response until the shop is dead.
func (d *demo) holding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		d.once.Do(func() { close(d.booked) })
		select {
		case <-d.dead:
		case <-r.Context().Done():
		}
	})
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context) error {
	if err := d.shop.Start(ctx); err != nil {
		return err
	}
	c := &client{http: &http.Client{Transport: &http.Transport{DialContext: process.Dial(d.shop.Socket)}}, url: "http://shop"}
	defer c.http.CloseIdleConnections()

	changed := d.order
	changed.Reference += "-canceled"
	if err := c.order(ctx, changed, true); err != nil {
		return err
	}
	d.printf("A customer cancels %s during the transaction. The shop rolls back: there is no order and no intent.", changed.Reference)
	if _, err := d.ledger.store().Find(ctx, idOf(changed)); !errors.Is(err, durable.ErrNotFound) {
		return fmt.Errorf("intent after the rollback: %w", err)
	}
	if err := c.order(ctx, d.order, false); err != nil {
		return err
	}
	d.printf("Another customer orders %s, %s. The shop writes the order and the intent to charge it in one transaction.", d.order.Reference, euros(d.order.Amount))
	if err := d.crash(ctx); err != nil {
		return err
	}
	if err := d.recover(ctx); err != nil {
		return err
	}
	return d.printJournal(ctx)
}

// crash kills the shop while it charges.
func (d *demo) crash(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(timeLimit):
		return errors.New("the bank got no request")
	case <-d.booked:
	}
	if err := d.freeze(ctx); err != nil {
		return err
	}
	d.shop.Stop()
	close(d.dead)
	d.printf("The shop sends the charge. The bank books it. Before the response arrives, the shop gets kill -9.")
	return d.look(ctx, durable.StateSending)
}

// freeze suspends the shop during the charge. On a slow machine the lease may have expired, and the
// shop is about to send the charge again. Then freeze waits for that.
func (d *demo) freeze(ctx context.Context) error {
	for {
		_ = d.shop.Do(process.Freeze) // not supported on all systems
		record, err := d.ledger.store().Find(ctx, idOf(d.order))
		if err != nil || record.State == durable.StateSending {
			return err
		}
		_ = d.shop.Do(process.Thaw)
		if err := sleep.Context(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// look prints the state of the intent.
func (d *demo) look(ctx context.Context, want durable.State) error {
	record, err := d.ledger.store().Find(ctx, idOf(d.order))
	if err != nil {
		return err
	}
	d.printf("State of the intent: %v.", record.State)
	if record.State != want {
		return fmt.Errorf("want state %v", want)
	}
	return nil
}

func (d *demo) recover(ctx context.Context) error {
	d.printf("The shop starts again. After the lease of %v the result of the attempt is unknown.", lease)
	d.printf("The shop sends the charge again with the same key. The bank replays its first response.")
	if err := d.shop.Start(ctx); err != nil {
		return err
	}
	if err := waitForEngines(ctx, d.ledger.store()); err != nil {
		return err
	}
	return d.look(ctx, durable.StateDone)
}

// printJournal prints the attempts and the bank's ledger.
func (d *demo) printJournal(ctx context.Context) error {
	attempts, err := d.ledger.store().Attempts(ctx, idOf(d.order))
	if err != nil {
		return err
	}
	d.printf("")
	for i, a := range attempts {
		d.printf("attempt %d, key %.8s…: %v, %v%s", i+1, a.Key, a.Kind, a.Class, suffix(a.Error))
	}
	booked, err := bank.Bookings(d.bankLedger())
	if err != nil {
		return err
	}
	for _, c := range booked {
		d.printf("bank ledger: %s, %s", c.Reference, euros(c.Amount))
	}
	if len(booked) != 1 || booked[0].Order != d.order {
		return fmt.Errorf("charged %d times, want once", len(booked))
	}
	d.printf("Charged once.")
	return nil
}

func suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func euros(cents int64) string { return fmt.Sprintf("%d.%02d EUR", cents/100, cents%100) }
