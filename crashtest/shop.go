package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// shop takes orders and charges them with package durable.
type shop struct {
	ledger *ledger
	engine *durable.Engine
}

// gateway is the name of the Gateway of the charges.
const gateway = "psp"

// leaseOfIntent is short, so that the intents of a dead process are taken over soon.
const leaseOfIntent = time.Second

// visibilityDelay is the time after an attempt in which a booking may still appear: a suspended
// process sends when it resumes, and the bank may be slow.
const visibilityDelay = 2 * time.Second

func newShop(l *ledger, mode, bankSocket string, log *slog.Logger) *shop {
	there := newBankClient(bankSocket, &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: bankTimeout}})
	var psp durable.Gateway = there.gateway()
	if mode == asks {
		psp = queryable{there.gateway(), there}
	}
	return &shop{l, &durable.Engine{
		Store: l.intents, Gateways: map[string]durable.Gateway{gateway: psp},
		// As durable.CardDeclines, but with 100 ms instead of an hour, and without a maximum
		// age, so that the test ends with each order done or declined.
		Policy: durable.Declines{
			Schedule: durable.Schedule{Backoff: resilienthttp.FullJitter(100*time.Millisecond, time.Second), MaxAttempts: -1, MaxAge: -1},
			ByCode: map[string]durable.Rule{
				bank.Again: {After: []time.Duration{100 * time.Millisecond}},
				bank.Call:  {Never: true},
			},
		},
		Concurrency: 24, PerTenant: 6, VisibilityDelay: visibilityDelay, PollInterval: 200 * time.Millisecond,
		LeaseDuration: leaseOfIntent, DrainTimeout: leaseOfIntent,
		Trace: durable.LogTrace(log),
	}}
}

// work sends the charges.
func (s *shop) work(ctx context.Context) error { return s.engine.Run(ctx) }

// idOf returns the ID of an order's intent. The tenant is the first part of its reference.
func idOf(o bank.Order) idempotency.ID {
	tenant, _, _ := strings.Cut(o.Reference, ":")
	return idempotency.ID{Scope: tenant, Operation: operation, Key: o.Reference}
}

var errCanceled = errors.New("canceled by the customer")

// take writes an order and its intent in one transaction.
func (s *shop) take(ctx context.Context, o bank.Order, cancel bool) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	err = s.ledger.take(ctx, o, func(outbox durable.Outbox) error {
		if _, err := outbox.Enqueue(ctx, durable.Intent{ID: idOf(o), Gateway: gateway, Payload: payload}); err != nil {
			return err
		}
		if cancel {
			return errCanceled
		}
		return nil
	})
	if err == nil {
		s.engine.Wake()
	}
	return err
}

func (s *shop) order() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, ok := bank.ReadOrder(w, r)
		if !ok {
			return
		}
		switch err := s.take(r.Context(), o, r.URL.Query().Get("cancel") == "true"); {
		case errors.Is(err, errCanceled):
			http.Error(w, err.Error(), http.StatusGone)
		case err != nil:
			http.Error(w, "ledger not available", http.StatusServiceUnavailable)
		default:
			bank.WriteReceipt(w, bank.Charge{Order: o}) // the charge has no ID yet
		}
	})
}
