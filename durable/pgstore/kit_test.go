package pgstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// order is the i-th of a tenant's.
func order(i int) durable.Intent {
	return durable.Intent{
		ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}

// batch enqueues n of them.
func batch(from, n int) []durable.Event {
	events := make([]durable.Event, n)
	for i := range events {
		events[i] = durable.Event{Kind: durable.EventEnqueue, Intent: order(from + i)}
	}
	return events
}

func applyAll(tb testing.TB, store durable.Store, events []durable.Event) []durable.Result {
	tb.Helper()
	results, err := store.Apply(tb.Context(), events)
	require.NoError(tb, err)
	for i := range results {
		require.NoError(tb, results[i].Err)
	}
	return results
}

func claimOf(worker string, limit int) durable.Claim {
	return durable.Claim{
		Worker: worker, Lease: time.Hour, Limit: limit, PerScope: limit, Terms: map[string]durable.Terms{"psp": {}},
	}
}
