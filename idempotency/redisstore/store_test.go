package redisstore_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// options are those of the package's documentation, with timeouts for a slow machine.
func options(network, address string) *redis.Options {
	return &redis.Options{
		Network: network, Addr: address, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	}
}

func connect(tb testing.TB, server *redistest.Server) *redis.Client {
	tb.Helper()
	return client(tb, options("unix", server.Socket()))
}

func client(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func newClaim(key string) idempotency.Claim {
	return idempotency.Claim{
		ID: idempotency.ID{Scope: "tenant", Operation: "charge", Key: key}, Fingerprint: "v1:a",
		Owner: rand.Text(), Lease: time.Hour, TTL: 2 * time.Hour,
	}
}

func acquire(t *testing.T, s idempotency.Store, key string) idempotency.Lease {
	t.Helper()
	reservation, err := s.Reserve(t.Context(), newClaim(key))
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, reservation.Decision)
	return reservation.Record.Lease()
}

func completed(body string) idempotency.Outcome {
	return idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{Code: 201, Body: []byte(body)}}
}

// requireReplay requires that both ways to find a result find it.
func requireReplay(t *testing.T, s idempotency.Store, key, body string) {
	t.Helper()
	reservation, err := s.Reserve(t.Context(), newClaim(key))
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionDone, reservation.Decision)
	require.Equal(t, body, string(reservation.Record.Result.Body))
	record, err := s.Load(t.Context(), newClaim(key).ID)
	require.NoError(t, err)
	require.Equal(t, reservation.Record, record)
}

// I7 among others: see package storetest.
func TestStore(t *testing.T) {
	server := redistest.StartTB(t)
	open := func(t *testing.T) idempotency.Store { t.Helper(); return redisstore.New(connect(t, server), nil) }
	storetest.Suite{Open: open, Again: open}.Run(t)
	if _, ok := any(redisstore.New(nil, nil)).(idempotency.Transactor); ok {
		t.Error("a Store is a Transactor")
	}
}

// A server that rejects writes answers duplicates and rejects claims.
func TestReserve_serverRejectsWrites(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, want string
		setting    [2]string
		breakDump  bool
		completes  bool
	}{
		{name: "memory is full: an admitted execution can be completed", want: "OOM", setting: [2]string{"maxmemory", "1"}, completes: true},
		{name: "snapshots fail: nothing can be written", want: "MISCONF", setting: [2]string{"save", "3600 1"}, breakDump: true},
		{name: "too few replicas: nothing can be written", want: "NOREPLICAS", setting: [2]string{"min-replicas-to-write", "1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartTB(t)
			c := connect(t, server)
			s := redisstore.New(c, nil)
			require.NoError(t, s.Complete(t.Context(), acquire(t, s, "done"), completed("first")))
			running := acquire(t, s, "running")

			require.NoError(t, c.ConfigSet(t.Context(), row.setting[0], row.setting[1]).Err())
			if row.breakDump { // a directory that is not empty cannot be replaced by the snapshot
				require.NoError(t, os.MkdirAll(filepath.Join(filepath.Dir(server.Socket()), "dump.rdb", "x"), 0o700))
				require.NoError(t, c.BgSave(t.Context()).Err())
				require.Eventually(t, func() bool {
					return strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
				}, time.Minute, time.Millisecond)
			}
			requireReplay(t, s, "done", "first")
			require.NoError(t, s.Check(t.Context()))
			require.ErrorContains(t, errOf(s.Reserve(t.Context(), newClaim("new"))), "redisstore: claim: "+row.want)
			require.ErrorIs(t, errOf(s.Load(t.Context(), newClaim("new").ID)), idempotency.ErrNotFound, "the rejected claim has left a record")
			require.EqualValues(t, 1, c.ZCard(t.Context(), "{idempotency}:lease").Val(), "the rejected claim is in an index")

			renewal, completion := s.Renew(t.Context(), running, time.Hour), s.Complete(t.Context(), running, completed("second"))
			if row.completes {
				require.NoError(t, errors.Join(renewal, completion))
				requireReplay(t, s, "running", "second")
			} else {
				require.ErrorContains(t, renewal, row.want)
				require.ErrorContains(t, completion, row.want)
			}
		})
	}
}

