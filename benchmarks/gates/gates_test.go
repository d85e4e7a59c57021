package gates

import (
	"context"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/resilienthttp/resilienthttp/admission"
)

// BenchmarkTake takes from a quota in memory that is not exhausted, with one key.
func BenchmarkTake(b *testing.B) {
	const limit = 1 << 30
	ctx := context.Background()
	bucket := &admission.Quota{Limit: limit, Window: time.Hour}
	sliding := &admission.Quota{Limit: limit, Window: time.Hour, Sliding: true}
	simple, err := memorystore.New(&memorystore.Config{Tokens: limit, Interval: time.Hour})
	require.NoError(b, err)
	store, err := memstore.NewCtx(65536)
	require.NoError(b, err)
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(limit), MaxBurst: limit - 1})
	require.NoError(b, err)
	for _, row := range []struct {
		name string
		take func() error
	}{
		{"resilienthttp", func() error { _, err := bucket.Take(ctx, "tenant-1", 1); return err }},
		{"resilienthttp, sliding", func() error { _, err := sliding.Take(ctx, "tenant-1", 1); return err }},
		{"go-limiter", func() error { _, _, _, _, err := simple.Take(ctx, "tenant-1"); return err }}, //nolint:dogsled // its signature
		{"throttled", func() error { _, _, err := gcra.RateLimitCtx(ctx, "tenant-1", 1); return err }},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := row.take(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
