package redisstore_test

import (
	"context"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
	"github.com/resilienthttp/resilienthttp/quotastore"
	"github.com/resilienthttp/resilienthttp/quotastore/storetest"
)

// options are those of the package's documentation, with more patience.
func options(server *redistest.Server) *redis.Options {
	return patient(&redis.Options{Network: "unix", Addr: server.Socket(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
}

// patient has the client wait for a machine that stands still.
func patient(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
	return o
}

func connect(tb testing.TB, server *redistest.Server) *redis.Client {
	tb.Helper()
	client := redis.NewClient(options(server))
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// forged is a server whose clock is the test's.
func forged(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	tb.Helper()
	server := miniredis.RunT(tb)
	client := redis.NewClient(patient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1}))
	tb.Cleanup(func() { _ = client.Close() })
	return server, client
}

func TestIsAStore(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	var opened atomic.Int64
	storetest.Run(t, func(*testing.T) quotastore.Store {
		return &redisstore.Store{Client: client, Prefix: "test" + strconv.FormatInt(opened.Add(1), 10) + ":"}
	})
}

// With Redis Cluster each take is of one key, which any node may have.
func TestInACluster(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := &redisstore.Store{Client: client}
	for _, key := range []string{"a", "{b}c", ""} {
		require.Equal(t, 9, mustTake(t, s, key, 1, 1, hourly).Remaining)
		require.NoError(t, s.Block(t.Context(), key, time.Now().Add(time.Minute)))
		require.False(t, mustTake(t, s, key, 1, 1, hourly).OK)
	}
	require.ElementsMatch(t, []string{"quota:a", "quota:{b}c", "quota:"}, server.Keys())
}

// trips counts what is sent.
type trips struct{ commands atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (*trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hourly gives nothing back while a test runs.
var hourly = quotastore.Rule{Limit: 10, Window: time.Hour}

func mustTake(t *testing.T, s quotastore.Store, key string, want, least int, r quotastore.Rule) quotastore.Result {
	t.Helper()
	ticket, err := s.Take(t.Context(), key, want, least, r)
	require.NoError(t, err)
	return ticket
}

// A take is one round trip, and one more where the server has forgotten the script.
func TestTakeIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	var counted trips
	client.AddHook(&counted)
	require.NoError(t, client.Ping(t.Context()).Err()) // it has a connection
	s := &redisstore.Store{Client: client}
	sent := func(do func()) int64 {
		before := counted.commands.Load()
		do()
		return counted.commands.Load() - before
	}
	take := func() { mustTake(t, s, "k", 1, 1, hourly) }
	shut := func() { require.NoError(t, s.Block(t.Context(), "k", time.Now().Add(time.Minute))) }
	require.EqualValues(t, 2, sent(take))
	require.EqualValues(t, 1, sent(take))
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	require.EqualValues(t, 2, sent(take))
	require.EqualValues(t, 2, sent(shut))
	require.EqualValues(t, 1, sent(shut))
	require.Zero(t, sent(func() {
		_, err := s.Take(t.Context(), "k", 11, 11, hourly)
		require.ErrorIs(t, err, quotastore.ErrExceedsBurst)
	}))
}

// What a server that is killed and comes back knows, and that nobody has to connect
// anew.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	s := &redisstore.Store{Client: connect(t, server)}
	sliding := hourly
	sliding.Sliding = true
	mustTake(t, s, "bucket", 10, 10, hourly)
	mustTake(t, s, "window", 10, 10, sliding)
	require.NoError(t, s.Block(t.Context(), "closed", time.Now().Add(time.Hour)))
	require.NoError(t, server.Crash())
	_, err := s.Take(t.Context(), "bucket", 1, 1, hourly)
	require.ErrorContains(t, err, "redisstore: ")
	require.NoError(t, server.Restart(t.Context()))
	for key, rule := range map[string]quotastore.Rule{"bucket": hourly, "window": sliding, "closed": hourly} {
		require.Eventually(t, func() bool {
			ticket, err := s.Take(t.Context(), key, 9, 9, rule)
			require.False(t, ticket.OK)
			return err == nil
		}, time.Minute, 10*time.Millisecond, key)
	}
}

// A server that does not answer is waited for no longer than the context says; and
// goes on when it does.
func TestServerIsSlow(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	s := &redisstore.Store{Client: connect(t, server)}
	mustTake(t, s, "k", 1, 1, hourly)
	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Take(ctx, "k", 1, 1, hourly)
	require.Error(t, err)
	require.NoError(t, server.Resume())
	ticket := mustTake(t, s, "k", 1, 1, hourly)
	require.True(t, ticket.OK)
	require.Contains(t, []int{7, 8}, ticket.Remaining, "what nobody waited for may have been taken")
}

// A server that refuses to write says so, and has taken nothing.
func TestServerRefusesToWrite(t *testing.T) {
	client := connect(t, redistest.StartTB(t))
	s := &redisstore.Store{Client: client}
	mustTake(t, s, "k", 1, 1, hourly)
	for _, row := range []struct{ name, says, break1, break2, mend1, mend2 string }{
		{"full", "OOM", "maxmemory", "1", "maxmemory", "0"},
		{"a lone master", "NOREPLICAS", "min-replicas-to-write", "1", "min-replicas-to-write", "0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.NoError(t, client.ConfigSet(t.Context(), row.break1, row.break2).Err())
			_, err := s.Take(t.Context(), "k", 1, 1, hourly)
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)), row.says)
			require.NoError(t, client.ConfigSet(t.Context(), row.mend1, row.mend2).Err())
			require.Equal(t, 9, mustTake(t, s, "k", 0, 0, hourly).Remaining)
		})
	}
	t.Run("a replica", func(t *testing.T) {
		require.NoError(t, client.ConfigSet(t.Context(), "replica-serve-stale-data", "yes").Err())
		require.NoError(t, client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		_, err := s.Take(t.Context(), "k", 1, 1, hourly)
		require.ErrorContains(t, err, "READONLY")
		require.NoError(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
		require.Equal(t, 9, mustTake(t, s, "k", 0, 0, hourly).Remaining)
	})
}

func TestNoClient(t *testing.T) {
	s := new(redisstore.Store)
	_, err := s.Take(t.Context(), "k", 1, 1, hourly)
	require.EqualError(t, err, "redisstore: Store.Client is not set")
	require.Error(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)))
}