// A replica has the records and the expiry of its master, and answers duplicates after the
// master's end.
func TestReserve_onReadOnlyReplica(t *testing.T) {
	t.Parallel()
	masterServer, replicaServer := redistest.StartTB(t), redistest.StartTB(t)
	master, replica := connect(t, masterServer), connect(t, replicaServer)
	var port string
	require.Eventually(t, func() bool { // another process may take a free port first
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return false
		}
		port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
		return listener.Close() == nil && master.ConfigSet(t.Context(), "port", port).Err() == nil
	}, time.Minute, time.Millisecond)
	require.NoError(t, replica.ReplicaOf(t.Context(), "127.0.0.1", port).Err())

	s := redisstore.New(master, nil)
	require.NoError(t, s.Complete(t.Context(), acquire(t, s, "done"), completed("first")))
	expired := completed("first")
	expired.TTL = time.Millisecond
	require.NoError(t, s.Complete(t.Context(), acquire(t, s, "expired"), expired))
	doubt := acquire(t, s, "doubt")
	require.NoError(t, s.Complete(t.Context(), doubt, idempotency.Outcome{Status: idempotency.Unknown}))
	require.Eventually(t, func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up") &&
			replica.Exists(t.Context(), "{idempotency}:unknown").Val() == 1
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, masterServer.Crash())

	s = redisstore.New(replica, nil)
	require.NoError(t, s.Check(t.Context()))
	requireReplay(t, s, "done", "first")
	time.Sleep(2 * time.Millisecond) // until the TTL is over
	require.ErrorIs(t, errOf(s.Load(t.Context(), newClaim("expired").ID)), idempotency.ErrNotFound)
	for record, err := range s.Unknown(t.Context(), "") {
		require.NoError(t, err)
		require.Equal(t, doubt, record.Lease())
	}
	for _, key := range []string{"new", "expired"} {
		require.ErrorContains(t, errOf(s.Reserve(t.Context(), newClaim(key))), "redisstore: claim: READONLY", key)
	}

	// Once it is the master, it goes on where its master ended.
	require.NoError(t, replica.ReplicaOf(t.Context(), "NO", "ONE").Err())
	require.NoError(t, s.Complete(t.Context(), doubt, completed("resolved")))
	requireReplay(t, s, "doubt", "resolved")
}

func TestCheck(t *testing.T) {
	server := redistest.StartTB(t)
	c := connect(t, server)
	limited := options("unix", server.Socket())
	limited.Username, limited.Password = "service", "p"
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "service", "on", ">p", "~{idempotency}:*", "+@all", "-info", "-config").Err())
	for _, row := range []struct {
		name   string
		set    func(ctx context.Context) error
		client *redis.Client
		want   string
	}{
		{"empty: no error", func(context.Context) error { return nil }, c, ""},
		{"format of this version: no error", func(ctx context.Context) error {
			_, err := redisstore.New(c, nil).Reserve(ctx, newClaim("k"))
			return err
		}, c, ""},
		{"policy volatile-lru: no error", func(ctx context.Context) error {
			return c.ConfigSet(ctx, "maxmemory-policy", "volatile-lru").Err()
		}, c, ""},
		{"policy allkeys-lru: error", func(ctx context.Context) error {
			return c.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err()
		}, c, "redisstore: maxmemory-policy is allkeys-lru, and an evicted key is executed again: run CONFIG SET maxmemory-policy noeviction"},
		{"INFO not permitted: no error", func(context.Context) error { return nil }, client(t, limited), ""},
		{"a newer format: error", func(ctx context.Context) error {
			return errors.Join(c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err(), c.Set(ctx, "{idempotency}:format", "2", 0).Err())
		}, c, "redisstore: keys {idempotency}:* have format 2, want 1: upgrade this service or change Options.Prefix"},
		{"a foreign key: error", func(ctx context.Context) error {
			return errors.Join(c.Del(ctx, "{idempotency}:format").Err(), c.LPush(ctx, "{idempotency}:format", "2").Err())
		}, c, "redisstore: check: WRONGTYPE"},
		{"not running: error", func(context.Context) error { return server.Crash() }, c, "redisstore: check: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.NoError(t, row.set(t.Context()))
			err := redisstore.New(row.client, nil).Check(t.Context())
			if row.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.want)
			}
		})
	}
}

