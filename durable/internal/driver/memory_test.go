package driver_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func TestMemory(t *testing.T) {
	storetest.Suite{
		Open:      func(*testing.T) driver.Store { return new(driver.Memory) },
		MoveClock: func(_ *testing.T, store driver.Store, by time.Duration) { driver.MoveClock(store.(*driver.Memory), by) },
	}.Run(t)
}

// TestMemory_longQueue: a claim costs no more if many others wait.
func TestMemory_longQueue(t *testing.T) {
	const claims = 20
	allocations := func(waiting int) float64 {
		var m driver.Memory
		events := make([]driver.Event, waiting)
		for i := range events {
			id := idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}
			events[i] = driver.Event{Kind: driver.EventEnqueue, Intent: driver.Intent{ID: id, Gateway: "psp"}}
		}
		_, err := m.Apply(t.Context(), events)
		require.NoError(t, err)
		return testing.AllocsPerRun(claims-1, func() {
			claimed, err := m.Claim(t.Context(), driver.Claim{
				Worker: "w", Lease: time.Hour, Limit: 1, Gateways: map[string]driver.Allowance{"psp": {Limit: 1, PerScope: 1}},
			})
			require.NoError(t, err)
			require.Len(t, claimed.Changes, 1)
		})
	}
	assert.InDelta(t, allocations(claims), allocations(100*claims), 1)
}
