package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
)

// The check finds wrong responses of a service with a read-only database.
func TestReadOnlyCheck(t *testing.T) {
	t.Parallel()
	known := bank.Charge{ID: "a", Order: bank.Order{Reference: "known", Amount: 101}}
	replay := func(c bank.Charge, header string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header, "true")
			w.WriteHeader(http.StatusCreated)
			assert.NoError(t, json.NewEncoder(w).Encode(c))
		}
	}
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
	}
	const replayed = "Idempotency-Replayed"
	other := bank.Charge{ID: "b", Order: known.Order}
	unavailable := status(http.StatusServiceUnavailable, "{}")
	for _, row := range []struct {
		name           string
		duplicate, new http.HandlerFunc
		passes         bool
	}{
		{"duplicates replayed, new keys rejected: passes", replay(known, replayed), unavailable, true},
		{"a duplicate executed again: fails", replay(known, "Other"), unavailable, false},
		{"another receipt: fails", replay(other, replayed), unavailable, false},
		{"duplicates rejected: fails", unavailable, unavailable, false},
		{"a new key executed: fails", replay(known, replayed), replay(other, "Other"), false},
		{"the work of a new key called: fails", replay(known, replayed), status(http.StatusServiceUnavailable, ledgerUnavailable), false},
		{"another status for a new key: fails", replay(known, replayed), status(http.StatusConflict, "{}"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == known.Reference {
					row.duplicate(w, r)
				} else {
					row.new(w, r)
				}
			}))
			defer server.Close()
			check := readOnlyCheck{client: newClient(server.URL)}
			check.add(outcome{state: booked, receipt: known})
			check.add(outcome{state: declined})
			check.wait(t.Context())
			check.run(t.Context())
			assert.Equal(t, row.passes, len(check.verdict(1)) == 0, "%v", check.verdict(1))
		})
	}
	t.Run("no response to the first requests: there are further ones", func(t *testing.T) {
		t.Parallel()
		var requests atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch n := requests.Add(1); {
			case n <= 1+newKeysPerStrike:
				panic(http.ErrAbortHandler)
			case r.Header.Get("Idempotency-Key") == known.Reference:
				replay(known, replayed)(w, r)
			default:
				unavailable(w, r)
			}
		}))
		defer server.Close()
		check := readOnlyCheck{client: newClient(server.URL), patience: time.Minute}
		check.add(outcome{state: booked, receipt: known})
		check.run(t.Context())
		assert.Empty(t, check.verdict(1))
	})
	check := readOnlyCheck{unanswered: []string{"read-only:1"}}
	ledger := []bank.Charge{known}
	for i := range 3 {
		ledger = append(ledger, bank.Charge{ID: fmt.Sprint(i), Order: bank.Order{Reference: "read-only:1"}})
	}
	require.Len(t, check.ordered(ledger), 3, "a request without a response may be executed once")
}