// calls counts the commands of a client, and runs a function after each.
type calls struct {
	commands atomic.Int64
	after    func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error
}

func (*calls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		err := next(ctx, cmd)
		if c.after != nil && err == nil {
			return c.after(ctx, next, cmd)
		}
		return err
	}
}

func (*calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestStore_roundTrips(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.StartTB(t))
	var counted calls
	c.AddHook(&counted)
	s := redisstore.New(c, nil)
	require.NoError(t, c.Ping(t.Context()).Err()) // connects
	sent := func(do func()) int64 {
		before := counted.commands.Load()
		do()
		return counted.commands.Load() - before
	}
	load := func() { _, _ = s.Load(t.Context(), newClaim("none").ID) }
	var lease idempotency.Lease
	assert.EqualValues(t, 2, sent(load), "the server does not have the script")
	assert.EqualValues(t, 1, sent(load))
	assert.EqualValues(t, 1, sent(func() { lease = acquire(t, s, "k") }), "Reserve of a new key")
	assert.EqualValues(t, 1, sent(func() { require.NoError(t, s.Renew(t.Context(), lease, time.Hour)) }), "Renew")
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	assert.EqualValues(t, 2, sent(func() { require.NoError(t, s.Complete(t.Context(), lease, completed("x"))) }), "Complete after SCRIPT FLUSH")
	assert.EqualValues(t, 2, sent(func() { requireReplay(t, s, "k", "x") }), "Reserve and Load of a finished key")
}

// A client that gets no reply sends the command again: the result is that of the first.
func TestStore_commandRepeated(t *testing.T) {
	c := connect(t, redistest.StartTB(t))
	c.AddHook(&calls{after: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error { return next(ctx, cmd) }})
	s := redisstore.New(c, nil)
	for _, row := range []struct {
		name string
		end  func(lease idempotency.Lease) error
		want idempotency.Status
	}{
		{"Renew", func(l idempotency.Lease) error { return s.Renew(t.Context(), l, time.Hour) }, idempotency.StatusInProgress},
		{"Complete", func(l idempotency.Lease) error { return s.Complete(t.Context(), l, completed("x")) }, idempotency.Completed},
		{"Complete as unknown", func(l idempotency.Lease) error {
			return s.Complete(t.Context(), l, idempotency.Outcome{Status: idempotency.Unknown})
		}, idempotency.Unknown},
		{"Release", func(l idempotency.Lease) error { return s.Release(t.Context(), l) }, idempotency.FailedRetryable},
	} {
		t.Run(row.name+": no error", func(t *testing.T) {
			lease := acquire(t, s, row.name)
			require.EqualValues(t, 1, lease.Generation)
			require.NoError(t, row.end(lease))
			record, err := s.Load(t.Context(), lease.ID)
			require.NoError(t, err)
			require.Equal(t, row.want, record.Status)
		})
	}
}

func TestReserve_poolExhausted(t *testing.T) {
	t.Parallel()
	o := options("unix", redistest.StartTB(t).Socket())
	o.PoolSize, o.PoolTimeout = 1, time.Millisecond
	c := client(t, o)
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.Ping(t.Context()).Err())
	require.ErrorIs(t, errOf(redisstore.New(c, nil).Reserve(t.Context(), newClaim("k"))), idempotency.ErrStoreBusy)
}

func TestReserve_serverHangs(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	s := redisstore.New(connect(t, server), nil)
	require.NoError(t, s.Check(t.Context()))
	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	claim := newClaim("k")
	require.Error(t, errOf(s.Reserve(ctx, claim)))
	require.NoError(t, server.Resume())
	reservation, err := s.Reserve(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, reservation.Decision, "the same owner gets its claim again")
	require.EqualValues(t, 1, reservation.Record.Generation)
}

