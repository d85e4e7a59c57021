// Package bank is the payment provider of the crash tests. It books charges in its own ledger.
package bank

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Bank books orders. Without Keys, a second request for an order is a second booking, but clients can
// query the bookings. It is safe for concurrent use.
type Bank struct {
	Options

	outage atomic.Int64 // end of the outage, in nanoseconds since 1970

	mu     sync.Mutex
	file   *os.File // the ledger: one line for each booking
	booked map[string][]Charge
}

// Options are those of a bank.
type Options struct {
	// Ledger is the name of the ledger's file.
	Ledger string

	// Busy is the ratio of requests that get 503. Declines is the ratio of requests that are
	// declined with the code Again. Neither is booked.
	Busy, Declines float64

	// Calls is the ratio of requests that are declined with the code Call.
	Calls float64

	// Keys makes the bank honour idempotency keys, as long as the process runs. It also
	// stores declines.
	Keys bool

	// Responses are the faulty responses of the bank's process.
	Responses chaos.Responses
}

// The codes of declines, which are Mastercard's merchant advice codes.
const (
	Never = "03" // insufficient funds
	Again = "24" // retry after an hour
	Call  = "01" // a person must call the customer before a retry
)

// DeclineBody is the body of a 402.
type DeclineBody struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Open opens a bank with an existing or a new ledger.
func Open(o Options) (*Bank, error) {
	file, err := os.OpenFile(o.Ledger, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	all, err := readBookings(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b := &Bank{Options: o, file: file, booked: map[string][]Charge{}}
	for _, c := range all {
		b.booked[c.Reference] = append(b.booked[c.Reference], c)
	}
	return b, nil
}

// Close closes the ledger.
func (b *Bank) Close() error { return b.file.Close() }

// Bookings reads the ledger of a bank from its file.
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
			return nil, fmt.Errorf("bank ledger, line %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
}

// Handler returns a handler: POST /bookings books an order, GET /bookings?reference=… returns the
// bookings, and PUT /outage?for=60s resets the connections of both for that time.
func (b *Bank) Handler() http.Handler {
	book := http.Handler(http.HandlerFunc(b.accept))
	if b.Keys {
		book = &faulttest.Idempotent{Handler: book}
	}
	mux := http.NewServeMux()
	mux.Handle("POST /bookings", b.reachable(b.unlessBusy(book)))
	mux.Handle("GET /bookings", b.reachable(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, b.Booked(r.URL.Query().Get("reference")))
	})))
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

// unlessBusy rejects a part of the orders. They may be sent again with the same key.
func (b *Bank) unlessBusy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rand.Float64() < b.Busy {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// accept books an order, also if the client has canceled.
func (b *Bank) accept(w http.ResponseWriter, r *http.Request) {
	o, ok := ReadOrder(w, r)
	switch {
	case !ok:
	case !o.Covered():
		Decline(w, Never)
	case rand.Float64() < b.Declines:
		Decline(w, Again)
	case rand.Float64() < b.Calls:
		Decline(w, Call)
	default:
		c, err := b.book(o)
		if err != nil {
			panic(http.ErrAbortHandler) // the result is unknown: nothing is stored for the key
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

// Booked returns the bookings of a reference.
func (b *Bank) Booked(reference string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked[reference]
}

// ReadOrder decodes an order. If it is invalid, it responds with 400 and returns false.
func ReadOrder(w http.ResponseWriter, r *http.Request) (o Order, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || !o.Valid() {
		http.Error(w, "invalid order", http.StatusBadRequest)
		return o, false
	}
	return o, true
}

// WriteReceipt responds with a booking.
func WriteReceipt(w http.ResponseWriter, c Charge) { writeJSON(w, http.StatusCreated, c) }

// Decline responds with a decline.
func Decline(w http.ResponseWriter, code string) {
	text := map[string]string{Never: "insufficient funds", Again: "declined, retry later", Call: "call the customer first"}
	writeJSON(w, http.StatusPaymentRequired, DeclineBody{code, text[code]})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // strings and numbers; a write error means that the client has canceled
}

// Command is the first argument of the bank's process.
const Command = "bank"

// Serve runs the bank as a process.
func Serve(ctx context.Context, socket string, o Options) error {
	b, err := Open(o)
	if err != nil {
		return err
	}
	return errors.Join(process.Listen(ctx, socket, o.Responses.Handler(b.Handler())), b.Close())
}

// Order is the body of a request.
type Order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

// Valid reports whether the order is valid.
func (o Order) Valid() bool { return o.Reference != "" && o.Amount > 0 }

// Covered reports whether the account has sufficient funds. One of twenty orders is not covered.
func (o Order) Covered() bool { return o.Amount%20 != 0 }

// Charge is a booked order. Each booking has its own ID, so that duplicates are visible.
type Charge struct {
	ID string `json:"id"`
	Order
}
