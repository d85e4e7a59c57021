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

// demo is one order, whose shop dies in the middle of the charge.
type demo struct {
	out    io.Writer
	order  bank.Order
	dir    string
	books  books
	bank   *bank.Bank
	shop   *process.Process
	once   sync.Once
	booked chan struct{} // closed when the bank has booked
	dead   chan struct{} // closed when the shop is
}

// runDemo tells what to see, line by line. Its error says that something else was seen.
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
	if d.books, err = openBooks(ctx, o.Database, dsn); err != nil {
		return err
	}
	defer d.books.close()
	if d.bank, err = bank.Open(d.ledger()); err != nil {
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
		"-bank", socket, "-timeout", patience.String())
	defer d.shop.Stop()
	return o.shown(ctx, d.books.store(), out, func() error { return d.run(ctx) })
}

func (d *demo) ledger() string { return filepath.Join(d.dir, "bank.jsonl") }

// holding lets the bank book, and keeps what it answers back until the shop is dead.
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

func (d *demo) sayf(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context) error {
	if err := d.shop.Start(ctx); err != nil {
		return err
	}
	c := &client{http: &http.Client{Transport: &http.Transport{DialContext: process.Over(d.shop.Socket)}}, url: "http://shop"}
	defer c.http.CloseIdleConnections()

	changed := d.order
	changed.Reference += "-given-up"
	if err := c.order(ctx, changed, true); err != nil {
		return err
	}
	d.sayf("A customer gives up %s in the middle. The shop rolls back: there is neither an order nor a charge.", changed.Reference)
	if _, err := d.books.store().Find(ctx, idOf(changed)); !errors.Is(err, durable.ErrNotFound) {
		return fmt.Errorf("a charge that was rolled back: %w", err)
	}
	if err := c.order(ctx, d.order, false); err != nil {
		return err
	}
	d.sayf("Another orders %s, %s. The shop writes the order and its charge in one transaction.", d.order.Reference, euros(d.order.Amount))
	if err := d.crash(ctx); err != nil {
		return err
	}
	if err := d.recover(ctx); err != nil {
		return err
	}
	return d.tell(ctx)
}

// crash kills the shop while it charges.
func (d *demo) crash(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return errors.New("the bank is not asked")
	case <-d.booked:
	}
	if err := d.freeze(ctx); err != nil {
		return err
	}
	d.shop.Stop()
	close(d.dead)
	d.sayf("The shop sends the charge. The bank has booked it, and before it can say so the shop gets kill -9.")
	return d.look(ctx, durable.StateSending)
}

// freeze stops the shop where it is, in the middle of the charge. On a machine that has
// stood still since the booking, the lease may be over: then it is about to send it again.
func (d *demo) freeze(ctx context.Context) error {
	for {
		_ = d.shop.Do(process.Freeze) // or it is killed as it runs
		record, err := d.books.store().Find(ctx, idOf(d.order))
		if err != nil || record.State == durable.StateSending {
			return err
		}
		_ = d.shop.Do(process.Thaw)
		if err := sleep.Context(ctx, glance); err != nil {
			return err
		}
	}
}

// look says where the charge stands.
func (d *demo) look(ctx context.Context, want durable.State) error {
	record, err := d.books.store().Find(ctx, idOf(d.order))
	if err != nil {
		return err
	}
	d.sayf("In the books: the charge is %v.", record.State)
	if record.State != want {
		return fmt.Errorf("it should be %v", want)
	}
	return nil
}

func (d *demo) recover(ctx context.Context) error {
	d.sayf("The shop starts again. The dead process may be alive for a lease of %v. Then nobody knows what it has done,", lease)
	d.sayf("and the charge is sent again, under the same key. The bank knows the key, and says what it said before.")
	if err := d.shop.Start(ctx); err != nil {
		return err
	}
	if err := waitUntilOver(ctx, d.books.store()); err != nil {
		return err
	}
	return d.look(ctx, durable.StateDone)
}

// tell shows the journal, and the bank's ledger.
func (d *demo) tell(ctx context.Context) error {
	attempts, err := d.books.store().Attempts(ctx, idOf(d.order))
	if err != nil {
		return err
	}
	d.sayf("")
	for i, a := range attempts {
		d.sayf("attempt %d, key %.8s…: %v, %v%s", i+1, a.Key, a.Kind, a.Class, behind(a.Error))
	}
	booked, err := bank.Bookings(d.ledger())
	if err != nil {
		return err
	}
	for _, c := range booked {
		d.sayf("the bank's ledger: %s, %s", c.Reference, euros(c.Amount))
	}
	if len(booked) != 1 || booked[0].Order != d.order {
		return fmt.Errorf("charged %d times", len(booked))
	}
	d.sayf("Charged once.")
	return nil
}

func behind(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func euros(cents int64) string { return fmt.Sprintf("%d.%02d EUR", cents/100, cents%100) }
