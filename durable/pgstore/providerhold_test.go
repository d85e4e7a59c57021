package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/quotatest"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// D25: a provider's hold is that of all processes.
func TestProviderHold_quota(t *testing.T) {
	dsn := postgrestest.Open(t)
	var stores [3]durable.Store
	for i := range stores {
		stores[i] = newStore(t, newPool(t, dsn, nil))
	}
	q := &quotatest.Quota{Limit: 60, Window: 3 * time.Second, Takes: 20 * time.Millisecond}
	report := q.Run(t, 240, stores[:]...)
	assert.Zero(t, report.Twice)
	rejected := 0
	for _, n := range report.Rejected {
		rejected += n
	}
	assert.LessOrEqual(t, rejected, 25*len(stores)+3*len(report.Rejected))
}
