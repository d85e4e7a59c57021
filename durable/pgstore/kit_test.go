package pgstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// order is the i-th of a tenant's.
func order(i int) driver.Intent {
	return driver.Intent{
		ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}

// batch enqueues n of them.
func batch(from, n int) []driver.Event {
	events := make([]driver.Event, n)
	for i := range events {
		events[i] = driver.Event{Kind: driver.EventEnqueue, Intent: order(from + i)}
	}
	return events
}

// enqueueKey enqueues an intent of this key.
func enqueueKey(tb testing.TB, store driver.Store, key string) {
	tb.Helper()
	in := order(0)
	in.Key = key
	applyAll(tb, store, []driver.Event{{Kind: driver.EventEnqueue, Intent: in}})
}

// refuse claims the only intent, and makes a dead letter of it.
func refuse(tb testing.TB, store driver.Store, gateway string) {
	tb.Helper()
	claim := claimOf("w", 1)
	claim.Gateways = map[string]driver.Allowance{gateway: {Limit: 1, PerScope: 1}}
	claimed, err := store.Claim(tb.Context(), claim)
	require.NoError(tb, err)
	require.Len(tb, claimed.Changes, 1)
	r := &claimed.Changes[0].Record
	applyAll(tb, store, []driver.Event{{
		Kind: driver.EventFinish, Intent: driver.Intent{ID: r.ID}, Worker: "w", Generation: r.Generation, Terms: &driver.Terms{},
		Outcome: driver.Outcome{Class: driver.ClassDeclined}, Decision: driver.Decision{Action: driver.Bury},
	}})
}

func applyAll(tb testing.TB, store driver.Store, events []driver.Event) []driver.Result {
	tb.Helper()
	results, err := store.Apply(tb.Context(), events)
	require.NoError(tb, err)
	for i := range results {
		require.NoError(tb, results[i].Err)
	}
	return results
}

func claimOf(worker string, limit int) driver.Claim {
	return driver.Claim{
		Worker: worker, Lease: time.Hour, Limit: limit, Gateways: map[string]driver.Allowance{"psp": {Limit: limit, PerScope: limit}},
	}
}
