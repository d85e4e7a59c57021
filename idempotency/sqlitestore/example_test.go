package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// A service writes a charge and its record in one transaction. The repeated request gets the first response.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	store, err := sqlitestore.Options{BusyTimeout: time.Second}.Open(ctx, filepath.Join(dir, "payments.db"))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(ctx, "CREATE TABLE charges (id INTEGER PRIMARY KEY, cents TEXT)"); err != nil {
		log.Panic(err)
	}

	charges := idempotency.NewHandler(store, tenantOf, http.HandlerFunc(charge))
	charges.Operation = func(*http.Request) string { return "charge" }
	charges.Transactional = true
	if err := charges.Validate(); err != nil {
		log.Panic(err)
	}
	server := httptest.NewServer(charges)
	defer server.Close()

	for _, cents := range []string{"4200", "4200", "9900"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(cents))
		if err != nil {
			log.Panic(err)
		}
		req.Header.Set("Idempotency-Key", "invoice:001")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, "replayed:", resp.Header.Get("Idempotency-Replayed") == "true")
	}
	var rows int
	if err := store.DB().QueryRowContext(ctx, "SELECT count(*) FROM charges").Scan(&rows); err != nil {
		log.Panic(err)
	}
	fmt.Println("charges:", rows)
	// Output:
	// 201 replayed: false
	// 201 replayed: true
	// 422 replayed: false
	// charges: 1
}

// tenantOf returns the authenticated tenant of a request.
func tenantOf(*http.Request) (string, error) { return "tenant_1", nil }

// charge writes through the transaction of the record.
func charge(w http.ResponseWriter, r *http.Request) {
	cents, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "cannot read the request", http.StatusBadRequest)
		return
	}
	tx, err := idempotency.Tx[*sql.Tx](r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO charges (cents) VALUES (?)", string(cents)); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back, and the key is free
		return
	}
	w.WriteHeader(http.StatusCreated)
}
