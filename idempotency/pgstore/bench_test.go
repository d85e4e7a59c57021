package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// service is a service with its database.
type service struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
	next  atomic.Int64
}

// kind is a way to execute an operation, or to answer a duplicate.
type kind struct {
	name string
	do   func(s *service, ctx context.Context) error
}

// kinds are the ways to compare. raw is the service's own transaction without a record.
// hand3 and hand2 are the same work with the record, written by hand with pgx: in three
// round trips as the store, and in two, with the work in the flight of its record.
var kinds = []kind{
	{"raw", (*service).raw},
	{"joined", (*service).joined},
	{"hand3", (*service).hand3},
	{"hand2", (*service).hand2},
	{"detached", (*service).detached},
	{"replay", (*service).replayDetached},
	{"joined-replay", (*service).replayJoined},
}

const insertCharge = `INSERT INTO charges (id, account, amount, note) VALUES ($1, 'acct_1', 100, 'a note of usual length')`

func (s *service) key() string { return benchKey(s.next.Add(1)) }

func benchKey(n int64) string {
	return fmt.Sprintf("%08x-40d5-43e8-bc93-%012d", uint32(n*2654435761), n)
}

func (s *service) raw(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertCharge, s.key())
		return err
	})
}

// The statements of hand3 and hand2.
const (
	handLock = `SELECT pg_try_advisory_xact_lock(hashtextextended($1::text || chr(1) || $2::text || chr(1) || $3::text, 0))`
	handLoad = `SELECT status, fingerprint, code, header, body FROM idempotency_records WHERE scope = $1 AND operation = $2 AND key = $3`

	handInsert = `INSERT INTO idempotency_records
		(scope, operation, key, fingerprint, status, owner, generation, takeover, started, updated, expires, code, header, body)
		VALUES ($1, $2, $3, $4, 2, $5, 1, 0, now(), now(), now() + interval '1 day', 201, $6, $7)`
)

func (s *service) hand3(ctx context.Context) error { return s.hand(ctx, false) }
func (s *service) hand2(ctx context.Context) error { return s.hand(ctx, true) }

func (s *service) hand(ctx context.Context, two bool) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	key := s.key()
	var begin, commit pgx.Batch
	begin.Queue("begin")
	begin.Queue(handLock, "tenant", "POST /charges", key)
	begin.Queue(handLoad, "tenant", "POST /charges", key)
	if err := conn.SendBatch(ctx, &begin).Close(); err != nil {
		return err
	}
	if two {
		commit.Queue(insertCharge, key)
	} else if _, err := conn.Exec(ctx, insertCharge, key); err != nil {
		return err
	}
	commit.Queue(handInsert, "tenant", "POST /charges", key, "v1:a", driver.NewOwner(), `{"Content-Type":["application/json"]}`, completed.Result.Body)
	commit.Queue("commit")
	return conn.SendBatch(ctx, &commit).Close()
}

func (s *service) joined(ctx context.Context) error { return s.joinedIn(ctx, s.store) }

func (s *service) joinedIn(ctx context.Context, store *pgstore.Store) error {
	claim := benchClaim(s.key())
	reservation, tx, err := store.Begin(ctx, claim, time.Minute)
	if err != nil || tx == nil {
		return fmt.Errorf("%v, %w", reservation.Decision, err)
	}
	if _, err := tx.Value().(pgx.Tx).Exec(ctx, insertCharge, claim.Key); err != nil {
		return err
	}
	return tx.Commit(ctx, completed)
}

func (s *service) detached(ctx context.Context) error {
	reservation, err := s.store.Reserve(ctx, benchClaim(s.key()))
	if err != nil {
		return err
	}
	return s.store.Complete(ctx, reservation.Record.Lease(), completed)
}

// replayed is the number of completed records.
const replayed = 1000

func (s *service) replayDetached(ctx context.Context) error {
	reservation, err := s.store.Reserve(ctx, benchClaim(benchKey(-1-s.next.Add(1)%replayed)))
	return done(&reservation, err)
}

func (s *service) replayJoined(ctx context.Context) error {
	reservation, _, err := s.store.Begin(ctx, benchClaim(benchKey(-1-s.next.Add(1)%replayed)), time.Minute)
	return done(&reservation, err)
}

func done(reservation *driver.Reservation, err error) error {
	if err == nil && reservation.Decision != driver.Done {
		err = fmt.Errorf("%v, want done", reservation.Decision)
	}
	return err
}

func benchClaim(key string) driver.Claim {
	claim := newClaim(key)
	claim.Lease = 30 * time.Second
	return claim
}

func newBench(b *testing.B, configure func(*pgxpool.Config)) *service {
	b.Helper()
	return newBenchAt(b, postgrestest.Open(b), configure)
}

func newBenchAt(b *testing.B, dsn string, configure func(*pgxpool.Config)) *service {
	b.Helper()
	pool := newPool(b, dsn, func(c *pgxpool.Config) {
		c.MaxConns, c.MinConns = 64, 64
		if configure != nil {
			configure(c)
		}
	})
	_, err := pool.Exec(b.Context(), `CREATE TABLE charges (
		id text PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL, note text NOT NULL, created timestamptz NOT NULL DEFAULT now()
	)`)
	require.NoError(b, err)
	all := &service{pool: pool, store: newStore(b, pool)}
	near := newStore(b, newPool(b, dsn, nil)) // pool may have one connection, to a database that is far away
	for n := range int64(replayed) {
		reservation, err := near.Reserve(b.Context(), benchClaim(benchKey(-1-n)))
		require.NoError(b, err)
		require.NoError(b, near.Complete(b.Context(), reservation.Record.Lease(), completed))
	}
	return all
}

