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

// servers are the servers that the shop calls, on an in-memory network.
type servers struct{ bank, mail *faulttest.Server }

const customers = 20 // the limit of the bank's quota per window

// startServers starts a bank with a quota, and a mail service that fails.
func startServers(w *watch, window time.Duration) *servers {
	var number atomic.Int64
	charges := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "the shop", nil },
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var order struct{ Reference string }
			if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Reference == "" {
				http.Error(rw, "invalid order", http.StatusBadRequest)
				return
			}
			time.Sleep(5 * time.Millisecond) // the bank's work
			rw.WriteHeader(http.StatusCreated)
			fmt.Fprintf(rw, `{"id":"ch_%06d","reference":%q}`, number.Add(1), order.Reference)
		}))
	charges.Trace = w.instrumentation.TraceIdempotency(nil)

	var o servers
	o.bank = &faulttest.Server{InMemory: true, Host: "bank.example", Script: &faulttest.Quota{
		Limit: customers, Window: window, Dialect: faulttest.OpenAI, RetryAfterFormat: faulttest.Millis, Next: charges,
	}}
	o.bank.Start(nil)
	o.mail = &faulttest.Server{Network: o.bank, Host: "mail.example", Script: faulttest.Status(http.StatusBadGateway)}
	o.mail.Start(nil)
	return &o
}

func (o *servers) close() {
	o.mail.Close()
	o.bank.Close()
}
