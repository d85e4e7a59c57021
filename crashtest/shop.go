package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
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

// poisonKills is the number of sends of the poison that kill the process.
const poisonKills = 4

// poisoned is a request that kills the process after a moment in which others are sent, until it has done so often enough.
func poisoned(reference string, request func(*durable.Send) (*http.Request, error)) func(*durable.Send) (*http.Request, error) {
	return func(s *durable.Send) (*http.Request, error) {
		if s.ID.Key == reference && s.Number <= poisonKills {
			_ = sleep.Context(context.Background(), bankTimeout)
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			return nil, errors.Join(err, sleep.Context(context.Background(), time.Minute))
		}
		return request(s)
	}
}

func newShop(l *ledger, mode, poison, bankSocket string, log *slog.Logger) *shop {
	there := newBankClient(bankSocket, &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: bankTimeout}})
	requests := there.gateway()
	requests.NewRequest = poisoned(poison, requests.NewRequest)
	var psp durable.Gateway = requests
	if mode == asks {
		psp = queryable{requests, there}
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

// idOf returns the ID of an order's intent.
func idOf(o bank.Order) idempotency.ID {
	return idempotency.ID{Scope: tenantOf(o), Operation: operation, Key: o.Reference}
}

// tenantOf returns the tenant of an order: the first part of its reference.
func tenantOf(o bank.Order) string {
	tenant, _, _ := strings.Cut(o.Reference, ":")
	return tenant
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
