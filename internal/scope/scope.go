// Package scope holds a bounded map from a name (a host, a tenant, a route) to its state. A
// crawler, a webhook sender or a proxy uses any number of names, and an attacker may invent names
// to exhaust the memory. So a Map evicts names that are no longer used.
package scope

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"
)

// DefaultMax is the number of entries that a Map holds when its Max is 0.
const DefaultMax = 16384

// Map holds one V for each key, and at most Max of them. The zero value is ready for use. Fields
// must not change after the first key was added.
//
// A new key of a full Map evicts an old one by the CLOCK algorithm. This is the next entry that
// was not used during one round of the hand and that Keep does not protect. If all entries in
// reach are protected, one of them is evicted. An evicted *V stays valid memory, but Get returns
// another one for its key.
//
// All methods are safe for concurrent use. Get of a present key, Peek and All take no lock. New keys wait for each
// other, but none for a search of more than a few hundred entries. A key must be equal to itself (no NaN).
type Map[K comparable, V any] struct {
	// Max is the maximum number of entries. Zero or a negative number means DefaultMax.
	Max int

	// Keep reports whether an entry must be evicted last, for example an open circuit. It is
	// called for many entries with the Map locked. It must be quick, must not use the Map, and
	// must synchronize with the users of the V. nil means that no entry is protected.
	Keep func(*V) bool

	// Held reports whether a record points to an entry. A held entry is not evicted: if all
	// entries are held, the Map grows, up to 16 times Max. The rules of Keep apply. nil means
	// that no entry is held.
	Held func(*V) bool

	// Init initializes the V of a new key before another goroutine can see it. It is called with
	// a shard locked, after the eviction, and must not use the Map. The key is the stored copy.
	// nil means that V stays the zero value.
	Init func(K, *V)

	// Evicted is called for each evicted entry, with the Map locked. It must not use the Map. nil
	// means no call.
	Evicted func(*V)

	index sync.Map     // K to *entry[K, V]
	count atomic.Int64 // number of entries in all shards

	mu     sync.Mutex // guards the fields below
	shards []shard[K, V]
	next   int // the shard of the next new key (round robin)
}

type entry[K comparable, V any] struct {
	key   K
	used  atomic.Bool // the entry was used since the hand passed
	value V
}

// Get returns the V of key. It creates one if there is none.
func (m *Map[K, V]) Get(key K) *V {
	v, _ := m.index.Load(key)
	e, ok := v.(*entry[K, V])
	if !ok {
		return m.add(key)
	}
	if !e.used.Load() { // a store at each call would contend for the cache line
		e.used.Store(true)
	}
	return &e.value
}

// Peek returns the V of key, or nil if there is none. It does not mark the entry as used.
func (m *Map[K, V]) Peek(key K) *V {
	v, _ := m.index.Load(key)
	if e, ok := v.(*entry[K, V]); ok {
		return &e.value
	}
	return nil
}

// All calls f with each key and its V, in no order, until f returns false. It does not mark
// entries as used. An entry that is added or evicted during All may be omitted. None is visited
// twice.
func (m *Map[K, V]) All(f func(K, *V) bool) {
	m.index.Range(func(_, v any) bool {
		e, _ := v.(*entry[K, V])
		return f(e.key, &e.value)
	})
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return int(m.count.Load()) }

// add creates the entry of a new key. If its shard is full of protected entries, it tries others.
// After that it evicts a protected entry.
func (m *Map[K, V]) add(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock() // also after a panic of Keep
	if v := m.Peek(key); v != nil {
		return v // another goroutine has added it
	}
	if size := m.limit(); m.shards == nil {
		m.shards = make([]shard[K, V], max(size/shardSize, 1))
		for i := range m.shards {
			m.shards[i].size = (size + len(m.shards) - 1 - i) / len(m.shards) // the sum is Max
		}
	}
	key = clone(key)
	own := m.next
	m.next = (own + 1) % len(m.shards)
	for i := range min(maxShards, len(m.shards)) {
		if v := m.shards[(own+i)%len(m.shards)].add(m, key, false); v != nil {
			return v
		}
	}
	return m.shards[own].add(m, key, true)
}

