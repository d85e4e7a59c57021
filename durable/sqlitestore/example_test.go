package sqlitestore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// newEngine returns an Engine that sends charges to a provider.
func newEngine(store durable.Store, url string) *durable.Engine {
	return &durable.Engine{
		Store: store,
		Gateways: map[string]durable.Gateway{"psp": durable.HTTP{
			Client: resilienthttp.NewClient(),
			NewRequest: func(s *durable.Send) (*http.Request, error) {
				body := bytes.NewReader(s.Payload)
				return http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/charges", body)
			},
			Read: func(_ *http.Response, body []byte) durable.Outcome {
				var answer struct{ ID, Code string }
				err := json.Unmarshal(body, &answer)
				return durable.Outcome{Reference: answer.ID, Code: answer.Code, Err: err}
			},
		}},
		Trace: durable.LogTrace(nil),
	}
}

// placeOrder stores an order and its charge in one transaction.
func placeOrder(ctx context.Context, store *sqlitestore.Store, key string, payload []byte) error {
	tx, err := store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", key); err != nil {
		return err
	}
	_, err = store.WithTx(tx).Enqueue(ctx, durable.Intent{
		ID:      idempotency.ID{Scope: "acme", Operation: "charge", Key: key},
		Gateway: "psp", Payload: payload,
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// An order and its charge are one transaction. The Engine sends the charge.
func Example() {
	psp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}))
	defer psp.Close()
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "orders.db"))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(ctx, "CREATE TABLE orders (id TEXT)"); err != nil {
		log.Panic(err)
	}
	engine := newEngine(store, psp.URL)

	if err := placeOrder(ctx, store, "order:1", []byte(`{"euros":10}`)); err != nil {
		log.Panic(err)
	}
	sent, err := engine.Work(ctx, 0) // one round; a service calls Run
	fmt.Println("sent:", sent, err)
	record, err := engine.Find(ctx, idempotency.ID{Scope: "acme", Operation: "charge", Key: "order:1"})
	fmt.Println(record.State, record.Reference, err)
	// Output:
	// sent: 1 <nil>
	// done ch_1 <nil>
}
