package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// tenants is how many share what is done here.
const tenants = 100

func enqueue(scope, key string) durable.Event {
	return durable.Event{Kind: durable.EventEnqueue, Intent: durable.Intent{
		ID: idempotency.ID{Scope: scope, Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}}
}

// batch is n new intents, of all tenants in turn.
func batch(from, n int) []durable.Event {
	events := make([]durable.Event, n)
	for i := range events {
		events[i] = enqueue(fmt.Sprintf("tenant %02d", (from+i)%tenants), strconv.Itoa(from+i))
	}
	return events
}

func applyAll(tb testing.TB, store durable.Store, events []durable.Event) {
	tb.Helper()
	results, err := store.Apply(tb.Context(), events)
	require.NoError(tb, err)
	for i := range results {
		require.NoError(tb, results[i].Err)
	}
}

// size is how many intents a benchmark is about: with -short it only shows that it runs.
func size(n int) int {
	if testing.Short() {
		return min(n, 200)
	}
	return n
}

type noop struct{}

func (noop) Send(context.Context, *durable.Send) durable.Outcome {
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// BenchmarkEnqueue is Engine.Enqueue, each a commit of its own: by one caller and by 16.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			store := open(b, filepath.Join(b.TempDir(), "bench.db"))
			engine := &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"psp": noop{}}}
			next := make(chan durable.Event, callers)
			failed := make(chan error, callers)
			for range callers {
				go func() {
					var failure error
					for e := range next {
						if _, err := engine.Enqueue(context.Background(), e.Intent); err != nil {
							failure = err
						}
					}
					failed <- failure
				}()
			}
			events := batch(0, b.N)
			b.ResetTimer()
			for _, e := range events {
				next <- e
			}
			close(next)
			for range callers {
				require.NoError(b, <-failed)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intents/s")
		})
	}
}

// BenchmarkInsert is batches of one commit each.
func BenchmarkInsert(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("batch=", n), func(b *testing.B) {
			store := open(b, filepath.Join(b.TempDir(), "bench.db"))
			done := 0
			for b.Loop() {
				applyAll(b, store, batch(done, n))
				done += n
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "intents/s")
		})
	}
}

// BenchmarkWithin is an intent in a transaction of the caller's, less that of the same
// transaction with a row of the caller's alone.
func BenchmarkWithin(b *testing.B) {
	for _, mode := range []string{"row", "row and intent"} {
		b.Run(mode, func(b *testing.B) {
			store := open(b, filepath.Join(b.TempDir(), "bench.db"))
			_, err := store.DB().Exec("CREATE TABLE orders (id TEXT) STRICT")
			require.NoError(b, err)
			i := 0
			for b.Loop() {
				tx, err := store.DB().BeginTx(b.Context(), nil)
				require.NoError(b, err)
				_, err = tx.Exec("INSERT INTO orders VALUES (?)", strconv.Itoa(i))
				require.NoError(b, err)
				if mode != "row" {
					_, err = store.Within(tx).Enqueue(b.Context(), enqueue("a", strconv.Itoa(i)).Intent)
					require.NoError(b, err)
				}
				require.NoError(b, tx.Commit())
				i++
			}
		})
	}
}

// BenchmarkWork is 10,000 intents that wait: claimed and finished by the store's verbs, a
// hundred at a time, and by an Engine with a Gateway that does nothing.
func BenchmarkWork(b *testing.B) {
	for mode, work := range map[string]func(*testing.B, *sqlitestore.Store){
		"verbs": verbs,
		"engine": func(b *testing.B, store *sqlitestore.Store) {
			b.Helper()
			engine := &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"psp": noop{}}, TTL: -1}
			_, err := engine.Work(b.Context(), 1<<30)
			require.NoError(b, err)
		},
	} {
		b.Run(mode, func(b *testing.B) {
			var took time.Duration
			n, rounds := size(10_000), 0
			for b.Loop() {
				b.StopTimer()
				store, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), strconv.Itoa(rounds)))
				require.NoError(b, err)
				for i := 0; i < n; i += 100 {
					applyAll(b, store, batch(i, 100))
				}
				b.StartTimer()
				began := time.Now()
				work(b, store)
				took += time.Since(began)
				b.StopTimer()
				stats, err := store.Stats(b.Context())
				require.NoError(b, err)
				require.Equal(b, n, stats.States[durable.StateDone])
				require.NoError(b, store.Close())
				rounds++
				b.StartTimer()
			}
			b.ReportMetric(float64(n*rounds)/took.Seconds(), "intents/s")
		})
	}
}

