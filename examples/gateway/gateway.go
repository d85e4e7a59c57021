package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// gateway has the middleware before the handler.
type gateway struct {
	accounts map[string]*account // by their tokens
	shedder  *admission.Shedder
	free     *admission.Quota
	paid     *admission.Quota
	charges  *idempotency.Handler
}

// account is the authenticated client.
type account struct {
	name string
	own  bool // a tier of our own, so its priority header is trusted
	paid bool
}

func newGateway(next http.Handler, capacity int) (*gateway, error) {
	g := &gateway{accounts: map[string]*account{
		"Bearer shop-token":    {name: "shop", own: true, paid: true},
		"Bearer partner-token": {name: "partner"},
		"Bearer scraper-token": {name: "scraper"},
		"Bearer bulk-token":    {name: "bulk", paid: true},
	}}
	g.shedder = &admission.Shedder{Priority: priorityOf, Key: nameOf}
	g.free = &admission.Quota{Name: "free", Limit: max(1, capacity/20), Window: time.Second, Key: nameOf}
	g.paid = &admission.Quota{Name: "paid", Limit: 100 * capacity, Window: 10 * time.Second, Key: nameOf}
	g.charges = idempotency.NewHandler(new(idempotency.Memory), nameOf, next)
	g.charges.ClassifyResponse = idempotency.ClassifyForwarded // the response is the API's
	g.charges.Takeover = idempotency.Reexecute                 // the API honours the key, so a repetition does no harm
	g.charges.Timeout = 10 * time.Second                       // a little more than a client waits
	return g, errors.Join(g.shedder.Validate(), g.free.Validate(), g.paid.Validate(), g.charges.Validate())
}

// handler returns the middleware in its order, the last one first.
func (g *gateway) handler() http.Handler {
	free, paid := g.free.Handler(g.charges), g.paid.Handler(g.charges)
	plan := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accountOf(r).paid {
			paid.ServeHTTP(w, r)
		} else {
			free.ServeHTTP(w, r)
		}
	})
	return g.auth(resilienthttp.DeadlineHandler{Next: g.shedder.Handler(plan)})
}

type accountKey struct{}

func (g *gateway) auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := g.accounts[r.Header.Get("Authorization")]
		if a == nil {
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
	})
}

// accountOf returns the account of an authenticated request.
func accountOf(r *http.Request) *account {
	a, _ := r.Context().Value(accountKey{}).(*account)
	return a
}

func nameOf(r *http.Request) (string, error) { return accountOf(r).name, nil }

// priorityOf sets the priority at the edge. It reads the header for our own tiers only. The
// Shedder puts the result into the context, so the handler and its Transports use it too.
// resilienthttp.Deadline ignores the header, because TrustPriority is not set.
func priorityOf(r *http.Request) resilienthttp.Priority {
	if accountOf(r).own {
		return admission.PriorityFromHeader(r)
	}
	return resilienthttp.PriorityDefault
}
