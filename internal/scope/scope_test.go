package scope

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestMap_findsItsValues(t *testing.T) {
	var m Map[string, int]
	require.Nil(t, m.Peek("a"), "the zero Map is empty")
	require.Zero(t, m.Len())

	a := m.Get("a")
	require.Zero(t, *a, "made as a zero value")
	*a = 7
	require.Same(t, a, m.Get("a"))
	require.Same(t, a, m.Peek("a"))
	require.Same(t, a, m.add("a"), "another goroutine has added it after the look-up")
	require.NotSame(t, a, m.Get("b"))
	require.Equal(t, 2, m.Len())

	require.Nil(t, m.Peek("c"))
	require.Equal(t, 2, m.Len(), "Peek makes no entry")
	require.NotNil(t, m.Get(""), "the empty name is a name")
}

func TestMap_all(t *testing.T) {
	m := Map[string, int]{Max: 300}
	m.All(func(string, *int) bool { t.Error("the zero Map is empty"); return true })
	for i := range 200 {
		*m.Get(strconv.Itoa(i)) = i
	}
	seen := map[string]int{}
	m.All(func(key string, v *int) bool {
		seen[key]++
		require.Equal(t, key, strconv.Itoa(*v))
		return true
	})
	require.Len(t, seen, 200)
	n := 0
	m.All(func(string, *int) bool { n++; return n < 5 })
	require.Equal(t, 5, n, "until f returns false")
	for i := range 10_000 {
		if i%100 == 0 {
			m.All(func(string, *int) bool { return true }) // does not mark entries as used
		}
		m.Get(strconv.Itoa(1000 + i))
	}
	require.Nil(t, m.Peek("7"))
}

func TestMap_isBounded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		max     int
		keep    func(*int) bool
		touch   bool // every key twice, so that all are marked as used
		want    int
		inserts int
	}{
		{name: "zero is the default", max: 0, want: DefaultMax, inserts: 2*DefaultMax + 1},
		{name: "negative is the default", max: -1, want: DefaultMax, inserts: DefaultMax + 1},
		{name: "one", max: 1, want: 1, inserts: 100},
		{name: "not a power of two", max: 100, want: 100, inserts: 1000},
		{name: "larger than the default", max: 10000, want: 10000, inserts: 20000},
		{name: "everything kept", max: 64, keep: func(*int) bool { return true }, want: 64, inserts: 1000},
		{name: "everything used", max: 64, touch: true, want: 64, inserts: 1000},
		{name: "everything kept and used", max: 64, keep: func(*int) bool { return true }, touch: true, want: 64, inserts: 1000},
		{name: "one, kept and used", max: 1, keep: func(*int) bool { return true }, touch: true, want: 1, inserts: 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Map[string, int]{Max: tt.max, Keep: tt.keep}
			for i := range tt.inserts {
				key := strconv.Itoa(i)
				p := m.Get(key)
				require.Same(t, p, m.Peek(key), "a new entry is present")
				if tt.touch {
					m.Get(key)
				}
				require.LessOrEqual(t, m.Len(), tt.want)
				if i < tt.want {
					require.Equal(t, i+1, m.Len(), "no eviction before the Map is full")
				}
			}
			require.Equal(t, tt.want, m.Len())
			found := 0
			for i := range tt.inserts {
				if m.Peek(strconv.Itoa(i)) != nil {
					found++
				}
			}
			require.Equal(t, tt.want, found, "the index holds what the rings hold")
		})
	}
}

func TestMap_peekDoesNotUse(t *testing.T) {
	m := Map[string, int]{Max: 10}
	m.Get("watched")
	for i := range 100 {
		m.Get(strconv.Itoa(i))
		m.Peek("watched")
	}
	require.Nil(t, m.Peek("watched"), "a dashboard that polls must not keep a dead host alive")
}

func TestMap_keep(t *testing.T) {
	for _, tt := range []struct {
		name      string
		max, kept int
		inserts   int
		survivors int // of the kept, at least
	}{
		{name: "one among many", max: 4096, kept: 1, inserts: 50_000, survivors: 1},
		{name: "a cluster longer than a search", max: 4096, kept: 1000, inserts: 50_000, survivors: 1000},
		{name: "all but one in sixteen", max: 640, kept: 600, inserts: 50_000, survivors: 600},
		{name: "all but one of a few", max: 10, kept: 9, inserts: 1000, survivors: 9},
		// The search is bounded, so some kept entries are evicted.
		{name: "nearly all of many", max: 4096, kept: 4095, inserts: 1000, survivors: 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Map[string, int]{Max: tt.max, Keep: func(v *int) bool { return *v == 1 }}
			for i := range tt.kept {
				*m.Get("kept" + strconv.Itoa(i)) = 1
			}
			for i := range tt.inserts {
				m.Get(strconv.Itoa(i))
				m.Get(strconv.Itoa(i)) // in use, and still evicted before the kept ones
			}
			survivors := 0
			for i := range tt.kept {
				if m.Peek("kept"+strconv.Itoa(i)) != nil {
					survivors++
				}
			}
			require.GreaterOrEqual(t, survivors, tt.survivors)
			require.Equal(t, tt.max, m.Len())
		})
	}
}