func (m *Map[K, V]) limit() int { return cmp.Or(max(m.Max, 0), DefaultMax) }

// clone copies a string, or a key that can copy itself. It is often a part of a larger string, which it would keep in memory.
func clone[K any](key K) K {
	switch k := any(&key).(type) {
	case *string:
		*k = strings.Clone(*k)
	case interface{ Clone() K }:
		return k.Clone()
	}
	return key
}

// Key identifies shared state: a scope, and a class of calls within it that has its own state (a
// priority). The zero Class is the default.
type Key struct {
	Name  string
	Class int8
}

// Clone copies the name, which may be a part of a larger string.
func (k Key) Clone() Key { return Key{strings.Clone(k.Name), k.Class} }

// Refs counts the records that point to a map's value: see Map.Held.
type Refs struct{ n atomic.Int32 }

// Acquire counts one more record.
func (r *Refs) Acquire() { r.n.Add(1) }

// Release ends one Acquire.
func (r *Refs) Release() { r.n.Add(-1) }

// Held reports whether a record points to the value.
func (r *Refs) Held() bool { return r.n.Load() > 0 }

const (
	// shardSize is the number of entries of a shard, or a few more. Protected entries that were added together are in
	// many shards, so a search that is bounded finds others between them.
	shardSize = 64

	// maxShards is the number of shards in which a new key searches for an entry that may be
	// evicted. A new host must not wait for a walk over thousands of open circuits.
	maxShards = 8

	// maxGrowth is the maximum size of a shard with only held entries, as a multiple of its size.
	maxGrowth = 16
)

// shard is a ring of entries with the hand of the CLOCK algorithm.
type shard[K comparable, V any] struct {
	size int // maximum of the ring
	ring []*entry[K, V]
	hand int
}

// add stores a new key. If the shard is full, it replaces another entry. It returns nil if all
// entries are protected, unless evictKept is set.
func (s *shard[K, V]) add(m *Map[K, V], key K, evictKept bool) *V {
	i := len(s.ring)
	if i >= s.size {
		index, free := s.victim(m)
		switch {
		case !free && !evictKept:
			return nil
		case index >= 0:
			i = index
		case i >= maxGrowth*s.size:
			i = s.hand
		}
	}
	if i == len(s.ring) {
		s.ring = append(s.ring, nil)
		m.count.Add(1)
	} else {
		victim := s.ring[i]
		m.index.Delete(victim.key)
		if m.Evicted != nil {
			m.Evicted(&victim.value)
		}
	}
	e := &entry[K, V]{key: key}
	s.ring[i] = e
	if m.Init != nil {
		m.Init(key, &e.value)
	}
	m.index.Store(key, e)
	return &e.value
}

// victim returns the index of the entry to evict. free is false if all entries are protected, and
// the index is negative if all are held. The first round of the hand clears the used marks, so
// that the second finds each entry that may be evicted; without a used entry there is none. If held
// entries have made the ring longer, later keys search in the rest of it. The shard is full.
func (s *shard[K, V]) victim(m *Map[K, V]) (index int, free bool) {
	index = -1
	unused := 0 // entries since the last used one: after a round of them, the next finds the same
	for steps := 2 * min(len(s.ring), 2*s.size); steps > 0 && unused < len(s.ring); steps-- {
		i := s.hand
		s.hand = (i + 1) % len(s.ring)
		e := s.ring[i]
		unused++
		switch {
		case e.used.Load():
			e.used.Store(false)
			unused = 0
		case m.Held != nil && m.Held(&e.value):
		case m.Keep == nil || !m.Keep(&e.value):
			return i, true
		case index < 0:
			index = i
		}
	}
	return index, false
}
