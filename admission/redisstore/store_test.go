package redisstore_test

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
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
		require.ErrorIs(t, errOf(s.Take(t.Context(), "k", 11, 11, hourly)), quotastore.ErrExceedsBurst)
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
	require.ErrorContains(t, errOf(s.Take(t.Context(), "bucket", 1, 1, hourly)), "redisstore: ")
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
	require.Error(t, errOf(s.Take(ctx, "k", 1, 1, hourly)))
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
			require.ErrorContains(t, errOf(s.Take(t.Context(), "k", 1, 1, hourly)), row.want)
			require.ErrorContains(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)), row.want)
			require.NoError(t, client.ConfigSet(t.Context(), row.option, row.good).Err())
			require.Equal(t, 9, mustTake(t, s, "k", 0, 0, hourly).Remaining)
		})
	}
	t.Run("a replica", func(t *testing.T) {
		require.NoError(t, client.ConfigSet(t.Context(), "replica-serve-stale-data", "yes").Err())
		require.NoError(t, client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		require.ErrorContains(t, errOf(s.Take(t.Context(), "k", 1, 1, hourly)), "READONLY")
		require.NoError(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
		require.Equal(t, 9, mustTake(t, s, "k", 0, 0, hourly).Remaining)
	})
}

func TestStore_noClient(t *testing.T) {
	s := new(redisstore.Store)
	require.EqualError(t, errOf(s.Take(t.Context(), "k", 1, 1, hourly)), "redisstore: Store.Client is not set")
	require.Error(t, s.Block(t.Context(), "k", time.Now().Add(time.Hour)))
}

// A take returns the error of a connection that cannot be opened.
func TestStore_serverDown(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.ErrorIs(t, errOf((&redisstore.Store{Client: client}).Take(t.Context(), "k", 1, 1, hourly)), net.ErrClosed)
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
	require.ErrorContains(t, errOf(s.Take(t.Context(), "k", 1, 1, hourly)), "WRONGTYPE")
}

// model is a token bucket in rational numbers.
type model struct {
	used *big.Rat
	at   int64 // microseconds
}

func (m *model) take(now, want, minUnits int64, r *quotastore.Rule) (int64, bool) {
	gained := big.NewRat(max(now-m.at, 0), 1)
	gained.Mul(gained, big.NewRat(int64(r.Limit), r.Window.Microseconds()))
	m.at = now
	if m.used.Sub(m.used, gained); m.used.Sign() < 0 {
		m.used.SetInt64(0)
	}
	left := new(big.Rat).Sub(big.NewRat(int64(r.Capacity()), 1), m.used)
	whole := new(big.Int).Quo(left.Num(), left.Denom()).Int64()
	if whole < minUnits {
		return 0, false
	}
	taken := min(want, whole)
	m.used.Add(m.used, big.NewRat(taken, 1))
	return taken, true
}

// A5: the bucket's arithmetic equals that of rational numbers, for any rule, in spite of
// double precision. A3: the wait is exact to the microsecond.
func TestBucket_isExact(t *testing.T) {
	t.Parallel()
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := quotastore.Rule{
			Limit:  1 + int(math.Exp(random.Float64()*27)),
			Window: time.Duration(1+math.Exp(random.Float64()*31)) * time.Microsecond,
			Burst:  int(math.Exp(random.Float64() * 27)),
		}
		require.NoError(t, r.Validate())
		exact := model{used: new(big.Rat)}
		now, key := int64(1.7e15), strconv.FormatUint(seed, 10)
		for range 40 {
			if random.IntN(3) > 0 {
				now += int64(random.Float64() * random.Float64() * 3 * float64(r.Window.Microseconds()) / float64(r.Limit) * math.Exp(random.Float64()*5))
			}
			server.SetTime(time.UnixMicro(now))
			want := int64(random.Float64()*random.Float64()*float64(r.Capacity())) + 1
			minUnits := random.Int64N(want + 1)
			wantTaken, wantOK := exact.take(now, want, minUnits, &r)
			got := mustTake(t, s, key, int(want), int(minUnits), r)
			require.Equal(t, wantTaken, int64(got.Allowed), "seed %d, %+v", seed, r)
			require.Equal(t, wantOK, got.OK, "seed %d, %+v", seed, r)
			if enough := got.RetryAfter.Microseconds(); !got.OK && enough < 1e15 {
				server.SetTime(time.UnixMicro(now + enough - 1))
				require.False(t, mustTake(t, s, key, int(minUnits), int(minUnits), r).OK, "seed %d, %+v", seed, r)
				now += enough
				server.SetTime(time.UnixMicro(now))
				_, _ = exact.take(now, minUnits, minUnits, &r)
				require.True(t, mustTake(t, s, key, int(minUnits), int(minUnits), r).OK, "seed %d, %+v", seed, r)
			}
		}
	}
}

// A5: in any Window at most Limit units are taken, and with more demand hardly fewer. A3: the
// wait is exact.
func TestWindow_grantsLimit(t *testing.T) {
	t.Parallel()
	type grant struct{ at, units int64 }
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 2))
		r := quotastore.Rule{Limit: 1 + random.IntN(150), Window: time.Duration(1+random.IntN(3000)) * time.Millisecond, Sliding: true}
		length, now, began := r.Window.Microseconds(), int64(1.7e15), int64(1.7e15)
		var grants []grant
		total := int64(0)
		for now < began+4*length {
			now += random.Int64N(length/int64(r.Limit) + 1)
			server.SetTime(time.UnixMicro(now))
			result := mustTake(t, s, strconv.FormatUint(seed, 10), 1+random.IntN(2), 1, r)
			if result.OK {
				grants, total = append(grants, grant{now, int64(result.Allowed)}), total+int64(result.Allowed)
				continue
			}
			server.SetTime(time.UnixMicro(now + result.RetryAfter.Microseconds() - 1))
			require.False(t, mustTake(t, s, strconv.FormatUint(seed, 10), 1, 1, r).OK)
			now += result.RetryAfter.Microseconds()
		}
		for i, g := range grants {
			sum := int64(0)
			for _, later := range grants[i:] {
				if later.at < g.at+length {
					sum += later.units
				}
			}
			require.LessOrEqual(t, sum, int64(r.Limit), "seed %d, %+v", seed, r)
		}
		require.GreaterOrEqual(t, float64(total), 0.9*4*float64(r.Limit), "seed %d, %+v", seed, r)
	}
}