func claimOf(worker string, limit int) durable.Claim {
	return durable.Claim{
		Worker: worker, Lease: time.Hour, Limit: limit, PerScope: max(limit/4, 1), Terms: map[string]durable.Terms{"psp": {}},
	}
}

// verbs claims and finishes until nothing is left.
func verbs(b *testing.B, store *sqlitestore.Store) {
	b.Helper()
	for {
		claimed, err := store.Claim(b.Context(), claimOf("w", 100))
		require.NoError(b, err)
		if len(claimed.Changes) == 0 {
			return
		}
		events := make([]durable.Event, len(claimed.Changes))
		for i := range events {
			r := &claimed.Changes[i].Record
			events[i] = durable.Event{
				Kind: durable.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
				Terms: &durable.Terms{}, Outcome: durable.Outcome{Class: durable.ClassSucceeded},
			}
		}
		applyAll(b, store, events)
	}
}

// fill brings in rows that wait: those of one tenant, or of all in turn; due now, or in
// an hour.
func fill(b *testing.B, store *sqlitestore.Store, rows int, lopsided bool, due time.Duration) {
	b.Helper()
	at := time.Now().Add(due).UnixMicro()
	_, err := store.DB().Exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
		INSERT INTO durable_intent (scope, operation, key, gateway, fingerprint, state, epoch, generation, worker, next_at,
			attempts, tries, doubt, ask, class, code, reference, reason, letter, since, batch, row, created, updated, payload)
		SELECT printf('tenant %02d', CASE WHEN ?2 AND i >= ?3 THEN 42 ELSE i % ?3 END), 'charge', 'old ' || i, 'psp', 'v1:a', 0, 1, 0, '',
			?4 + i, 0, 0, 0, 0, 0, '', '', '', 0, ?4, '', 0, ?4, ?4, x'7b7d' FROM n`, rows, lopsided, tenants, at)
	require.NoError(b, err)
}

// BenchmarkClaim is how long a claim of 100 takes, flush included, where so many wait:
// due, evenly or nearly all of one tenant; or not due for an hour, so that it claims
// nothing. What was claimed is put back.
func BenchmarkClaim(b *testing.B) {
	for _, row := range []struct {
		name     string
		rows     int
		lopsided bool
		due      time.Duration
	}{
		{"due=1k", 1000, false, -time.Hour},
		{"due=100k", 100_000, false, -time.Hour},
		{"due=100k,one tenant", 100_000, true, -time.Hour},
		{"due=1M", 1_000_000, false, -time.Hour},
		{"later=1k", 1000, false, time.Hour},
		{"later=1M", 1_000_000, false, time.Hour},
	} {
		b.Run(row.name, func(b *testing.B) {
			store := open(b, filepath.Join(b.TempDir(), "bench.db"))
			fill(b, store, size(row.rows), row.lopsided, row.due)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				claimed, err := store.Claim(b.Context(), claimOf("w", 100))
				took = append(took, time.Since(began))
				require.NoError(b, err)
				require.Equal(b, row.due < 0, len(claimed.Changes) > 0)
				b.StopTimer()
				_, err = store.DB().Exec("UPDATE durable_intent SET state = 0, worker = '' WHERE state = 2")
				require.NoError(b, err)
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkStats counts a million.
func BenchmarkStats(b *testing.B) {
	store := open(b, filepath.Join(b.TempDir(), "bench.db"))
	fill(b, store, size(1_000_000), false, time.Hour)
	for b.Loop() {
		_, err := store.Stats(b.Context())
		require.NoError(b, err)
	}
}