// An operator deletes the keys of records: the operations are new, and the indexes mend.
func TestStore_keysDeleted(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.StartTB(t))
	s := redisstore.New(c, nil)
	short := newClaim("dead")
	short.Lease = time.Millisecond
	require.NoError(t, errOf(s.Reserve(t.Context(), short)))
	for i := range 150 { // more than one page
		require.NoError(t, s.Complete(t.Context(), acquire(t, s, "doubt"+strconv.Itoa(i)), idempotency.Outcome{Status: idempotency.Unknown}))
	}
	keys := c.Keys(t.Context(), "{idempotency}:record:*").Val()
	require.Len(t, keys, 151)
	require.NoError(t, c.Del(t.Context(), keys...).Err())
	require.NoError(t, s.Complete(t.Context(), acquire(t, s, "last"), idempotency.Outcome{Status: idempotency.Unknown}))
	time.Sleep(2 * time.Millisecond) // until the lease is over

	reaped, err := s.Reap(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, reaped)
	require.Zero(t, c.ZCard(t.Context(), "{idempotency}:lease").Val())
	var listed []string
	for record, err := range s.Unknown(t.Context(), "tenant") {
		require.NoError(t, err)
		listed = append(listed, record.Key)
	}
	require.Equal(t, []string{"last"}, listed)
	require.EqualValues(t, 1, acquire(t, s, "doubt7").Generation)
}

// A value that the store did not write is an error, and is not overwritten.
func TestStore_foreignRecords(t *testing.T) {
	c := connect(t, redistest.StartTB(t))
	s := redisstore.New(c, nil)
	key := "{idempotency}:record:tenant\x00charge\x00k"
	for _, row := range []struct {
		name, want string
		write      func(ctx context.Context) error
	}{
		{"a list: error", "WRONGTYPE", func(ctx context.Context) error { return c.LPush(ctx, key, "x").Err() }},
		{"a hash without times: error", "", func(ctx context.Context) error { return c.HSet(ctx, key, "status", "2").Err() }},
		{"a result that is damaged: error", "decode a record", func(ctx context.Context) error {
			return errors.Join(s.Complete(ctx, acquire(t, s, "k"), completed("x")), c.HSet(ctx, key, "result", "damaged").Err())
		}},
		{"a number that is damaged: error", "decode a record", func(ctx context.Context) error {
			return errors.Join(s.Complete(ctx, acquire(t, s, "k"), completed("x")), c.HSet(ctx, key, "generation", "x").Err())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.NoError(t, c.Del(t.Context(), key).Err())
			require.NoError(t, row.write(t.Context()))
			before := c.Dump(t.Context(), key).Val()
			require.ErrorContains(t, errOf(s.Reserve(t.Context(), newClaim("k"))), row.want)
			require.ErrorContains(t, errOf(s.Load(t.Context(), newClaim("k").ID)), row.want)
			require.Equal(t, before, c.Dump(t.Context(), key).Val())
		})
	}
}

// hashTag returns the part of a key by which a Redis Cluster chooses the node: what is between the first opening brace and the
// next closing one, or else the whole key.
func hashTag(key string) string {
	_, after, opened := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	if !opened || !closed || tag == "" {
		return key
	}
	return tag
}

// I13: all keys have one hash tag, and prefixes separate stores.
func TestNew_prefix(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })
	for _, row := range []struct {
		options *redisstore.Options
		want    string
	}{
		{nil, "{idempotency}:"}, {&redisstore.Options{}, "{idempotency}:"}, {&redisstore.Options{Prefix: "orders"}, "{orders}:"},
		{&redisstore.Options{Prefix: "a}b"}, "{a}b}:"}, {&redisstore.Options{Prefix: "{"}, "{{}:"}, {&redisstore.Options{Prefix: "{}"}, "{{}}:"},
	} {
		server.FlushAll()
		s := redisstore.New(cluster, row.options)
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, s.Complete(t.Context(), acquire(t, s, "{a}"), completed("x")))
		acquire(t, s, "{b}")
		require.NoError(t, s.Complete(t.Context(), acquire(t, s, "{c}"), idempotency.Outcome{Status: idempotency.Unknown}))
		requireReplay(t, s, "{a}", "x")
		require.Len(t, server.Keys(), 7)
		for _, key := range server.Keys() {
			require.True(t, strings.HasPrefix(key, row.want), key)
			require.Equal(t, hashTag(row.want), hashTag(key))
		}
	}
	other := redisstore.New(cluster, &redisstore.Options{Prefix: "other"})
	acquire(t, other, "{a}")
}

