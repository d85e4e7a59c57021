package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// The record of long work must be kept for the TTL from the end of the work.
func TestTTLOfLongWorkCountsFromItsEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		takes time.Duration
		kept  time.Duration // from the end of the work
	}{
		{"short work: from its start, and the expiry is not written again", time.Minute, time.Hour - time.Minute},
		{"long work: from its end", 59 * time.Minute, time.Hour},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := &idempotency.Memory{}
			x := idempotency.Executor{Store: store, Options: idempotency.Options{TTL: time.Hour, Timeout: -1}}
			id := idempotency.ID{Scope: "comp1", Operation: "import", Key: "1"}
			_, err := x.Do(t.Context(), id, "", func(context.Context) (idempotency.Result, error) {
				time.Sleep(row.takes)
				return idempotency.Result{}, nil
			})
			require.NoError(t, err)
			record, err := store.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, row.kept, time.Until(record.Expires))
		})
	}
}