// Nobody listens.
func TestServerIsDown(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	_, err := (&redisstore.Store{Client: client}).Take(t.Context(), "k", 1, 1, hourly)
	require.ErrorIs(t, err, net.ErrClosed)
}

// A key is gone when there is nothing left to remember, and not before; what takes
// nothing writes nothing; and long keys take no more room than short ones.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	s := &redisstore.Store{Client: client, Prefix: "p:"}
	ctx := t.Context()
	// kept requires a key to be kept for so long from what was done last, which began then.
	kept := func(key string, whole time.Duration, began time.Time, what ...any) {
		t.Helper()
		const rounding = 2 * time.Millisecond // Redis counts in milliseconds
		left := client.PTTL(ctx, key).Val()
		require.LessOrEqual(t, left, whole+rounding, what...)
		require.GreaterOrEqual(t, left, whole-time.Since(began)-rounding, what...)
	}
	for name, sliding := range map[string]bool{"bucket": false, "window": true} {
		rule := quotastore.Rule{Limit: 10, Window: 10 * time.Minute, Sliding: sliding}
		mustTake(t, s, name, 0, 0, rule)
		require.Zero(t, client.Exists(ctx, "p:"+name).Val(), "asking writes nothing")
		began := time.Now()
		kept("p:"+name, mustTake(t, s, name, 5, 5, rule).ResetAfter, began)
		before := client.Get(ctx, "p:"+name).Val()
		require.False(t, mustTake(t, s, name, 9, 9, rule).OK)
		require.Equal(t, before, client.Get(ctx, "p:"+name).Val(), "a refusal writes nothing")
		began = time.Now()
		require.NoError(t, s.Block(ctx, name, began.Add(time.Hour)))
		kept("p:"+name, time.Hour, began)
		mustTake(t, s, name, math.MinInt, 0, rule)
		kept("p:"+name, time.Hour, began, "it is closed still")
		mustTake(t, s, name+"2", 5, 5, rule)
		mustTake(t, s, name+"2", -5, 0, rule)
		require.Zero(t, client.Exists(ctx, "p:"+name+"2").Val(), "it is whole again")
	}
	mustTake(t, s, strings.Repeat("k", 1<<20), 1, 1, hourly)
	require.Less(t, client.MemoryUsage(ctx, client.Keys(ctx, "p:sha256:*").Val()[0]).Val(), int64(400))

	many := quotastore.Rule{Limit: 1000, Window: 500 * time.Millisecond, Sliding: true}
	for began := time.Now(); time.Since(began) < many.Window; {
		mustTake(t, s, "many", 1, 0, many)
	}
	require.Less(t, client.MemoryUsage(ctx, "p:many").Val(), int64(2400))
}

// A5: what many processes take together is exact; here they are clients of their own.
func TestIsExactForManyClients(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	for name, rule := range map[string]quotastore.Rule{
		"bucket": {Limit: 500, Window: time.Hour}, "window": {Limit: 500, Window: time.Hour, Sliding: true},
	} {
		var taken atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for range 4 {
			s := &redisstore.Store{Client: connect(t, server)}
			for range 25 {
				all.Go(func() {
					for range 10 {
						ticket, err := s.Take(context.Background(), name, 1, 1, rule)
						if err == nil {
							taken.Add(int64(ticket.Allowed))
						}
					}
				})
			}
		}
		all.Wait()
		require.GreaterOrEqual(t, taken.Load(), int64(500), name)
		require.LessOrEqual(t, taken.Load(), 500+int64(time.Since(began)/(7*time.Second)), name)
	}
}

// The reader of a value that is not ours takes it for nothing; of one that is no string
// it says so.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	s := &redisstore.Store{Client: client, Prefix: "p:"}
	for _, value := range []string{"", "hello", "1 2 3", "7 0 1 2 3", strings.Repeat("9", 400), "1 0 0 5"} {
		require.NoError(t, client.Set(t.Context(), "p:k", value, 0).Err())
		require.True(t, mustTake(t, s, "k", 1, 0, hourly).OK, value)
		require.True(t, mustTake(t, s, "k", 1, 0, quotastore.Rule{Limit: 10, Window: time.Second, Sliding: true}).OK, value)
	}
	require.NoError(t, client.Del(t.Context(), "p:k").Err())
	require.NoError(t, client.RPush(t.Context(), "p:k", "a").Err())
	_, err := s.Take(t.Context(), "k", 1, 1, hourly)
	require.ErrorContains(t, err, "WRONGTYPE")
}

func BenchmarkTake(b *testing.B) {
	s := &redisstore.Store{Client: connect(b, redistest.StartTB(b))}
	for name, sliding := range map[string]bool{"bucket": false, "window": true} {
		rule := quotastore.Rule{Limit: 1 << 30, Window: time.Minute, Sliding: sliding}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Take(b.Context(), name, 1, 1, rule); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
