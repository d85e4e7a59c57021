package idempotency_test

import (
	crand "crypto/rand"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestMemory_conforms(t *testing.T) {
	before := runtime.NumGoroutine()
	storetest.Suite{Open: func(*testing.T) idempotency.Store { return new(idempotency.Memory) }}.Run(t)
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left over", runtime.NumGoroutine()-before)
}

func memoryClaim(key string) idempotency.Claim {
	return idempotency.Claim{
		ID:          idempotency.ID{Scope: "tenant", Operation: "POST /charges", Key: key},
		Fingerprint: "v1:a", Owner: crand.Text(), Lease: time.Minute, TTL: 24 * time.Hour,
		Takeover: idempotency.Reexecute,
	}
}

// TestMemory_copies: a result that was given or returned does not change the record's.
func TestMemory_copies(t *testing.T) {
	var store idempotency.Memory
	answer := func() idempotency.Result {
		return idempotency.Result{Header: http.Header{"Location": {"/charges/1"}}, Body: []byte("{}")}
	}
	claim, given := memoryClaim("k"), answer()
	reservation, err := store.Reserve(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, store.Complete(t.Context(), reservation.Record.Lease(), idempotency.Outcome{Status: idempotency.Completed, Result: given}))
	loaded, err := store.Load(t.Context(), claim.ID)
	require.NoError(t, err)
	reserved, err := store.Reserve(t.Context(), claim)
	require.NoError(t, err)
	for _, result := range []idempotency.Result{given, loaded.Result, reserved.Record.Result} {
		result.Header["Location"][0], result.Header["Link"], result.Body[0] = "spoiled", nil, 'x'
		again, err := store.Load(t.Context(), claim.ID)
		require.NoError(t, err)
		assert.Equal(t, answer(), again.Result)
	}
}

// TestMemory_clock: in virtual time each boundary is exact.
func TestMemory_clock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store idempotency.Memory
		started := time.Now()
		claim := memoryClaim("k")
		claim.Takeover = idempotency.MarkUnknown
		reservation, err := store.Reserve(t.Context(), claim)
		require.NoError(t, err)
		assert.True(t, reservation.Record.Started.Equal(started))
		assert.True(t, reservation.Record.LeaseExpires.Equal(started.Add(time.Minute)))
		assert.True(t, reservation.Record.Expires.Equal(started.Add(24*time.Hour)))

		time.Sleep(time.Minute - 1)
		require.NoError(t, store.Renew(t.Context(), reservation.Record.Lease(), time.Hour))
		time.Sleep(time.Hour - 1)
		reaped, err := store.Reap(t.Context(), 10)
		require.NoError(t, err)
		assert.Empty(t, reaped)
		time.Sleep(time.Nanosecond)
		reaped, err = store.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, reaped, 1)
		assert.Equal(t, time.Now(), reaped[0].Updated)
	})
}

// TestMemory_unknown: the list has no records that were resolved since its beginning. The loop may resolve records.
func TestMemory_unknown(t *testing.T) {
	var store idempotency.Memory
	ctx := t.Context()
	for _, key := range []string{"3", "1", "2"} {
		reservation, err := store.Reserve(ctx, memoryClaim(key))
		require.NoError(t, err)
		require.NoError(t, store.Complete(ctx, reservation.Record.Lease(), idempotency.Outcome{Status: idempotency.Unknown}))
	}
	seen := 0
	for record, err := range store.Unknown(ctx, "tenant") {
		require.NoError(t, err)
		seen++
		require.NoError(t, store.Release(ctx, record.Lease()))
		record.Key = "2"
		other, err := store.Load(ctx, record.ID)
		require.NoError(t, err)
		_ = store.Release(ctx, other.Lease())
	}
	assert.Equal(t, 2, seen, "one was resolved meanwhile")
}

// TestMemory_keepsNames: a name that is a part of a large string does not keep the string in
// memory.
func TestMemory_keepsNames(t *testing.T) {
	var store idempotency.Memory
	const rows, size = 64, 1 << 20
	before := heapInUse()
	for i := range rows {
		header := strings.Repeat("x", size) + fmt.Sprintf("%020d", i)
		claim := memoryClaim(header[size:])
		if i%2 == 0 {
			claim.Scope, claim.Operation = header[:10], header[10:20]
		} else {
			claim.Scope, claim.Operation = "", ""
		}
		_, err := store.Reserve(t.Context(), claim)
		require.NoError(t, err)
	}
	assert.Less(t, heapInUse()-before, int64(rows*size/4))
	runtime.KeepAlive(&store)
}

