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

// gateway is all that stands before the handler.
type gateway struct {
	accounts map[string]*account // by their tokens
	shedder  *admission.Shedder
	free     *admission.Quota
	paid     *admission.Quota
	charges  *idempotency.Handler
}

// account is who asks, as auth has found out.
type account struct {
	name string
	own  bool // a tier of ours, which is believed how much its requests matter
	paid bool
}

func newGateway(next http.Handler, capacity int) (*gateway, error) {
	g := &gateway{accounts: map[string]*account{
		"Bearer shop-token":    {name: "shop", own: true, paid: true},
		"Bearer partner-token": {name: "partner"},
		"Bearer scraper-token": {name: "scraper"},
	}}
	g.shedder = &admission.Shedder{Priority: priorityOf}
	g.free = &admission.Quota{Name: "free", Limit: max(1, capacity/20), Window: time.Second, Key: nameOf}
	g.paid = &admission.Quota{Name: "paid", Limit: 100 * capacity, Window: 10 * time.Second, Key: nameOf}
	g.charges = idempotency.NewHandler(new(idempotency.Memory), nameOf, next)
	return g, errors.Join(g.shedder.Validate(), g.free.Validate(), g.paid.Validate(), g.charges.Validate())
}

// handler has the gates in their order, the last one first.
func (g *gateway) handler() http.Handler {
	free, paid := g.free.Handler(g.charges), g.paid.Handler(g.charges)
	plan := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accountOf(r).paid {
			paid.ServeHTTP(w, r)
		} else {
			free.ServeHTTP(w, r)
		}
	})
	return g.auth(resilienthttp.Deadline{}.Handler(g.shedder.Handler(plan)))
}

type accountKey struct{}

func (g *gateway) auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := g.accounts[r.Header.Get("Authorization")]
		if a == nil {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
	})
}

// accountOf is whose request it is, once auth has let it through.
func accountOf(r *http.Request) *account {
	a, _ := r.Context().Value(accountKey{}).(*account)
	return a
}

func nameOf(r *http.Request) (string, error) { return accountOf(r).name, nil }

// priorityOf believes the header where it comes from a tier of ours, and nobody else.
func priorityOf(r *http.Request) resilienthttp.Priority {
	if accountOf(r).own {
		return admission.PriorityFromHeader(r)
	}
	return resilienthttp.PriorityDefault
}
