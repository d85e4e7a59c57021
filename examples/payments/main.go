// Payments is a payment service with idempotency keys. A charge is booked in the transaction of the
// record of its key: both are committed, or neither is. So a client may repeat its request until it
// gets a response, and is charged once.
//
// Run it from the root of the repository:
//
//	go run ./examples/payments -db payments.db
//	curl -i -u acme: -H 'Idempotency-Key: invoice-1' -d '{"reference":"invoice-1","amount":4200}' http://127.0.0.1:8080/charges
//
// A repeated request gets the same response, with the header Idempotency-Replayed. crashtest kills a
// service like this one during its work.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	database := flag.String("db", "payments.db", "file of the database")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, listener, *database)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listener net.Listener, database string) error {
	store, err := sqlitestore.Open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	handler, err := newHandler(ctx, store)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ended <- server.Shutdown(ctx) // requests in progress are finished
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// newHandler returns the handler of the service. It creates the table of the charges in the database of the
// store.
func newHandler(ctx context.Context, store *sqlitestore.Store) (http.Handler, error) {
	const schema = `CREATE TABLE IF NOT EXISTS charges (
		id TEXT PRIMARY KEY, account TEXT NOT NULL, reference TEXT NOT NULL, amount INTEGER NOT NULL)`
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("create the table of the charges: %w", err)
	}
	charges := idempotency.NewHandler(store, account, http.HandlerFunc(charge))
	charges.Operation = func(*http.Request) string { return "charge" } // a constant, so that the route may be renamed
	charges.Transactional = true
	charges.Trace = idempotency.LogTrace(slog.Default())
	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	return mux, charges.Validate()
}

// account returns the account of a request. A real service checks the password.
func account(r *http.Request) (string, error) {
	if name, _, ok := r.BasicAuth(); ok && name != "" {
		return name, nil
	}
	return "", errors.New("the request has no account")
}

// Charge is the body of a request and of its response.
type Charge struct {
	ID        string `json:"id,omitempty"`
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

// limit is the maximum amount of a charge.
const limit = 1_000_00

// charge books a charge. It has no code for retries: the Handler commits the booking together with the
// response. After a response of 4xx, it stores the response and undoes the booking. After 5xx, it undoes
// both, and the client may repeat the request.
func charge(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Reference == "" || c.Amount <= 0 {
		http.Error(w, "want a reference and an amount above 0", http.StatusBadRequest)
		return
	}
	c.ID = "ch_" + rand.Text()
	if err := book(r, c); err != nil {
		http.Error(w, "the database is not available", http.StatusServiceUnavailable)
		return
	}
	if c.Amount > limit {
		http.Error(w, `{"code":"over_limit"}`, http.StatusPaymentRequired)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c) //nolint:errchkjson // strings and a number
}

// book writes a charge in the transaction of the request.
func book(r *http.Request, c Charge) error {
	tx, err := idempotency.Tx[*sql.Tx](r.Context())
	if err != nil {
		return err
	}
	by, err := account(r)
	if err != nil {
		return err
	}
	const insert = `INSERT INTO charges (id, account, reference, amount) VALUES (?, ?, ?, ?)`
	_, err = tx.ExecContext(r.Context(), insert, c.ID, by, c.Reference, c.Amount)
	return err
}
