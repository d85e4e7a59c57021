// Package frameworks serves one API with net/http, chi, echo and gin. In each, package idempotency
// is inside of the authentication, which sets the tenant, and around everything that writes the
// response, including errors. See docs/server-idempotency.md.
package frameworks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// service is the part that does not depend on the framework.
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
	errDeclined = errors.New("card declined")
	errBank     = errors.New("no response from the bank")
)

// charge executes an order.
func (s *service) charge(o order) (charge, error) {
	switch {
	case o.Amount > 1000:
		return charge{}, errDeclined
	case o.Amount < 0:
		return charge{}, errBank
	}
	return charge{ID: s.charges.Add(1), Amount: o.Amount}, nil
}

// statusOf returns the status of an error of charge.
func statusOf(err error) int {
	if errors.Is(err, errDeclined) {
		return http.StatusPaymentRequired
	}
	return http.StatusInternalServerError
}

// once returns an idempotent handler for a route. The operation is a constant of the route, so keys
// remain valid with another pattern, router or framework.
func (s *service) once(operation string, next http.Handler) *idempotency.Handler {
	h := idempotency.NewHandler(s.store, tenantOf, next)
	h.Operation = func(*http.Request) string { return operation }
	return h
}

type tenantKey struct{}

// authenticate adds the tenant to the request's context. It is outside of idempotency, so that
// unauthenticated requests do not use the store.
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
	return "", errors.New("route without authentication")
}

// serveCharge is the handler of the route for net/http and chi.
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
	_ = json.NewEncoder(w).Encode(done) //nolint:errchkjson // two numbers; a write error means that the client has canceled
}
