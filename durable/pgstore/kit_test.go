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
