package sqlitestore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// The benchmarks are of a service that writes a row of its own for each operation,
// with an answer of about 1 KiB, by one client and by 16:
//
//	raw       its transaction: begin, insert, commit, and nothing of ours
//	joined    Begin, insert, Commit
//	detached  Reserve, raw, Complete
//	claimed   Reserve, Complete: detached less the service's own
//	replay    Begin of an operation that is finished
func benchmarkOutcome() idempotency.Outcome {
	return idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{
		Code:   http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}},
		Body:   bytes.Repeat([]byte(`{"id":"ch_1"}`), 72),
	}}
}

func benchmarkStore(b *testing.B) *sqlitestore.Store {
	b.Helper()
	return open(b, filepath.Join(b.TempDir(), "bench.db"))
}

// BenchmarkModes measures them in turns, a few operations of each at a time, and
// gives the medians, so that a machine that has other work is so to all of them.
func BenchmarkModes(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			store := benchmarkStore(b)
			modes := benchmarkModes(b, store)
			took := make(map[string][]float64)
			var keys atomic.Int64
			for b.Loop() {
				for mode, do := range modes {
					took[mode] = append(took[mode], turn(b, clients, &keys, do))
				}
			}
			for _, all := range took {
				slices.Sort(all)
			}
			for mode, all := range took {
				median := all[len(all)/2]
				b.ReportMetric(median, mode+"-µs/op")
				b.ReportMetric(took["raw"][len(all)/2]/median, mode+"/raw")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// turn has the clients do 64 operations, and gives the microseconds for each.
func turn(b *testing.B, clients int, keys *atomic.Int64, op func(key string) error) float64 {
	b.Helper()
	const ops = 64
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			for range ops / clients {
				if err := op(benchmarkKey(keys)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	return float64(time.Since(began).Microseconds()) / ops
}

// benchmarkKey is a new one, somewhere among the others.
func benchmarkKey(keys *atomic.Int64) string {
	return "key-" + strconv.FormatUint(uint64(keys.Add(1))*0x9e3779b97f4a7c15, 36)
}

// The service's own table, and what it writes into it.
const (
	makeCharges  = `CREATE TABLE charges (id TEXT PRIMARY KEY, account TEXT NOT NULL, cents INTEGER NOT NULL, detail BLOB)`
	insertCharge = `INSERT INTO charges (id, account, cents, detail) VALUES (?, 'account', 4200, ?)`
)

func benchmarkModes(tb testing.TB, store *sqlitestore.Store) map[string]func(key string) error {
	tb.Helper()
	execute(tb, store.DB(), makeCharges)
	insert, err := store.DB().Prepare(insertCharge)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = insert.Close() })
	service := raw(store, insert)
	return map[string]func(key string) error{
		"raw": service, "joined": joined(store, insert), "replay": replay(tb, store),
		"detached": detached(store, service), "claimed": detached(store, func(string) error { return nil }),
	}
}

func raw(store *sqlitestore.Store, insert *sql.Stmt) func(key string) error {
	body := benchmarkOutcome().Result.Body
	var one sync.Mutex // SQLite's own waiting is not what is measured
	return func(key string) error {
		one.Lock()
		defer one.Unlock()
		tx, err := store.DB().Begin()
		if err != nil {
			return err
		}
		if _, err := tx.Stmt(insert).Exec(key, body); err != nil { //nolint:sqlclosecheck // the transaction's end closes it
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
}

func joined(store *sqlitestore.Store, insert *sql.Stmt) func(key string) error {
	ctx := context.Background()
	outcome := benchmarkOutcome()
	return func(key string) error {
		_, tx, err := store.Begin(ctx, claimOf(key), 0)
		if err != nil {
			return err
		}
		work := tx.Value().(*sql.Tx)
		if _, err := work.Stmt(insert).Exec(key, outcome.Result.Body); err != nil { //nolint:sqlclosecheck // likewise
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx, outcome)
	}
}

func detached(store *sqlitestore.Store, service func(key string) error) func(key string) error {
	ctx := context.Background()
	return func(key string) error {
		reservation, err := store.Reserve(ctx, claimOf(key))
		if err != nil {
			return err
		}
		if err := service(key); err != nil {
			return err
		}
		return store.Complete(ctx, reservation.Record.Lease(), benchmarkOutcome())
	}
}

func replay(tb testing.TB, store *sqlitestore.Store) func(key string) error {
	tb.Helper()
	claim := claimOf("finished")
	require.NoError(tb, store.Complete(tb.Context(), acquire(tb, store, claim), benchmarkOutcome()))
	return func(string) error {
		_, _, err := store.Begin(context.Background(), claim, 0)
		return err
	}
}

// Each by itself, by one client: for profiles, and for counting flushes to disk,
// which are as many in joined as in raw, and twice as many in detached:
//
//	go test -c && strace -f -c -e trace=fsync,fdatasync \
//		./sqlitestore.test -test.run '^$' -test.bench Joined -test.benchtime 300x

func BenchmarkRaw(b *testing.B)      { alone(b, "raw") }
func BenchmarkJoined(b *testing.B)   { alone(b, "joined") }
func BenchmarkDetached(b *testing.B) { alone(b, "claimed") }
func BenchmarkReplay(b *testing.B)   { alone(b, "replay") }

func alone(b *testing.B, mode string) {
	b.Helper()
	op := benchmarkModes(b, benchmarkStore(b))[mode]
	var keys atomic.Int64
	for b.Loop() {
		if err := op(benchmarkKey(&keys)); err != nil {
			b.Fatal(err)
		}
	}
}