// BenchmarkCompare runs the kinds in turn, for a fifth of a second each (with -short, a fiftieth), so that all
// see the same noise. It reports the median of the ratios to raw, and, on Linux, the
// processor time of an operation in the server and in this process together, of the
// rounds with the least noise (the lowest eighth).
//
//	go test -run '^$' -bench Compare -benchtime 20x .
func BenchmarkCompare(b *testing.B) {
	all := newBench(b, nil)
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { all.compare(b, clients, kinds) })
	}
}

func (s *service) compare(b *testing.B, clients int, kinds []kind) {
	b.Helper()
	slice := 200 * time.Millisecond
	if testing.Short() {
		slice = 20 * time.Millisecond
	}
	rates, cpu := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	servers := s.backends(b)
	for range b.N {
		for i, k := range kinds {
			var count atomic.Int64
			used := processorTime(servers)
			began := time.Now()
			atOnce(clients, func(int) {
				for time.Since(began) < slice {
					if err := k.do(s, context.Background()); err != nil {
						b.Error(err)
						return
					}
					count.Add(1)
				}
			})
			rates[i] = append(rates[i], float64(count.Load())/time.Since(began).Seconds())
			cpu[i] = append(cpu[i], (processorTime(servers)-used).Seconds()*1e6/float64(count.Load()))
		}
	}
	ratio := make([]float64, b.N)
	for i, k := range kinds {
		for round := range ratio {
			ratio[round] = rates[i][round] / rates[0][round]
		}
		b.ReportMetric(median(rates[i]), k.name+"/s")
		b.ReportMetric(median(ratio), k.name+"/raw")
		slices.Sort(cpu[i])
		b.ReportMetric(cpu[i][b.N/8], k.name+"-cpu-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// backends returns the server's processes for the pool's connections.
func (s *service) backends(b *testing.B) []int {
	b.Helper()
	rows, err := s.pool.Query(b.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = current_setting('application_name')`)
	require.NoError(b, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(b, err)
	return pids
}

// processorTime returns the processor time of this process and of others, where Linux
// tells it.
func processorTime(pids []int) (total time.Duration) {
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, pid := range pids {
		threads = append(threads, fmt.Sprintf("/proc/%d/schedstat", pid))
	}
	for _, name := range threads {
		var running int64
		stat, _ := os.ReadFile(name)
		if _, err := fmt.Sscan(string(stat), &running); err == nil {
			total += time.Duration(running)
		}
	}
	return total
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// BenchmarkDistance measures one client with a database that is 4 ms away. A ratio of the rates
// of 1/1.05 is a latency of 1.05.
//
//	go test -run '^$' -bench Distance -benchtime 20x .
func BenchmarkDistance(b *testing.B) {
	all := newBench(b, func(c *pgxpool.Config) {
		c.MaxConns, c.MinConns = 1, 1
		c.ConnConfig.DialFunc = distant(b, 2*time.Millisecond)
	})
	all.compare(b, 1, kinds)
}

// distant dials through a proxy that delays all data by d, in each direction.
func distant(b *testing.B, d time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	b.Helper()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		server, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // It has served.
		client, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return nil, err
		}
		proxy, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		go delay(server, proxy, d)
		go delay(proxy, server, d)
		return client, nil
	}
}

// delay copies data after a delay.
func delay(to, from net.Conn, d time.Duration) {
	type parcel struct {
		bytes []byte
		due   time.Time
	}
	parcels := make(chan parcel, 1000)
	go func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			parcels <- parcel{buffer[:n], time.Now().Add(d)}
		}
	}()
	for p := range parcels {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			_ = from.Close()
		}
	}
	_ = to.Close()
}

// BenchmarkRows compares on an empty table and on one of five million records (with
// -short, of a thousand).
func BenchmarkRows(b *testing.B) {
	millions := 5_000_000
	if testing.Short() {
		millions = 1000
	}
	for _, rows := range []int{0, millions} {
		all := newBench(b, nil)
		all.fill(b, rows)
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("rows=%d/clients=%d", rows, clients), func(b *testing.B) { all.compare(b, clients, kinds) })
		}
	}
}

// fill writes records. It builds the indexes after that, which is faster.
func (s *service) fill(b *testing.B, rows int) {
	b.Helper()
	var indexes []string
	err := s.pool.QueryRow(b.Context(), `SELECT array_agg(indexdef) FROM pg_indexes
		WHERE tablename = 'idempotency_records' AND indexname <> 'idempotency_records_pkey' AND schemaname = current_schema()`).Scan(&indexes)
	require.NoError(b, err)
	execute := func(statement string) {
		_, err := s.pool.Exec(b.Context(), statement)
		require.NoError(b, err, statement)
	}
	execute(`ALTER TABLE idempotency_records DROP CONSTRAINT idempotency_records_pkey`)
	execute(`DROP INDEX idempotency_records_expires, idempotency_records_open`)
	require.NoError(b, fill(b.Context(), s.pool, rows))
	execute(`ALTER TABLE idempotency_records ADD PRIMARY KEY (scope, operation, key)`)
	for _, index := range indexes {
		execute(index)
	}
	execute(`VACUUM ANALYZE idempotency_records`)
}

// atOnce calls f n times concurrently, and waits.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
