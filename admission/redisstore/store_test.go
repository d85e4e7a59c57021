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

	"github.com/resilienthttp/resilienthttp/admission/internal/storetest"
	"github.com/resilienthttp/resilienthttp/admission/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// options returns the options of the package's documentation, with longer timeouts.
func options(server *redistest.Server) *redis.Options {
	return patient(&redis.Options{Network: "unix", Addr: server.Socket(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
}

// patient sets timeouts that a slow machine does not exceed.
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

// fakeClock returns a server with a clock that the test sets.
func fakeClock(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	tb.Helper()
	server := miniredis.RunT(tb)
	client := redis.NewClient(patient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1}))
	tb.Cleanup(func() { _ = client.Close() })
	return server, client
}

func TestStore_conforms(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	var opened atomic.Int64
	storetest.Run(t, func(*testing.T) quotastore.Store {
		return &redisstore.Store{Client: client, Prefix: "test" + strconv.FormatInt(opened.Add(1), 10) + ":"}
	})
}

// In a Redis Cluster, each take uses one key, which may be on any node.
func TestStore_cluster(t *testing.T) {
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

// commandCounter counts the commands that are sent.
type commandCounter struct{ commands atomic.Int64 }

func (*commandCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *commandCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (*commandCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hourly adds no unit during a test.
var hourly = quotastore.Rule{Limit: 10, Window: time.Hour}

func mustTake(t *testing.T, s quotastore.Store, key string, want, minUnits int, r quotastore.Rule) quotastore.Result {
	t.Helper()
	result, err := s.Take(t.Context(), key, want, minUnits, r)
	require.NoError(t, err)
	return result
}

// A take is one round trip, or two if the server does not know the script.
func TestStore_roundTrips(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	var counted commandCounter
	client.AddHook(&counted)
	require.NoError(t, client.Ping(t.Context()).Err()) // connects
	s := &redisstore.Store{Client: client}
	sent := func(do func()) int64 {
		before := counted.commands.Load()
		do()
		return counted.commands.Load() - before
	}
	take := func() { mustTake(t, s, "k", 1, 1, hourly) }
	block := func() { require.NoError(t, s.Block(t.Context(), "k", time.Now().Add(time.Minute))) }
	require.EqualValues(t, 2, sent(take))
	require.EqualValues(t, 1, sent(take))
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	require.EqualValues(t, 2, sent(take))
	require.EqualValues(t, 2, sent(block))
	require.EqualValues(t, 1, sent(block))
	require.Zero(t, sent(func() {
		_, err := s.Take(t.Context(), "k", 11, 11, hourly)
		require.ErrorIs(t, err, quotastore.ErrExceedsBurst)
	}))
}

// A server that is killed and restarted knows the quotas, and the client reconnects.
func TestStore_serverKilled(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	s := &redisstore.Store{Client: connect(t, server)}
	sliding := hourly
	sliding.Sliding = true
	mustTake(t, s, "bucket", 10, 10, hourly)
	mustTake(t, s, "window", 10, 10, sliding)
	require.NoError(t, s.Block(t.Context(), "blocked", time.Now().Add(time.Hour)))
	require.NoError(t, server.Crash())
	_, err := s.Take(t.Context(), "bucket", 1, 1, hourly)
	require.ErrorContains(t, err, "redisstore: ")
	require.NoError(t, server.Restart(t.Context()))
	for key, rule := range map[string]quotastore.Rule{"bucket": hourly, "window": sliding, "blocked": hourly} {
		require.Eventually(t, func() bool {
			result, err := s.Take(t.Context(), key, 9, 9, rule)
			require.False(t, result.OK)
			return err == nil
		}, time.Minute, 10*time.Millisecond, key)
	}
}

// A take waits no longer for a slow server than its context allows.
func TestStore_slowServer(t *testing.T) {
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
	result := mustTake(t, s, "k", 1, 1, hourly)
	require.True(t, result.OK)
	require.Contains(t, []int{7, 8}, result.Remaining, "the take without an answer may have been counted")
}

// If the server cannot write, a take fails and takes nothing.
func TestStore_serverCannotWrite(t *testing.T) {
	client := connect(t, redistest.StartTB(t))
	s := &redisstore.Store{Client: client}
	mustTake(t, s, "k", 1, 1, hourly)
	for _, row := range []struct{ name, want, option, bad, good string }{
		{"full", "OOM", "maxmemory", "1", "0"},
		{"a lone master", "NOREPLICAS", "min-replicas-to-write", "1", "0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.NoError(t, client.ConfigSet(t.Context(), row.option, row.bad).Err())
			_, err := s.Take(t.Context(), "k", 1, 1, hourly)
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)), row.want)
			require.NoError(t, client.ConfigSet(t.Context(), row.option, row.good).Err())
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

func TestStore_noClient(t *testing.T) {
	s := new(redisstore.Store)
	_, err := s.Take(t.Context(), "k", 1, 1, hourly)
	require.EqualError(t, err, "redisstore: Store.Client is not set")
	require.Error(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)))
}

// A take returns the error of a connection that cannot be opened.
func TestStore_serverDown(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	_, err := (&redisstore.Store{Client: client}).Take(t.Context(), "k", 1, 1, hourly)
	require.ErrorIs(t, err, net.ErrClosed)
}

// A key expires when its whole quota is available, and not before. A take that takes nothing
// writes nothing, and a long key needs no more memory than a short one.
func TestStore_memory(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	s := &redisstore.Store{Client: client, Prefix: "p:"}
	ctx := t.Context()
	// kept requires that the key expires the given time after the last command.
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
		require.Equal(t, before, client.Get(ctx, "p:"+name).Val(), "a rejection writes nothing")
		began = time.Now()
		require.NoError(t, s.Block(ctx, name, began.Add(time.Hour)))
		kept("p:"+name, time.Hour, began)
		mustTake(t, s, name, math.MinInt, 0, rule)
		kept("p:"+name, time.Hour, began, "it is still blocked")
		mustTake(t, s, name+"2", 5, 5, rule)
		mustTake(t, s, name+"2", -5, 0, rule)
		require.Zero(t, client.Exists(ctx, "p:"+name+"2").Val(), "its whole quota is available")
	}
	mustTake(t, s, strings.Repeat("k", 1<<20), 1, 1, hourly)
	require.Less(t, client.MemoryUsage(ctx, client.Keys(ctx, "p:sha256:*").Val()[0]).Val(), int64(400))

	many := quotastore.Rule{Limit: 1000, Window: 500 * time.Millisecond, Sliding: true}
	for began := time.Now(); time.Since(began) < many.Window; {
		mustTake(t, s, "many", 1, 0, many)
	}
	require.Less(t, client.MemoryUsage(ctx, "p:many").Val(), int64(2400))
}

// A5: the takes of several processes are exact; here each process is a client.
func TestStore_exactWithManyClients(t *testing.T) {
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
						result, err := s.Take(context.Background(), name, 1, 1, rule)
						if err == nil {
							taken.Add(int64(result.Allowed))
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

// A value that another program wrote counts as no use; one that is no string is an error.
func TestStore_foreignValues(t *testing.T) {
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
