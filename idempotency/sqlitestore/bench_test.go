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

// The benchmarks are of a service that writes a row of its own for each operation and
// responds with about 1 KiB. All commits have synchronous=FULL.
//
//	raw              begin immediate, insert, commit, without this package
//	transactional    Begin, insert, Commit
//	nontransactional Reserve, Complete
//	replay           Begin of an operation that is completed
//
// Command, for 1 and 16 clients:
//
//	go test -run '^$' -bench 'Modes' -benchtime 60x .

func benchmarkOutcome() idempotency.Outcome {
	return idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{
		Code:   http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}},
		Body:   bytes.Repeat([]byte(`{"id":"ch_1"}`), 72),
	}}
}

// BenchmarkModes measures the modes interleaved, some operations at a time, and reports
// the medians of durations and of ratios to raw in the same round.
func BenchmarkModes(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			compare(b, clients, new(atomic.Int64), benchmarkModes(b, open(b, filepath.Join(b.TempDir(), "bench.db"))), "raw")
		})
	}
}

// compare reports the microseconds of each mode and the ratio of its speed to base's.
func compare(
	b *testing.B, clients int, keys *atomic.Int64, modes map[string]func(key string) error, base string,
) {
	b.Helper()
	took, ratios := make(map[string][]float64), make(map[string][]float64)
	for b.Loop() {
		for mode, do := range modes { // in random order
			ops := 64
			if mode == "replay" {
				ops = 1024 // they are quick
			}
			took[mode] = append(took[mode], round(b, clients, ops, keys, do))
		}
		for mode, all := range took {
			last := len(all) - 1
			ratios[mode] = append(ratios[mode], took[base][last]/all[last])
		}
	}
	for mode := range modes {
		b.ReportMetric(median(took[mode]), mode+"-µs/op")
		if mode != base {
			b.ReportMetric(median(ratios[mode]), mode+"/"+base)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// round runs operations and returns the microseconds of one.
func round(b *testing.B, clients, ops int, keys *atomic.Int64, op func(key string) error) float64 {
	b.Helper()
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
	return float64(time.Since(began).Microseconds()) / float64(ops)
}

// benchmarkKey returns a new key with a random position in the index.
func benchmarkKey(keys *atomic.Int64) string {
	return "key-" + strconv.FormatUint(uint64(keys.Add(1))*0x9e3779b97f4a7c15, 36)
}

// The service's own table.
const (
	makeCharges  = `CREATE TABLE charges (id TEXT PRIMARY KEY, account TEXT NOT NULL, cents INTEGER NOT NULL, note TEXT NOT NULL)`
	insertCharge = `INSERT INTO charges (id, account, cents, note) VALUES (?, 'account', 4200, 'an example of a charge')`
)

func benchmarkModes(tb testing.TB, store *sqlitestore.Store) map[string]func(key string) error {
	tb.Helper()
	execute(tb, store.DB(), makeCharges)
	insert, err := store.DB().Prepare(insertCharge)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = insert.Close() })
	return map[string]func(key string) error{
		"raw": raw(store, insert), "transactional": transactional(store, insert), "nontransactional": nontransactional(store),
		"replay": replay(tb, store),
	}
}

func raw(store *sqlitestore.Store, insert *sql.Stmt) func(key string) error {
	var one sync.Mutex // without SQLite's own wait for the lock
	return func(key string) error {
		one.Lock()
		defer one.Unlock()
		tx, err := store.DB().Begin()
		if err != nil {
			return err
		}
		if _, err := tx.Stmt(insert).Exec(key); err != nil { //nolint:sqlclosecheck // the transaction's end closes it
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
}

func transactional(store *sqlitestore.Store, insert *sql.Stmt) func(key string) error {
	ctx := context.Background()
	outcome := benchmarkOutcome()
	return func(key string) error {
		_, tx, err := store.Begin(ctx, claimOf(key), 0)
		if err != nil {
			return err
		}
		work := tx.Value().(*sql.Tx)
		if _, err := work.Stmt(insert).Exec(key); err != nil { //nolint:sqlclosecheck // the transaction's end closes it
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx, outcome)
	}
}

func nontransactional(store *sqlitestore.Store) func(key string) error {
	ctx := context.Background()
	return func(key string) error {
		reservation, err := store.Reserve(ctx, claimOf(key))
		if err != nil {
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
