package sqlitestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/quotatest"
)

// D25: a provider's hold is that of all processes.
func TestProviderHold_quota(t *testing.T) {
	stores := []durable.Store{openInternal(t)}
	for len(stores) < 3 {
		s, err := Open(t.Context(), stores[0].(*Store).kit.File.Path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		stores = append(stores, s)
	}
	q := &quotatest.Quota{Limit: 60, Window: 3 * time.Second, Takes: 20 * time.Millisecond}
	report := q.Run(t, 240, stores...)
	assert.Zero(t, report.Twice)
	rejected := 0
	for _, n := range report.Rejected {
		rejected += n
	}
	assert.LessOrEqual(t, rejected, 25*len(stores)+3*len(report.Rejected))
}
