package redisstore_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// BenchmarkStore compares one client's operations with SET, the shortest write.
func BenchmarkStore(b *testing.B) {
	c := connect(b, redistest.StartTB(b))
	s := redisstore.New(c, nil)
	outcome := completed(`{"id":"ch_1"}`)
	outcome.Result.Header = http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}}
	n := 0
	complete := func(b *testing.B) driver.ID {
		b.Helper()
		n++
		claim := newClaim(strconv.Itoa(n))
		reservation, err := s.Reserve(b.Context(), claim)
		require.NoError(b, err)
		require.NoError(b, s.Complete(b.Context(), reservation.Record.Lease(), outcome))
		return claim.ID
	}
	b.Run("SET", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, c.Set(b.Context(), "k", "v", 0).Err())
		}
	})
	b.Run("claim and complete", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			complete(b)
		}
	})
	b.Run("replay", func(b *testing.B) {
		b.ReportAllocs()
		claim := newClaim("")
		claim.ID = complete(b)
		for b.Loop() {
			reservation, err := s.Reserve(b.Context(), claim)
			require.NoError(b, err)
			require.Equal(b, driver.Done, reservation.Decision)
		}
	})
}
