package durable_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func TestMemory(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) durable.Store { return new(durable.Memory) },
		MoveClock: func(_ *testing.T, store durable.Store, by time.Duration) {
			durable.MoveClock(store.(*durable.Memory), by)
		},
	}.Run(t)
}

// TestMemory_longQueue: a claim costs no more if many others wait.
func TestMemory_longQueue(t *testing.T) {
	const claims = 20
	allocations := func(waiting int) float64 {
		var m durable.Memory
		events := make([]durable.Event, waiting)
		for i := range events {
			id := idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}
			events[i] = durable.Event{Kind: durable.EventEnqueue, Intent: durable.Intent{ID: id, Gateway: "psp"}}
		}
		_, err := m.Apply(t.Context(), events)
		require.NoError(t, err)
		return testing.AllocsPerRun(claims-1, func() {
			claimed, err := m.Claim(t.Context(), durable.Claim{
				Worker: "w", Lease: time.Hour, Limit: 1, Gateways: map[string]durable.Allowance{"psp": {Limit: 1, PerScope: 1}},
			})
			require.NoError(t, err)
			require.Len(t, claimed.Changes, 1)
		})
	}
	assert.InDelta(t, allocations(claims), allocations(100*claims), 1)
}