// TestMemoryShrinks: a million records that were swept take no memory.
func TestMemoryShrinks(t *testing.T) {
	var store idempotency.Memory
	const rows = 50_000
	before := heapInUse()
	for i := range rows {
		claim := memoryClaim(strconv.Itoa(i))
		claim.Lease, claim.TTL = 1, 1
		_, err := store.Reserve(t.Context(), claim)
		require.NoError(t, err)
	}
	full := heapInUse() - before
	n, err := store.Sweep(t.Context(), 2*rows)
	require.NoError(t, err)
	assert.Equal(t, rows, n)
	left := heapInUse() - before
	t.Logf("%d bytes for each record, and %d in all when they were swept", full/rows, left)
	assert.Less(t, full/rows, int64(800))
	assert.Less(t, left, full/20)
	runtime.KeepAlive(&store)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestMemory_stress is for the race detector: results are read and changed while others are
// returned, and records are swept as soon as possible.
func TestMemory_stress(t *testing.T) {
	var store idempotency.Memory
	var running, effects sync.Map // by key
	var executed atomic.Int64
	ctx := t.Context()
	var all, sweeping sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				key := strconv.Itoa(rand.IntN(200))
				claim := memoryClaim(key)
				reservation, err := store.Reserve(ctx, claim)
				if err != nil {
					t.Error(err)
					return
				}
				spoil(reservation.Record.Result)
				if reservation.Decision != idempotency.DecisionAcquired {
					continue
				}
				lease := reservation.Record.Lease()
				if other, busy := running.LoadOrStore(key, lease.Owner); busy {
					t.Errorf("%s is executed by %s and by %s", key, other, lease.Owner)
				}
				_ = store.Renew(ctx, lease, time.Hour)
				release := rand.IntN(3) == 0
				running.Delete(key)
				if release {
					err = store.Release(ctx, lease)
				} else {
					if _, twice := effects.LoadOrStore(key, true); twice {
						t.Errorf("%s is executed twice", key)
					}
					executed.Add(1)
					result := idempotency.Result{Code: http.StatusCreated, Header: http.Header{"X": {key}}, Body: []byte(key)}
					err = store.Complete(ctx, lease, idempotency.Outcome{Status: idempotency.Completed, Result: result})
					spoil(result)
				}
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	done := make(chan struct{})
	sweeping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			claim := memoryClaim("short " + strconv.Itoa(i%10))
			claim.Lease, claim.TTL = 1, 1
			if _, err := store.Reserve(ctx, claim); err != nil {
				t.Error(err)
			}
			if _, err := store.Sweep(ctx, rand.IntN(20)); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	close(done)
	sweeping.Wait()

	effects.Range(func(key, _ any) bool {
		record, err := store.Load(ctx, memoryClaim(key.(string)).ID)
		assert.NoError(t, err)
		assert.Equal(t, key, string(record.Result.Body))
		assert.Equal(t, []string{key.(string)}, record.Result.Header["X"])
		return true
	})
	t.Logf("%d operations of 200 were executed", executed.Load())
}

// spoil changes a result. No other result may change with it.
func spoil(r idempotency.Result) {
	for _, values := range r.Header {
		values[0] = "spoiled"
	}
	for i := range r.Body {
		r.Body[i] = 'x'
	}
}

// benchmarkResult is a result as a handler stores it.
func benchmarkResult() idempotency.Result {
	return idempotency.Result{
		Code:   http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/1"}},
		Body:   []byte(`{"id":"ch_1","amount":1000,"currency":"eur","status":"succeeded"}`),
	}
}

// BenchmarkMemoryOperation is one operation, from its claim to its result, in a
// store that grows to a hundred thousand records and begins anew.
func BenchmarkMemoryOperation(b *testing.B) {
	var store *idempotency.Memory
	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: benchmarkResult()}
	claim := memoryClaim("")
	all := make([]string, 100_000) // before the measurement, because a request brings its key
	for i := range all {
		all[i] = "key " + strconv.Itoa(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(all) == 0 {
			store = &idempotency.Memory{MaxKeys: -1}
		}
		claim.Key = all[i%len(all)]
		reservation, err := store.Reserve(b.Context(), claim)
		if err != nil || reservation.Decision != idempotency.DecisionAcquired {
			b.Fatal(reservation.Decision, err)
		}
		if err := store.Complete(b.Context(), reservation.Record.Lease(), outcome); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemoryReplay measures a claim of a finished operation.
func BenchmarkMemoryReplay(b *testing.B) {
	store := &idempotency.Memory{MaxKeys: -1}
	claim := memoryClaim("k")
	reservation, _ := store.Reserve(b.Context(), claim)
	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: benchmarkResult()}
	_ = store.Complete(b.Context(), reservation.Record.Lease(), outcome)
	b.ReportAllocs()
	for b.Loop() {
		if got, err := store.Reserve(b.Context(), claim); err != nil || got.Decision != idempotency.DecisionDone {
			b.Fatal(got.Decision, err)
		}
	}
}

func TestMemory_isFull(t *testing.T) {
	const limit = 3
	for _, row := range []struct {
		name    string
		prepare func(t *testing.T, m *idempotency.Memory)
		want    error
	}{
		{"keys inside their TTL: the new key is rejected", func(*testing.T, *idempotency.Memory) {}, idempotency.ErrStoreBusy},
		{"one key past its TTL: it makes space for the new key", func(t *testing.T, m *idempotency.Memory) {
			lease := idempotency.Lease{}
			for record := range recordsOf(t, m) {
				lease = record.Lease()
			}
			require.NoError(t, m.Complete(t.Context(), lease, idempotency.Outcome{Status: idempotency.Completed, TTL: time.Second}))
			time.Sleep(time.Second)
		}, nil},
		{"all keys Unknown and past their TTL: the new key is rejected", func(t *testing.T, m *idempotency.Memory) {
			for record := range recordsOf(t, m) {
				require.NoError(t, m.Complete(t.Context(), record.Lease(), idempotency.Outcome{Status: idempotency.Unknown}))
			}
			time.Sleep(30 * 24 * time.Hour)
		}, idempotency.ErrStoreBusy},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			m := &idempotency.Memory{MaxKeys: limit}
			for i := range limit {
				_, err := m.Reserve(t.Context(), memoryClaim(strconv.Itoa(i)))
				require.NoError(t, err)
			}
			row.prepare(t, m)
			_, err := m.Reserve(t.Context(), memoryClaim("one more"))
			require.ErrorIs(t, err, row.want)
			if row.want == nil {
				return
			}
			for record := range recordsOf(t, m) { // none was forgotten
				_, err := m.Reserve(t.Context(), memoryClaim(record.Key))
				require.NoError(t, err)
			}
		})
	}
}

