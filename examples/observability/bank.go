package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// outside are the servers that the shop calls, on a network in memory.
type outside struct{ bank, mail *faulttest.Server }

const customers = 20 // the limit of the bank's quota in a window

// openOutside starts a bank like that of quickstart, and the mail service.
func openOutside(w *watch, window time.Duration) *outside {
	var number atomic.Int64
	charges := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "the shop", nil },
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var order struct{ Reference string }
			if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Reference == "" {
				http.Error(rw, "not an order", http.StatusBadRequest)
				return
			}
			time.Sleep(5 * time.Millisecond) // the time of its work
			rw.WriteHeader(http.StatusCreated)
			fmt.Fprintf(rw, `{"id":"ch_%06d","reference":%q}`, number.Add(1), order.Reference)
		}))
	charges.Trace = w.instrumentation.TraceIdempotency(nil)

	var o outside
	o.bank = &faulttest.Server{InMemory: true, Host: "bank.example", Script: &faulttest.Quota{
		Limit: customers, Window: window, Dialect: faulttest.OpenAI, RetryAfterFormat: faulttest.Millis, Next: charges,
	}}
	o.bank.Start(nil)
	o.mail = &faulttest.Server{Network: o.bank, Host: "mail.example", Script: faulttest.Status(http.StatusBadGateway)}
	o.mail.Start(nil)
	return &o
}

func (o *outside) close() {
	o.mail.Close()
	o.bank.Close()
}