// If the server's clock is set back, no key waits for it. If it is set forward, the whole
// quota is available.
func TestStore_clockJumps(t *testing.T) {
	for name, sliding := range map[string]bool{"bucket": false, "window": true} {
		t.Run(name, func(t *testing.T) {
			server, client := fakeClock(t)
			s := &redisstore.Store{Client: client}
			r := quotastore.Rule{Limit: 10, Window: time.Second, Sliding: sliding}
			now := time.Unix(1_700_000_000, 0)
			set := func(at time.Time) { now = at; server.SetTime(now) }
			take := func(want int) quotastore.Result { return mustTake(t, s, "k", want, 1, r) }
			set(now)
			require.Equal(t, 10, take(20).Allowed)
			set(now.Add(-time.Hour))
			rejected := take(1)
			require.False(t, rejected.OK)
			require.LessOrEqual(t, rejected.ResetAfter, time.Second)
			set(now.Add(rejected.RetryAfter))
			require.True(t, take(1).OK)
			set(now.Add(1000 * time.Hour))
			require.Equal(t, 10, take(20).Allowed)

			// block returns the minimum time of the block: only the test's clock advances.
			block := func(d time.Duration) time.Duration {
				began := time.Now()
				require.NoError(t, s.Block(t.Context(), "k", began.Add(d)))
				return d - time.Since(began)
			}
			minUnits := block(time.Minute)
			set(now.Add(-time.Hour))
			wait := take(1).RetryAfter
			require.LessOrEqual(t, wait, time.Minute)
			require.GreaterOrEqual(t, wait, minUnits, "blocked for as long as before")
			block(2 * time.Minute)
			set(now.Add(-time.Hour))
			minUnits = block(3 * time.Minute)
			wait = take(1).RetryAfter
			require.LessOrEqual(t, wait, 3*time.Minute)
			require.GreaterOrEqual(t, wait, minUnits)
			set(now.Add(3*time.Minute + time.Second))
			require.Equal(t, 10, take(20).Allowed)
		})
	}
}

// After a change of the rule the units that were taken count, also if a bucket becomes a
// window and back.
func TestStore_ruleChanges(t *testing.T) {
	server, client := fakeClock(t)
	s := &redisstore.Store{Client: client}
	server.SetTime(time.Unix(1_700_000_000, 0))
	bucket := quotastore.Rule{Limit: 10, Window: time.Minute}
	sliding := quotastore.Rule{Limit: 10, Window: time.Minute, Sliding: true}
	taken := 0
	for range 10 {
		taken += mustTake(t, s, "k", 2, 0, bucket).Allowed
		taken += mustTake(t, s, "k", 2, 0, sliding).Allowed
	}
	require.Equal(t, 10, taken)
	require.Zero(t, mustTake(t, s, "k", 0, 0, quotastore.Rule{Limit: 5, Window: time.Minute}).Remaining)
	require.Equal(t, 90, mustTake(t, s, "k", 0, 0, quotastore.Rule{Limit: 100, Window: time.Minute}).Remaining)
}

// A12: the time that go-redis needs to connect rejects no request. TestQuota_storeConnects of package admission shows in virtual
// time that no fallback begins.
func TestConnecting(t *testing.T) {
	t.Parallel()
	const connecting = 250 * time.Millisecond
	server := redistest.StartTB(t)
	for name, failClosed := range map[string]bool{"local": false, "fail closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(server)
			o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				time.Sleep(connecting)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			client := redis.NewClient(o)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			q := &admission.Quota{
				Name: name, Limit: 1000, Window: time.Hour, FailClosed: failClosed,
				Store: &redisstore.Store{Client: client, Prefix: name},
			}
			var all sync.WaitGroup
			var failed atomic.Int32
			begun := time.Now()
			for range 20 {
				all.Go(func() {
					for range 5 {
						if result, err := q.Take(t.Context(), "k", 1); err != nil || !result.OK {
							failed.Add(1)
						}
					}
				})
			}
			all.Wait()
			if time.Since(begun) < connecting+100*time.Millisecond { // no answer was late: on a busy machine some are
				require.Zero(t, failed.Load())
			}
			// The store decides soon, also on a machine that is too busy to answer in time at first.
			require.Eventually(t, func() bool {
				before := client.Get(t.Context(), name+name+":k").Val() // "" before the first answer
				_, err := q.Take(t.Context(), "k", 1)
				return err == nil && client.Get(t.Context(), name+name+":k").Val() != before
			}, 30*time.Second, time.Millisecond)
		})
	}
}

// A Transport takes the tokens of its limit from the server, so that other processes do not have them.
func TestStore_sharedByTransports(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.StartTB(t))
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	limit := &resilienthttp.RateLimit{Limit: 0.001, Burst: 10, Shared: &redisstore.Store{Client: client}}
	resp, err := (&http.Client{Transport: &resilienthttp.Transport{RateLimit: limit}}).Get(api.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() > 0 }, time.Minute, time.Millisecond)
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
