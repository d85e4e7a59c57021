// Package frameworks serves one API four times, with net/http, chi, echo and gin,
// and puts package idempotency where it belongs in each: behind authentication,
// which knows the tenant, and around all that makes the response, errors included.
package frameworks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// service is what is the same with each framework.
type service struct {
	store   idempotency.Store
	charges atomic.Int64
}

type order struct {
	Amount int `json:"amount"`
}

type charge struct {
	ID     int64 `json:"id"`
	Amount int   `json:"amount"`
}

var (
	errDeclined = errors.New("the card is declined")
	errBank     = errors.New("the bank does not answer")
)

// charge is the work.
func (s *service) charge(o order) (charge, error) {
	switch {
	case o.Amount > 1000:
		return charge{}, errDeclined
	case o.Amount < 0:
		return charge{}, errBank
	}
	return charge{ID: s.charges.Add(1), Amount: o.Amount}, nil
}

// statusOf is how an error of the work is answered.
func statusOf(err error) int {
	if errors.Is(err, errDeclined) {
		return http.StatusPaymentRequired
	}
	return http.StatusInternalServerError
}

// once guards a route. The operation is a constant that the route chooses: keys in
// flight survive another pattern, another router, and another framework.
func (s *service) once(operation string, next http.Handler) *idempotency.Handler {
	h := idempotency.NewHandler(s.store, tenantOf, next)
	h.Operation = func(*http.Request) string { return operation }
	return h
}

type tenantKey struct{}

// authenticate says who asks, in the request's context. It stands outside, so that
// nothing is looked up for strangers.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _, ok := r.BasicAuth()
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

func tenantOf(r *http.Request) (string, error) {
	if tenant, ok := r.Context().Value(tenantKey{}).(string); ok {
		return tenant, nil
	}
	return "", errors.New("a route without authentication")
}

// serveCharge is the route's handler where that is an http.Handler.
func (s *service) serveCharge(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done, err := s.charge(o)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(done) //nolint:errchkjson // two numbers; the error is that of a client that has gone
}
