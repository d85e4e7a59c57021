package pgstore_test //nolint:testableexamples // it needs a server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
)

// newService returns the routes of a service. It sweeps the records until ctx ends.
func newService(ctx context.Context, pool *pgxpool.Pool) (http.Handler, error) {
	store, err := pgstore.New(ctx, pool, nil) // creates its tables
	if err != nil {
		return nil, err
	}
	charges := idempotency.NewHandler(store, tenantOf, http.HandlerFunc(charge))
	charges.Operation = func(*http.Request) string { return "charge" } // a constant
	charges.Transactional = true                                       // see idempotency.Tx
	charges.Trace = idempotency.LogTrace(nil)
	if err := charges.Validate(); err != nil {
		return nil, err
	}
	sweeper := &idempotency.Sweeper{
		Store: store, Trace: charges.Trace,
		OnError: func(err error) { log.Print("sweep idempotency records: ", err) },
	}
	go func() { _ = sweeper.Run(ctx) }()

	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	return mux, nil
}

// charge is an ordinary handler. It writes through the transaction of the record.
func charge(w http.ResponseWriter, r *http.Request) {
	cents, err := strconv.Atoi(r.FormValue("cents"))
	if err != nil {
		http.Error(w, "cents: want a number", http.StatusBadRequest)
		return
	}
	tx, err := idempotency.Tx[pgx.Tx](r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var id int
	const insert = "INSERT INTO charges (cents) VALUES ($1) RETURNING id"
	if err := tx.QueryRow(r.Context(), insert, cents).Scan(&id); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back, and the key is free
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "charge %d", id)
}

// tenantOf returns the tenant that authentication has established.
func tenantOf(r *http.Request) (string, error) {
	if tenant, _, ok := r.BasicAuth(); ok {
		return tenant, nil
	}
	return "", errors.New("no tenant")
}

// A service charges each key once: the charge and its record are one transaction.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Print(err)
		return
	}
	defer pool.Close()
	service, err := newService(ctx, pool)
	if err != nil {
		log.Print(err)
		return
	}
	log.Print(http.ListenAndServe(":8080", service))
}