// A new host must not wait for a walk over all entries if all circuits are open.
func TestMap_searchIsBounded(t *testing.T) {
	asked := 0
	m := Map[int, int]{Max: 4096, Keep: func(*int) bool { asked++; return true }}
	for i := range 4096 {
		m.Get(i)
	}
	const inserts = 10_000
	for i := range inserts {
		m.Get(-1 - i)
	}
	const maxAsked = (maxShards + 1) * shardSize // one turn of the hand in each shard: no entry was used
	require.LessOrEqual(t, asked, inserts*maxAsked)
	require.Greater(t, asked, inserts*maxAsked/2, "the test is of searches that fail")
}

// §4.18: a million hosts leave memory flat.
func TestMap_memoryIsFlat(t *testing.T) {
	const keys = 200_000 // a byte that stays of each is 190 KiB
	var m Map[string, [64]byte]
	path := strings.Repeat("p", 2000)
	insert := func(from, to int) {
		for i := from; i < to; i++ {
			// A key is part of a larger string, as a host is part of a URL.
			host := "host-" + strconv.Itoa(i)
			url := host + path
			m.Get(url[:len(host)])
		}
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	insert(0, 2*DefaultMax)
	full := heap()
	insert(2*DefaultMax, keys)
	grown := heap() - full
	t.Logf("heap with the map full: %d KiB; grown over %d more keys: %d KiB", full>>10, keys, grown>>10)
	require.Less(t, grown, int64(256<<10))
	require.Less(t, full, int64(8<<20), "the stored keys hold the URLs that they were cut from")
	require.Equal(t, DefaultMax, m.Len())
}

func TestMap_clonesKeys(t *testing.T) {
	url := strings.Repeat("x", 1000)
	stored := func(m *Map[string, int]) string { return m.shards[0].ring[0].key }

	m := Map[string, int]{Max: 1}
	m.Get(url[:10])
	require.Equal(t, url[:10], stored(&m))
	require.NotSame(t, unsafe.StringData(url), unsafe.StringData(stored(&m)))

	k := Map[Key, int]{Max: 1}
	named := Key{url[:10], 1}
	first := k.Get(named)
	require.Same(t, first, k.Get(named))
	require.NotSame(t, first, k.Get(Key{url[:10], 2}), "another class")
	require.NotSame(t, unsafe.StringData(url), unsafe.StringData(k.shards[0].ring[0].key.Name))
}

func TestMap_panicOfKeepLeavesItUnlocked(t *testing.T) {
	m := Map[string, int]{Max: 1, Keep: func(*int) bool { panic("keep") }}
	m.Get("a")
	require.PanicsWithValue(t, "keep", func() { m.Get("b") })
	require.Equal(t, 1, m.Len(), "unlocked and unchanged")
	require.NotNil(t, m.Peek("a"))
}

// An evicted V stays usable, and keeps few others in memory.
func TestMap_evictedValueStaysValid(t *testing.T) {
	m := Map[int, [1 << 10]byte]{Max: 4}
	held := m.Get(0)
	held[0] = 1
	var freed atomic.Int64
	const others = 2000
	for i := 1; i <= others; i++ {
		runtime.AddCleanup(m.Get(i), func(struct{}) { freed.Add(1) }, struct{}{})
	}
	require.Nil(t, m.Peek(0))
	// The cleanups run in a goroutine, which may be late on a busy machine.
	for began := time.Now(); freed.Load() < others-10 && time.Since(began) < time.Minute; runtime.Gosched() {
		runtime.GC()
	}
	require.GreaterOrEqual(t, freed.Load(), int64(others-10), "the held value keeps others in memory")
	require.EqualValues(t, 1, held[0])
	require.NotSame(t, held, m.Get(0), "a new value for the key")
}

// Readers, writers and evictions at once, for the race detector. Each value is prepared once, before another goroutine sees it,
// and evicted at most once. The evicted values and the present ones are all values.
func TestMap_stress(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 4000
	}
	type value struct {
		key              int
		written, evicted atomic.Int64
	}
	var prepared, made, evicted atomic.Int64
	m := Map[int, value]{
		Max:  32,
		Keep: func(v *value) bool { return v.key%7 == 0 },
		Init: func(key int, v *value) { v.key = key; prepared.Add(1) },
		Evicted: func(v *value) {
			if v.evicted.Add(1) > 1 {
				t.Errorf("%d is evicted twice", v.key)
			}
			evicted.Add(1)
		},
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range rounds {
				key := r.IntN(100) + 1
				if r.IntN(4) == 0 {
					if v := m.Peek(key); v != nil && v.key != key {
						t.Errorf("Peek(%d) is the value of %d", key, v.key)
					}
					continue
				}
				v := m.Get(key)
				if v.key != key {
					t.Errorf("Get(%d) is the value of %d", key, v.key)
				}
				if v.written.Add(1) == 1 {
					made.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 32, m.Len())
	require.Equal(t, made.Load(), prepared.Load())
	require.Equal(t, made.Load(), evicted.Load()+int64(m.Len()))
	m.All(func(key int, v *value) bool {
		require.Zero(t, v.evicted.Load(), "%d is there and was evicted", key)
		return true
	})
}

// What an evicted value released is free when the next value is prepared.
func TestMap_evictsBeforeInit(t *testing.T) {
	var calls []string
	m := Map[string, string]{
		Max:     1,
		Init:    func(key string, v *string) { *v = key; calls = append(calls, "init "+key) },
		Evicted: func(v *string) { calls = append(calls, "evicted "+*v) },
	}
	m.Get("a")
	m.Get("b")
	require.Equal(t, []string{"init a", "evicted a", "init b"}, calls)
}

func TestMap_hitsDoNotAllocate(t *testing.T) {
	var m Map[string, int]
	m.Get("api.example.com")
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Get("api.example.com"); m.Peek("api.example.com") }))
	var k Map[Key, int]
	key := Key{"api.example.com", 1}
	k.Get(key)
	require.Zero(t, testing.AllocsPerRun(100, func() { k.Get(key); k.Peek(key) }))
}

