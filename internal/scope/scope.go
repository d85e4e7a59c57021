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
// of a new key takes the lock of the key's shard for as long as it takes to find
// a place, some hundred nanoseconds; only other new keys of that shard wait for
// it. So a client that meets new names all the time, more than Max of them, is
// not brought to one processor.
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
	// nil: none. It is called with a shard locked, perhaps for many entries in
	// turn: it must be quick, must not call the Map, and must synchronize with
	// those who use the V at the same time.
	Keep func(*V) bool

	// Clone copies a key before it is stored. Keys are often parts of larger
	// strings (a host is a part of a URL), all of which the stored key would
	// keep alive. nil: a key of type string or [Key] is copied, one of any other
	// type is stored as it is, so a struct with strings in it should bring a Clone.
	Clone func(K) K

	table atomic.Pointer[table[K, V]]
	once  sync.Once
	held  atomic.Int64 // entries; never more than max
}

// table is a hash table of two levels with chained entries. The buckets come in
// groups, made when the first key falls into them, so that the Map of a client
// with one host takes a kilobyte and there is still never a rehash: readers
// need no lock because nothing that they may stand on is ever moved.
type table[K comparable, V any] struct {
	seed   maphash.Seed // one for each Map: hosts cannot be chosen to collide
	max    int64
	shards []shard[K, V]                 // a power of two of them
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
	hash := hashOf(t.seed, &key)
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
	if e := t.find(hashOf(t.seed, &key), key); e != nil {
		return &e.value
	}
	return nil
}

// All calls f with each key and its V, in no order, until f returns false. It takes no
// lock, and to look is not to use: an entry that comes or goes meanwhile is seen or not,
// and none is seen twice.
func (m *Map[K, V]) All(f func(K, *V) bool) {
	t := m.table.Load()
	if t == nil {
		return
	}
	for i := range t.groups {
		g := t.groups[i].Load()
		if g == nil {
			continue
		}
		for b := range g {
			for e := g[b].Load(); e != nil; e = e.next.Load() {
				if !f(e.key, &e.value) {
					return
				}
			}
		}
	}
}

// hashOf is the hash of a key. For a Key it goes by the name, whose hash is half
// the price of a struct's, and this is on the way of every call.
func hashOf[K comparable](seed maphash.Seed, key *K) uint64 {
	if k, ok := any(key).(*Key); ok {
		return maphash.String(seed, k.Name) + uint64(uint8(k.Class))*oddClass
	}
	return maphash.Comparable(seed, *key)
}

// oddClass spreads the few classes of a name over the groups of the table.
const oddClass = 0x9e3779b97f4a7c15

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return int(m.held.Load()) }

func (m *Map[K, V]) init() *table[K, V] {
	m.once.Do(func() {
		most := m.Max
		if most <= 0 {
			most = DefaultMax
		}
		groups, shards := 1, 1
		for groups<<groupBits < most {
			groups <<= 1
		}
		for shards < mostShards && shards*2*shardSize <= most {
			shards <<= 1
		}
		m.table.Store(&table[K, V]{
			seed: maphash.MakeSeed(), max: int64(most),
			shards: make([]shard[K, V], shards),
			groups: make([]atomic.Pointer[group[K, V]], groups),
		})
	})
	return m.table.Load()
}

func (t *table[K, V]) find(hash uint64, key K) *entry[K, V] {
	g := t.group(hash).Load()
	if g == nil {
		return nil
	}
	e := g[hash&(1<<groupBits-1)].Load()
	for e != nil && (e.hash != hash || e.key != key) {
		e = e.next.Load()
	}
	return e
}

func (t *table[K, V]) group(hash uint64) *atomic.Pointer[group[K, V]] {
	return &t.groups[(hash>>groupBits)&uint64(len(t.groups)-1)]
}

// shardOf returns the number of the shard that guards the group of hash. There are
// fewer shards than groups, so that all of a group is in one.
func (t *table[K, V]) shardOf(hash uint64) int {
	return int((hash >> groupBits) & uint64(len(t.shards)-1))
}

// head returns where the chain of hash begins. Its shard is locked.
func (t *table[K, V]) head(hash uint64) *atomic.Pointer[entry[K, V]] {
	at := t.group(hash)
	g := at.Load()
	if g == nil {
		g = new(group[K, V])
		at.Store(g)
	}
	return &g[hash&(1<<groupBits-1)]
}

// add makes the entry of a new key. Where all places are taken, and the key's own
// shard has none to evict that may go, one is looked for in a few others: one lock
// at a time, so that nobody waits in a circle. Only then must a kept one go.
func (m *Map[K, V]) add(t *table[K, V], hash uint64, key K) *V {
	own, e := t.shardOf(hash), &entry[K, V]{hash: hash, key: m.clone(key)}
	for away := 1; ; away++ {
		must := away > min(searchShards, len(t.shards)-1)
		if v := m.tryAdd(t, own, e, away == 1, must); v != nil {
			return v
		}
		if t.shards[(own+away)&(len(t.shards)-1)].evictOrGrow(t, m.Keep, must) {
			m.held.Add(-1)
		}
	}
}

// tryAdd finds the key, which somebody else may have added meanwhile, or makes it.
// It returns nil if there is no place for it: if it must find one, only where the
// shard is empty.
func (m *Map[K, V]) tryAdd(t *table[K, V], own int, e *entry[K, V], first, must bool) *V {
	s := &t.shards[own]
	s.mu.Lock()
	defer s.mu.Unlock() // deferred, because Keep may panic
	if there := t.find(e.hash, e.key); there != nil {
		return &there.value
	}
	if first {
		s.pay()
	}
	if m.reserve(t) {
		s.ring = append(s.ring, e)
	} else {
		i, free := s.victim(m.Keep)
		if i < 0 || !free && !must {
			return nil
		}
		t.remove(s.ring[i])
		s.ring[i] = e
	}
	// A new entry is not marked as used: the hand has just gone by, so it has
	// one whole turn to be asked for a second time. Hosts that are met once
	// thus make room for each other, not for those in steady use.
	head := t.head(e.hash)
	e.next.Store(head.Load())
	head.Store(e) // complete before it can be seen
	return &e.value
}

// reserve takes one of the places, if there is one left.
func (m *Map[K, V]) reserve(t *table[K, V]) bool {
	for {
		held := m.held.Load()
		if held >= t.max {
			return false
		}
		if m.held.CompareAndSwap(held, held+1) {
			return true
		}
	}
}

func (m *Map[K, V]) clone(key K) K {
	if m.Clone != nil {
		return m.Clone(key)
	}
	switch k := any(&key).(type) {
	case *string:
		*k = strings.Clone(*k)
	case *Key:
		*k = k.Clone()
	}
	return key
}

// remove takes e, which is there, out of its chain. It goes by identity, not by
// key, for there are keys that do not even equal themselves (NaN). Its shard is
// locked.
func (t *table[K, V]) remove(e *entry[K, V]) {
	p := t.head(e.hash)
	for p.Load() != e {
		p = &p.Load().next
	}
	p.Store(e.next.Load()) // e.next stays: a reader may stand on e
}
