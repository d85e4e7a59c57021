package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// BenchmarkScripts reports the time that the server needs for a script, by its own count, beside what a service writes by hand: a
// SET NX and a SET with the response.
//
//	go test -run '^$' -bench Scripts .
func BenchmarkScripts(b *testing.B) {
	c := connect(b, redistest.StartTB(b))
	s := redisstore.New(c, nil)
	var leases []idempotency.Lease
	claims := 0
	reserve := func(key int) error {
		reservation, err := s.Reserve(context.Background(), newClaim(fmt.Sprint(key)))
		leases = append(leases, reservation.Record.Lease())
		return err
	}
	for _, row := range []struct {
		name string
		do   func(i int) error // each i once
	}{
		{"hand claim", func(i int) error {
			return c.SetNX(context.Background(), fmt.Sprint("hand ", i), "claimed", time.Hour).Err()
		}},
		{"hand complete", func(i int) error {
			return c.Set(context.Background(), fmt.Sprint("hand ", i), `{"id":"ch_1"}`, time.Hour).Err()
		}},
		{"claim", func(i int) error { claims = i + 1; return reserve(i) }},
		{"renew", func(i int) error { return s.Renew(context.Background(), leases[i%claims], time.Hour) }},
		{"complete", func(i int) error {
			return s.Complete(context.Background(), leases[i%claims], completed(`{"id":"ch_1"}`))
		}},
		{"replay", func(i int) error { return reserve(i % claims) }},
	} {
		next := 0
		b.Run(row.name, func(b *testing.B) {
			require.NoError(b, c.ConfigResetStat(b.Context()).Err())
			for range b.N {
				if err := row.do(next); err != nil {
					b.Fatal(err)
				}
				next++
			}
			b.ReportMetric(serverTime(b, c)/float64(b.N), "server-µs/op")
		})
	}
}

// serverTime returns the time that the server has spent on commands since CONFIG RESETSTAT, in microseconds.
func serverTime(b *testing.B, c *redis.Client) (total float64) {
	b.Helper()
	text, err := c.Info(b.Context(), "commandstats").Result()
	require.NoError(b, err)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name != "cmdstat_evalsha" && name != "cmdstat_set" && name != "cmdstat_setnx" {
			continue
		}
		var calls, used float64
		_, err := fmt.Sscanf(rest, "%f,usec=%f", &calls, &used)
		require.NoError(b, err)
		total += used
	}
	return total
}
