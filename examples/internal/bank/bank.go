// Package bank is whoever books charges for the examples: a bank, or a payment service
// provider. It books what it is asked to book, and keeps its own ledger.
package bank

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
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

// Bank books orders. Unless it has Keys, whoever asks twice pays twice; but it can be
// asked what it has booked. It is safe for concurrent use.
type Bank struct {
	// Busy is the share of requests that it refuses with 503, and Declines the share that
	// it refuses with the code Again, both having done nothing.
	Busy, Declines float64

	// Calls is the share of requests that it refuses with the code Call.
	Calls float64

	// Keys: it honours idempotency keys, for as long as it lives, and keeps its refusals
	// under them too.
	Keys bool

	outage atomic.Int64 // its end, in nanoseconds since 1970

	mu     sync.Mutex
	file   *os.File // its ledger: a line for each booking
	booked map[string][]Charge
	keyed  keyed
}

// The codes of refusals, which are Mastercard's merchant advice codes.
const (
	Never = "03" // the account does not cover it
	Again = "24" // in an hour it may
	Call  = "01" // the customer must be called before it is sent again
)

// Refusal is the body of a 402.
type Refusal struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Open goes on with the ledger, if there is one.
func Open(path string) (*Bank, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	all, err := readBookings(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b := &Bank{file: file, booked: map[string][]Charge{}}
	for _, c := range all {
		b.booked[c.Reference] = append(b.booked[c.Reference], c)
	}
	return b, nil
}

// Close closes the ledger.
func (b *Bank) Close() error { return b.file.Close() }

// Bookings is what a bank's ledger has, read past the bank.
func Bookings(path string) ([]Charge, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readBookings(file)
}

func readBookings(ledger io.Reader) ([]Charge, error) {
	var all []Charge
	for lines := bufio.NewScanner(ledger); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		var c Charge
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("the bank's ledger, line %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
}

// Handler is POST /bookings, which books, and GET /bookings?reference=…, which tells. PUT
// /outage?for=60s resets the connections of both for so long.
func (b *Bank) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /bookings", b.reachable(b.keyed.around(b, http.HandlerFunc(b.take))))
	mux.Handle("GET /bookings", b.reachable(http.HandlerFunc(b.tell)))
	mux.HandleFunc("PUT /outage", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b.outage.Store(time.Now().Add(d).UnixNano())
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func (b *Bank) reachable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if time.Now().UnixNano() < b.outage.Load() {
			chaos.Reset(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// take books an order, also for somebody who has gone.
func (b *Bank) take(w http.ResponseWriter, r *http.Request) {
	o, ok := ReadOrder(w, r)
	switch {
	case !ok:
	case rand.Float64() < b.Busy:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case !o.Covered():
		Decline(w, Never)
	case rand.Float64() < b.Declines:
		Decline(w, Again)
	case rand.Float64() < b.Calls:
		Decline(w, Call)
	default:
		c, err := b.book(o)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		WriteReceipt(w, c)
	}
}

func (b *Bank) book(o Order) (Charge, error) {
	c := Charge{ID: "bk_" + crand.Text(), Order: o}
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

// Booked is what was booked under a reference.
func (b *Bank) Booked(reference string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked[reference]
}

func (b *Bank) tell(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, b.Booked(r.URL.Query().Get("reference")))
}

// ReadOrder is false when there was none, which it has answered then.
func ReadOrder(w http.ResponseWriter, r *http.Request) (o Order, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || !o.Valid() {
		http.Error(w, "that is no order", http.StatusBadRequest)
		return o, false
	}
	return o, true
}

// WriteReceipt answers that it is booked.
func WriteReceipt(w http.ResponseWriter, c Charge) { writeJSON(w, http.StatusCreated, c) }

// Decline answers that the charge is not booked, and why.
func Decline(w http.ResponseWriter, code string) {
	text := map[string]string{Never: "the account does not cover it", Again: "not now: try again later", Call: "call the customer first"}
	writeJSON(w, http.StatusPaymentRequired, Refusal{code, text[code]})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // strings and numbers; the error is that of a client that has gone
}

// Command makes the program the bank.
const Command = "bank"

// Serve is the bank as a process of its own. Patience is of those who ask it.
func Serve(ctx context.Context, args []string, patience time.Duration) error {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	ledger := flags.String("ledger", "", "the file of its ledger")
	busy := flags.Float64("busy", 0, "share of orders that it refuses for now")
	declines := flags.Float64("declines", 0, "share of orders that are to be tried again later, under another key")
	calls := flags.Float64("calls", 0, "share of orders that a person must send again, under another key")
	keys := flags.Bool("keys", false, "honour idempotency keys")
	answers := chaos.Answers{Patience: patience}
	answers.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := Open(*ledger)
	if err != nil {
		return err
	}
	b.Busy, b.Declines, b.Calls, b.Keys = *busy, *declines, *calls, *keys
	return errors.Join(process.Listen(ctx, *socket, answers.Around(b.Handler())), b.Close())
}