// A prefix that makes the hash tag empty would spread the keys of a script over a cluster's nodes (CROSSSLOT).
func TestNew_prefixWithoutHashTag(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	for _, prefix := range []string{"}", "}a", "}{a}", "}}"} {
		s := redisstore.New(client(t, options("tcp", server.Addr())), &redisstore.Options{Prefix: prefix})
		for operation, err := range map[string]error{
			"Check":    s.Check(t.Context()),
			"Reserve":  errOf(s.Reserve(t.Context(), newClaim("k"))),
			"Renew":    s.Renew(t.Context(), idempotency.Lease{ID: newClaim("k").ID, Owner: "o"}, time.Hour),
			"Complete": s.Complete(t.Context(), idempotency.Lease{ID: newClaim("k").ID, Owner: "o"}, completed("x")),
			"Load":     errOf(s.Load(t.Context(), newClaim("k").ID)),
			"Reap":     errOf(s.Reap(t.Context(), 1)),
			"Sweep":    errOf(s.Sweep(t.Context(), 1)),
		} {
			require.ErrorIs(t, err, idempotency.ErrInvalid, operation)
			require.ErrorContains(t, err, fmt.Sprintf("redisstore: Options.Prefix: %q", prefix), operation)
		}
		require.Empty(t, server.Keys())
	}
}

// The size of a record, so that the documentation can tell it.
func TestStore_memory(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.StartTB(t))
	s := redisstore.New(c, nil)
	require.NoError(t, s.Complete(t.Context(), acquire(t, s, strings.Repeat("k", 36)), completed(`{"id":"ch_1"}`)))
	key := c.Keys(t.Context(), "{idempotency}:record:*").Val()[0]
	used := c.MemoryUsage(t.Context(), key).Val()
	require.Less(t, used, int64(1500))
	text, err := json.Marshal(c.HGetAll(t.Context(), key).Val())
	require.NoError(t, err)
	t.Logf("%d bytes: %s", used, text)
}

// With appendfsync always, what was acknowledged before a SIGKILL of the server is there
// after its restart.
func TestStore_serverKilled(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	c := connect(t, server)
	s := redisstore.New(c, nil)
	for round := range 5 {
		require.Eventually(t, func() bool { return c.ConfigSet(t.Context(), "appendfsync", "always").Err() == nil }, time.Minute, time.Millisecond)
		var mu sync.Mutex
		held, done := map[string]idempotency.Lease{}, map[string]string{}
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprint(round, "-", worker, "-", n)
					reservation, err := s.Reserve(t.Context(), newClaim(key))
					if err != nil {
						return
					}
					lease := reservation.Record.Lease()
					mu.Lock()
					held[key] = lease
					mu.Unlock()
					if n%2 == 0 {
						continue
					}
					if s.Complete(t.Context(), lease, completed(key)) != nil {
						return
					}
					mu.Lock()
					done[key] = key
					mu.Unlock()
				}
			})
		}
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(done) > 100
		}, time.Minute, time.Millisecond)
		require.NoError(t, server.Crash())
		all.Wait()
		require.NoError(t, server.Restart(t.Context()))
		for key := range held {
			record, err := s.Load(t.Context(), newClaim(key).ID)
			for err != nil && !strings.Contains(err.Error(), "no such record") { // a connection of before
				record, err = s.Load(t.Context(), newClaim(key).ID)
			}
			require.NoError(t, err, key)
			require.Equal(t, held[key], record.Lease())
			if body, ok := done[key]; ok {
				require.Equal(t, idempotency.Completed, record.Status)
				require.Equal(t, body, string(record.Result.Body))
			}
		}
		t.Logf("%d claims and %d results survived", len(held), len(done))
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
