// Package scope holds a bounded map from a name (a host, a tenant, a route)
// to the state that is kept for it.
//
// A client that talks to many hosts meets names without end: a crawler, a
// webhook sender, a proxy, or somebody who makes them up to fill the memory
// of a process. A plain map would grow with every one of them, so Map forgets
// names that are no longer asked for. Names that are asked for are found
// without a lock: the lookup lies on the way of every call.
package scope

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// DefaultMax is the number of entries that a Map holds when its Max is 0.
const DefaultMax = 4096

// Map finds or makes the one V of a key, and never holds more than Max of
// them.
//
// The zero value is ready for use. Fields are read when the first key is
// added, save Keep, and must not change after that. All methods are safe for
// concurrent use; a Map must not be copied after first use. V is made as a
// zero value, and what is inside of it is for its users to synchronize.
//
// Get of a key that is there, and Peek, take no lock and allocate nothing. Get
// of a new key takes the lock of the Map for as long as it takes to find a
// place, some hundred nanoseconds; only other new keys wait for it.
//
// When all places are taken, a new key evicts an old one, found by CLOCK: the
// first in turn that nobody asked for since the last turn and that Keep does
// not hold. So names that are in use stay, and so does what Keep marks, as
// long as anything else is left to evict. The bound comes before both: it holds
// if every entry is in use and kept. A *V stays valid memory after its key was
// evicted, only it is no longer what Get returns for the key.
type Map[K comparable, V any] struct {
	// Max is the number of entries held; 0 or less: DefaultMax.
	Max int

	// Keep tells entries whose loss would matter, such as an open circuit;
	// nil: none. It is called with the Map locked, perhaps for many entries in
	// turn: it must be quick, must not call the Map, and must synchronize with
	// those who use the V at the same time.
	Keep func(*V) bool

	// Clone copies a key before it is stored. Keys are often parts of larger
	// strings (a host is a part of a URL), all of which the stored key would
	// keep alive. nil: a key of type string is copied, one of any other type
	// is stored as it is, so a struct with strings in it should bring a Clone.
	Clone func(K) K

	table atomic.Pointer[table[K, V]]

	mu     sync.Mutex
	ring   []*entry[K, V] // what is held, in no order but that of the hand
	hand   int
	credit int // steps that the hand may still make in search of a victim
}

// searchPerInsert is how many entries, on average, an eviction may look at. The
// search is for the first entry that is neither used nor kept. Every new key
// pays in this many steps, up to two turns of the hand (the first clears the
// used marks, so the second finds whatever is not kept), and a search takes
// what it needs: a thousand kept entries in a row are passed over. Only where
// nearly all are kept does the account run out, and then the second best has to
// go, because a new host must not wait, again and again, for a walk over
// thousands of open circuits. That also is how a Map gets rid of entries that
// are kept for ever and never asked for.
const searchPerInsert = 64

// table is a hash table of two levels with chained entries. The buckets come in
// groups, made when the first key falls into them, so that the Map of a client
// with one host takes a kilobyte and there is still never a rehash: readers
// need no lock because nothing that they may stand on is ever moved.
type table[K comparable, V any] struct {
	seed   maphash.Seed // one for each Map: hosts cannot be chosen to collide
	max    int
	groups []atomic.Pointer[group[K, V]] // a power of two of them
}

const groupBits = 6

type group[K comparable, V any] [1 << groupBits]atomic.Pointer[entry[K, V]]

type entry[K comparable, V any] struct {
	// next leads to entries that are older than this one, always. So a reader
	// who stands on an evicted entry comes back to the chain, and a *V that
	// somebody holds on to keeps no more than the few entries alive that were
	// behind it when it was evicted.
	next  atomic.Pointer[entry[K, V]]
	hash  uint64
	used  atomic.Bool // asked for since the hand came by
	key   K
	value V
}