// recordsOf returns the first records of TestMemory_isFull.
func recordsOf(t *testing.T, m *idempotency.Memory) iter.Seq[idempotency.Record] {
	t.Helper()
	return func(yield func(idempotency.Record) bool) {
		for i := range 3 {
			record, err := m.Load(t.Context(), memoryClaim(strconv.Itoa(i)).ID)
			require.NoError(t, err)
			if !yield(record) {
				return
			}
		}
	}
}

// I3: a scope that claims keys without end, all of them in doubt, leaves records to the others.
func TestMemory_scopesAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m idempotency.Memory
		fill := func(scope string, from int) (n int) {
			for ; ; n++ {
				claim := memoryClaim(strconv.Itoa(from + n))
				claim.Scope = scope
				reservation, err := m.Reserve(t.Context(), claim)
				if err != nil {
					require.ErrorIs(t, err, idempotency.ErrStoreBusy)
					return n
				}
				require.NoError(t, m.Complete(t.Context(), reservation.Record.Lease(), idempotency.Outcome{Status: idempotency.Unknown}))
			}
		}
		for _, want := range []int{58_255, 6_472, 720, 80} { // eight ninths of the rest
			scope := strconv.Itoa(want)
			assert.Equal(t, want, fill(scope, 0))
			time.Sleep(30 * 24 * time.Hour)
			assert.Zero(t, fill(scope, want), "no record in doubt is deleted")
		}
	})
}
