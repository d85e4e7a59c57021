package pgstore_test

import (
	"context"
	"fmt"
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

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
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
var kinds = []kind{
	{"raw", (*service).raw},
	{"joined", (*service).joined},
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
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return errOf(tx.Exec(ctx, insertCharge, s.key())) })
}

func (s *service) joined(ctx context.Context) error {
	claim := benchClaim(s.key())
	reservation, tx, err := s.store.Begin(ctx, claim, time.Minute)
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

func done(reservation *idempotency.Reservation, err error) error {
	if err == nil && reservation.Decision != idempotency.DecisionDone {
		err = fmt.Errorf("%v, want done", reservation.Decision)
	}
	return err
}

func benchClaim(key string) idempotency.Claim {
	claim := newClaim(key)
	claim.Lease = 30 * time.Second
	return claim
}

func newBench(b *testing.B) *service {
	b.Helper()
	dsn := postgrestest.Open(b)
	pool := newPool(b, dsn, func(c *pgxpool.Config) { c.MaxConns, c.MinConns = 64, 64 })
	_, err := pool.Exec(b.Context(), `CREATE TABLE charges (
		id text PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL, note text NOT NULL, created timestamptz NOT NULL DEFAULT now()
	)`)
	require.NoError(b, err)
	all := &service{pool: pool, store: newStore(b, pool)}
	for n := range int64(replayed) {
		reservation, err := all.store.Reserve(b.Context(), benchClaim(benchKey(-1-n)))
		require.NoError(b, err)
		require.NoError(b, all.store.Complete(b.Context(), reservation.Record.Lease(), completed))
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
	all := newBench(b)
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

// records are the ways to execute an operation once without any work, beside what a service writes by hand: an INSERT that may
// conflict, and an UPDATE with the response. Its table has one more index, because old keys must be found and deleted.
var records = []kind{
	{"hand", (*service).hand},
	{"leased", (*service).detached},
	{"transactional", (*service).alone},
}

const handTable = `CREATE TABLE requests (
	tenant text NOT NULL, operation text NOT NULL, key text NOT NULL, fingerprint text NOT NULL, status smallint NOT NULL, owner text NOT NULL,
	created timestamptz NOT NULL DEFAULT now(), code integer, header text, body bytea, PRIMARY KEY (tenant, operation, key)
);
CREATE INDEX ON requests (created)`

func (s *service) hand(ctx context.Context) error {
	claim := benchClaim(s.key())
	tag, err := s.pool.Exec(ctx, `INSERT INTO requests (tenant, operation, key, fingerprint, status, owner) VALUES ($1, $2, $3, $4, 1, $5)
		ON CONFLICT DO NOTHING`, claim.Scope, claim.Operation, claim.Key, string(claim.Fingerprint), claim.Owner)
	if err != nil || tag.RowsAffected() != 1 {
		return fmt.Errorf("%v, %w", tag, err)
	}
	header, err := sqlrecord.EncodeHeader(completed.Result.Header)
	if err != nil {
		return err
	}
	return errOf(s.pool.Exec(ctx, `UPDATE requests SET status = 2, code = $4, header = $5, body = $6 WHERE tenant = $1 AND operation = $2 AND key = $3`,
		claim.Scope, claim.Operation, claim.Key, completed.Result.Code, string(header), completed.Result.Body))
}

func (s *service) alone(ctx context.Context) error {
	reservation, tx, err := s.store.Begin(ctx, benchClaim(s.key()), time.Minute)
	if err != nil || tx == nil {
		return fmt.Errorf("%v, %w", reservation.Decision, err)
	}
	return tx.Commit(ctx, completed)
}

// BenchmarkRecord compares what a record costs with what the same costs by hand: processor time of the server and of this process,
// and bytes of the write-ahead log. The kinds run in turn, and each figure is a median of the rounds.
//
//	go test -run '^$' -bench Record -benchtime 60x .
func BenchmarkRecord(b *testing.B) {
	all := newBench(b)
	require.NoError(b, errOf(all.pool.Exec(b.Context(), handTable)))
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { all.compareRecords(b, clients) })
	}
}

// recordsPerRound is the number of operations of a round.
const recordsPerRound = 400

func (s *service) compareRecords(b *testing.B, clients int) {
	b.Helper()
	cpu, wal := make([][]float64, len(records)), make([][]float64, len(records))
	servers := s.backends(b)
	for round := range b.N + 1 {
		for i, k := range records {
			used, written := processorTime(servers), s.walPosition(b)
			atOnce(clients, func(int) {
				for range recordsPerRound / clients {
					if err := k.do(s, context.Background()); err != nil {
						b.Error(err)
						return
					}
				}
			})
			if round == 0 { // the statements were prepared
				continue
			}
			cpu[i] = append(cpu[i], (processorTime(servers)-used).Seconds()*1e6/recordsPerRound)
			wal[i] = append(wal[i], float64(s.walPosition(b)-written)/recordsPerRound)
		}
	}
	cpuRatio, walRatio := make([]float64, b.N), make([]float64, b.N)
	for i, k := range records {
		for round := range b.N {
			cpuRatio[round], walRatio[round] = cpu[i][round]/cpu[0][round], wal[i][round]/wal[0][round]
		}
		b.ReportMetric(median(cpu[i]), k.name+"-cpu-µs")
		b.ReportMetric(median(wal[i]), k.name+"-wal-B")
		b.ReportMetric(median(cpuRatio), k.name+"-cpu/hand")
		b.ReportMetric(median(walRatio), k.name+"-wal/hand")
	}
	b.ReportMetric(0, "ns/op")
}

// walPosition returns the number of bytes that were ever written to the write-ahead log.
func (s *service) walPosition(b *testing.B) (n int64) {
	b.Helper()
	require.NoError(b, s.pool.QueryRow(b.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&n))
	return n
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

// atOnce calls f n times concurrently, and waits.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
