package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// A payment is enqueued, declined, corrected and done. The journal lists each attempt.
func Example() {
	psp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var charge struct{ Currency string }
		_ = json.NewDecoder(r.Body).Decode(&charge)
		if charge.Currency != "EUR" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"code":"currency_unknown"}`)
			return
		}
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}))
	defer psp.Close()

	engine := &durable.Engine{
		Store: new(durable.Memory), // for tests; use sqlitestore or pgstore
		Gateways: map[string]durable.Gateway{"psp": durable.HTTP{
			Client: resilienthttp.NewClient(),
			NewRequest: func(s *durable.Send) (*http.Request, error) {
				return http.NewRequestWithContext(context.Background(), http.MethodPost, psp.URL+"/charges", bytes.NewReader(s.Payload))
			},
			Read: func(_ *http.Response, body []byte) durable.Outcome {
				var answer struct{ ID, Code string }
				err := json.Unmarshal(body, &answer)
				return durable.Outcome{Reference: answer.ID, Code: answer.Code, Err: err}
			},
		}},
	}

	ctx := context.Background()
	invoice := durable.Intent{
		ID:      idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: "invoice:1"},
		Gateway: "psp", Payload: []byte(`{"amount":100,"currency":"EURO"}`),
	}
	step := func() {
		receipt, err := engine.Enqueue(ctx, invoice)
		fmt.Println("enqueued:", receipt.State, receipt.Existing, receipt.Revised, err)
		if _, err := engine.Work(ctx, 0); err != nil { // or Run, until ctx ends
			fmt.Println(err)
		}
		record, err := engine.Find(ctx, invoice.ID)
		fmt.Println("now:", record.State, record.Code, record.Reference, err)
	}

	step()
	for letter, err := range engine.Dead(ctx, durable.Filter{Scope: "acme"}) {
		fmt.Println("dead:", letter.ID.Key, letter.Reason, letter.Code, err)
	}
	invoice.Payload = []byte(`{"amount":100,"currency":"EUR"}`)
	step()
	attempts, _ := engine.Attempts(ctx, invoice.ID)
	for _, a := range attempts {
		fmt.Println("journal:", a.Generation, a.Kind, "epoch", a.Epoch, a.Class, a.Status)
	}

	// Output:
	// enqueued: pending false false <nil>
	// now: dead currency_unknown  <nil>
	// dead: invoice:1 declined currency_unknown <nil>
	// enqueued: waiting true true <nil>
	// now: done  ch_1 <nil>
	// journal: 1 send epoch 1 declined 422
	// journal: 2 send epoch 2 succeeded 200
}
