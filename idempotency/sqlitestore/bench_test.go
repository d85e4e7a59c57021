package sqlitestore_test

import (
	"bytes"
	"context"
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

// The benchmarks write the same rows into the same table with the same flushes, a
// result of about 1 KiB, by one client and by 16:
//
//	raw       one immediate transaction that inserts a row and updates it
//	joined    Reserve, Begin, Commit
//	detached  Reserve, Complete
//	replay    Reserve of an operation that is finished
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
			modes := map[string]func(key string) error{
				"raw": raw(b, store), "joined": joined(store), "detached": detached(store), "replay": replay(b, store),
			}
			took := make(map[string][]float64)
			var keys atomic.Int64
			for b.Loop() {
				for _, mode := range []string{"raw", "joined", "detached", "replay"} {
					took[mode] = append(took[mode], turn(b, clients, &keys, modes[mode]))
				}
			}
			for mode, all := range took {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], mode+"-µs/op")
			}
			b.ReportMetric(100*took["raw"][len(took["raw"])/2]/took["joined"][len(took["joined"])/2], "joined-%-of-raw")
			b.ReportMetric(100*took["raw"][len(took["raw"])/2]/took["detached"][len(took["detached"])/2], "detached-%-of-raw")
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

const (
	rawInsert = `INSERT INTO idempotency_records
		(scope, operation, key, fingerprint, status, owner, generation, started, updated, lease_expires, expires)
		VALUES (?, ?, ?, ?, 1, ?, 1, 1, 1, 2, 3000000000000)`
	rawUpdate = `UPDATE idempotency_records SET status = 2, code = ?, header = ?, body = ?, updated = 5
		WHERE scope = ? AND operation = ? AND key = ?`
)

func raw(b *testing.B, store *sqlitestore.Store) func(key string) error {
	b.Helper()
	insert, err := store.DB().Prepare(rawInsert)
	require.NoError(b, err)
	update, err := store.DB().Prepare(rawUpdate)
	require.NoError(b, err)
	outcome, header := benchmarkOutcome(), make([]byte, 60)
	var one sync.Mutex // SQLite's own waiting is not what is measured
	return func(key string) error {
		one.Lock()
		defer one.Unlock()
		c := claimOf(key)
		tx, err := store.DB().Begin()
		if err != nil {
			return err
		}
		insert, update := tx.Stmt(insert), tx.Stmt(update) //nolint:sqlclosecheck // the transaction's end closes them
		if _, err := insert.Exec(c.Scope, c.Operation, c.Key, string(c.Fingerprint), c.Owner); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if _, err := update.Exec(outcome.Result.Code, header, outcome.Result.Body, c.Scope, c.Operation, c.Key); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
}

func joined(store *sqlitestore.Store) func(key string) error {
	ctx := context.Background()
	return func(key string) error {
		claim := claimOf(key)
		claim.Joined = true
		reservation, err := store.Reserve(ctx, claim)
		if err != nil {
			return err
		}
		tx, err := store.Begin(ctx, reservation.Record.Lease(), 0)
		if err != nil {
			return err
		}
		return tx.Commit(ctx, benchmarkOutcome())
	}
}

func detached(store *sqlitestore.Store) func(key string) error {
	ctx := context.Background()
	return func(key string) error {
		reservation, err := store.Reserve(ctx, claimOf(key))
		if err != nil {
			return err
		}
		return store.Complete(ctx, reservation.Record.Lease(), benchmarkOutcome())
	}
}

func replay(b *testing.B, store *sqlitestore.Store) func(key string) error {
	b.Helper()
	claim := claimOf("finished")
	require.NoError(b, store.Complete(b.Context(), acquire(b, store, claim), benchmarkOutcome()))
	return func(string) error {
		_, err := store.Reserve(context.Background(), claim)
		return err
	}
}

// Each by itself, by one client: for profiles, and for counting flushes to disk,
// which are as many in joined as in raw, and twice as many in detached:
//
//	go test -c && strace -f -c -e trace=fsync,fdatasync \
//		./sqlitestore.test -test.run '^$' -test.bench Joined -test.benchtime 300x

func BenchmarkRaw(b *testing.B)      { store := benchmarkStore(b); alone(b, raw(b, store)) }
func BenchmarkJoined(b *testing.B)   { alone(b, joined(benchmarkStore(b))) }
func BenchmarkDetached(b *testing.B) { alone(b, detached(benchmarkStore(b))) }
func BenchmarkReplay(b *testing.B)   { store := benchmarkStore(b); alone(b, replay(b, store)) }

func alone(b *testing.B, op func(key string) error) {
	b.Helper()
	var keys atomic.Int64
	for b.Loop() {
		if err := op(benchmarkKey(&keys)); err != nil {
			b.Fatal(err)
		}
	}
}
