package main

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
)

// bank books what it is asked to book. It does not know idempotency keys: whoever
// asks twice pays twice. But it can be asked what it has booked.
type bank struct {
	busy float64 // share of orders that it refuses for now

	mu     sync.Mutex
	file   *os.File // its ledger: a line for each booking
	booked map[string][]charge
}

// openBank goes on with the ledger, if there is one.
func openBank(path string) (*bank, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	all, err := readBookings(file)
	if err != nil {
		return nil, err
	}
	b := &bank{file: file, booked: map[string][]charge{}}
	for _, c := range all {
		b.booked[c.Reference] = append(b.booked[c.Reference], c)
	}
	return b, nil
}

// bookings is what a bank's ledger has, read past the bank.
func bookings(path string) ([]charge, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readBookings(file)
}

func readBookings(ledger io.Reader) ([]charge, error) {
	var all []charge
	for lines := bufio.NewScanner(ledger); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		var c charge
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("the bank's ledger, line %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
}

func (b *bank) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bookings", b.take)
	mux.HandleFunc("GET /bookings", b.tell)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// take books an order, also for somebody who has gone.
func (b *bank) take(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	switch {
	case !ok:
	case rand.Float64() < b.busy:
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case !o.covered():
		http.Error(w, "not covered", http.StatusPaymentRequired)
	default:
		c, err := b.book(o)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeReceipt(w, c)
	}
}

func (b *bank) book(o order) (charge, error) {
	c := charge{ID: "bk_" + crand.Text(), order: o}
	line, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = b.file.Write(append(line, '\n'))
	if err := errors.Join(err, b.file.Sync()); err != nil {
		return c, err
	}
	b.booked[o.Reference] = append(b.booked[o.Reference], c)
	return c, nil
}

// tell: GET /bookings?reference=… is what was booked under a reference.
func (b *bank) tell(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	found := b.booked[r.URL.Query().Get("reference")]
	b.mu.Unlock()
	_ = json.NewEncoder(w).Encode(found) //nolint:errchkjson // strings and a number; the error is that of a client that has gone
}

// bankCommand makes the program the bank.
const bankCommand = "bank"

func serveBank(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(bankCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	ledger := flags.String("ledger", "", "the file of its ledger")
	busy := flags.Float64("busy", 0, "share of orders that it refuses for now")
	chaos := chaos{patience: bankTimeout}
	chaos.flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := openBank(*ledger)
	if err != nil {
		return err
	}
	b.busy = *busy
	return errors.Join(listen(ctx, *socket, chaos.around(b.handler())), b.file.Close())
}