// TestMap_heldEntriesStay checks that a held entry is never evicted while a Map has less than
// 16 times Max, and that others are.
func TestMap_heldEntriesStay(t *testing.T) {
	type value struct {
		Refs
	}
	m := Map[int, value]{Max: 64, Held: func(v *value) bool { return v.Held() }}
	held := map[int]*value{}
	for i := range 500 {
		v := m.Get(i)
		if i%2 == 0 {
			v.Acquire()
			held[i] = v
		}
	}
	for i, v := range held {
		require.Same(t, v, m.Peek(i))
	}
	require.LessOrEqual(t, m.Len(), len(held)+1)
	for i := range 5000 {
		m.Get(1000 + i).Acquire()
	}
	require.LessOrEqual(t, m.Len(), 16*64, "also if all are held")
}

// A new key of a Map that has grown by held entries does not search in all of them.
func TestMap_searchOfGrownMapIsBounded(t *testing.T) {
	asked := 0
	m := Map[int, int]{Max: 64, Held: func(*int) bool { asked++; return true }}
	for i := range 16*64 - 1 {
		m.Get(i)
	}
	asked = 0
	m.Get(-1)
	require.LessOrEqual(t, asked, 2*2*2*64, "two searches of two turns in twice the size")
}

// The only entry without protection was used: the first round of the hand clears its mark, and the second finds it.
func TestShard_usedVictim(t *testing.T) {
	m := Map[int, int]{Max: 4, Keep: func(v *int) bool { return *v != 2 }}
	for i := range 4 {
		*m.Get(i) = i
	}
	m.Get(2)
	index, free := m.shards[0].victim(&m)
	require.True(t, free)
	require.Equal(t, 2, index)
}

// A value to which a record points is evicted after the others.
func TestRefs_heldValueIsEvictedLast(t *testing.T) {
	type value struct{ Refs }
	m := Map[string, value]{Max: 4, Keep: func(v *value) bool { return v.Held() }}
	held := m.Get("held")
	held.Acquire()
	held.Acquire()
	held.Release()
	require.True(t, held.Held())
	for i := range 20 {
		m.Get(strconv.Itoa(i))
	}
	require.Same(t, held, m.Peek("held"))
	held.Release()
	require.False(t, held.Held())
	for i := range 20 {
		m.Get(strconv.Itoa(i))
	}
	require.Nil(t, m.Peek("held"))
}
