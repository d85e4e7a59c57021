package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// bank is a Gateway that books at once. A durable.HTTP is one over any API.
type bank struct{}

func (bank) Send(_ context.Context, s *durable.Send) driver.Outcome {
	fmt.Printf("the bank is sent %s, number %d\n", s.Payload, s.Number)
	return driver.Outcome{Class: driver.ClassSucceeded, Reference: "ch_1"}
}

// An order and its charge are one transaction: if that is rolled back, nobody is charged.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "orders.db"))
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = store.Close() }()
	engine := &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"bank": bank{}}}

	db := store.DB() // the file's own: its other tables are ours
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT, euros INTEGER)"); err != nil {
		log.Print(err)
		return
	}
	order := func(id string, euros int, end func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", id, euros); err != nil {
			return err
		}
		_, err = store.WithTx(tx).Enqueue(ctx, driver.Intent{
			ID:      idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: id},
			Gateway: "bank", Payload: fmt.Appendf(nil, `{"euros":%d}`, euros),
		})
		if err != nil {
			return err
		}
		return end(tx)
	}
	fmt.Println(order("order:1", 10, (*sql.Tx).Commit))
	fmt.Println(order("order:2", 20, (*sql.Tx).Rollback))
	engine.Wake() // for a Run in this process; here it is
	n, err := engine.Work(ctx, 0)
	fmt.Println("sent:", n, err)

	// Output:
	// <nil>
	// <nil>
	// the bank is sent {"euros":10}, number 1
	// sent: 1 <nil>
}