// Get returns the V of key, which it makes if there is none.
func (m *Map[K, V]) Get(key K) *V {
	t := m.table.Load()
	if t == nil {
		t = m.init()
	}
	hash := maphash.Comparable(t.seed, key)
	if e := t.find(hash, key); e != nil {
		// Loaded first: a store would take the cache line away from all other
		// processors that look for the same key, at every call.
		if !e.used.Load() {
			e.used.Store(true)
		}
		return &e.value
	}
	return m.add(t, hash, key)
}

// Peek returns the V of key, or nil if there is none. To look is not to use:
// it makes no entry and keeps none from eviction.
func (m *Map[K, V]) Peek(key K) *V {
	t := m.table.Load()
	if t == nil {
		return nil
	}
	if e := t.find(maphash.Comparable(t.seed, key), key); e != nil {
		return &e.value
	}
	return nil
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ring)
}

func (m *Map[K, V]) init() *table[K, V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.table.Load(); t != nil {
		return t
	}
	t := &table[K, V]{seed: maphash.MakeSeed(), max: m.Max}
	if t.max <= 0 {
		t.max = DefaultMax
	}
	n := 1
	for n<<groupBits < t.max {
		n <<= 1
	}
	t.groups = make([]atomic.Pointer[group[K, V]], n)
	m.table.Store(t)
	return t
}

func (t *table[K, V]) find(hash uint64, key K) *entry[K, V] {
	g := t.groups[(hash>>groupBits)&uint64(len(t.groups)-1)].Load()
	if g == nil {
		return nil
	}
	e := g[hash&(1<<groupBits-1)].Load()
	for e != nil && (e.hash != hash || e.key != key) {
		e = e.next.Load()
	}
	return e
}

// head returns where the chain of hash begins. The Map is locked.
func (t *table[K, V]) head(hash uint64) *atomic.Pointer[entry[K, V]] {
	at := &t.groups[(hash>>groupBits)&uint64(len(t.groups)-1)]
	g := at.Load()
	if g == nil {
		g = new(group[K, V])
		at.Store(g)
	}
	return &g[hash&(1<<groupBits-1)]
}

func (m *Map[K, V]) add(t *table[K, V], hash uint64, key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock() // deferred, because Keep and Clone may panic
	if e := t.find(hash, key); e != nil {
		return &e.value // somebody else was faster
	}

	// A new entry is not marked as used: the hand has just gone by, so it has
	// one whole turn to be asked for a second time. Hosts that are met once
	// thus make room for each other, not for those in steady use.
	e := &entry[K, V]{hash: hash, key: m.clone(key)}
	m.credit = min(m.credit+searchPerInsert, 2*t.max+searchPerInsert)
	if len(m.ring) < t.max {
		m.ring = append(m.ring, e)
	} else {
		i := m.victim()
		t.remove(m.ring[i])
		m.ring[i] = e
	}
	head := t.head(hash)
	e.next.Store(head.Load())
	head.Store(e) // complete before it can be seen
	return &e.value
}

func (m *Map[K, V]) clone(key K) K {
	if m.Clone != nil {
		return m.Clone(key)
	}
	if s, ok := any(&key).(*string); ok {
		*s = strings.Clone(*s)
	}
	return key
}

// victim returns the index in the ring, which is full, of the entry to evict.
func (m *Map[K, V]) victim() int {
	best, bestRank := 0, 4
	for m.credit > 0 {
		m.credit--
		i := m.hand
		if m.hand++; m.hand == len(m.ring) {
			m.hand = 0
		}
		e := m.ring[i]
		rank := 0
		if e.used.Load() {
			e.used.Store(false)
			rank++
		}
		if m.Keep != nil && m.Keep(&e.value) {
			rank += 2
		}
		if rank == 0 {
			return i
		}
		if rank < bestRank {
			best, bestRank = i, rank
		}
	}
	return best
}

// remove takes e, which is there, out of its chain. It goes by identity, not by
// key, for there are keys that do not even equal themselves (NaN).
func (t *table[K, V]) remove(e *entry[K, V]) {
	p := t.head(e.hash)
	for p.Load() != e {
		p = &p.Load().next
	}
	p.Store(e.next.Load()) // e.next stays: a reader may stand on e
}
