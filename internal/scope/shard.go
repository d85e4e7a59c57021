package scope

import "sync"

const (
	// shardSize is the number of entries of a shard, or a few more. It bounds the time for
	// which a new key holds the lock of a shard.
	shardSize = 64

	// maxShards is the number of shards in which a new key searches for an entry that may be
	// evicted. A new host must not wait for a walk over thousands of open circuits.
	maxShards = 8

	// maxGrowth is the maximum size of a shard with only held entries, as a multiple of its size.
	maxGrowth = 16
)

// shard is a ring of entries with the hand of the CLOCK algorithm.
type shard[K comparable, V any] struct {
	mu   sync.Mutex
	size int // maximum of the ring
	ring []*entry[K, V]
	hand int
}

// add stores a new key. If the shard is full, it replaces another entry. It returns nil if all
// entries are protected, unless evictKept is set.
func (s *shard[K, V]) add(m *Map[K, V], key K, evictKept bool) *V {
	s.mu.Lock()
	defer s.mu.Unlock() // also after a panic of Keep
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
// that the second finds each entry that may be evicted. If held entries have made the ring longer,
// later keys search in the rest of it. The shard is locked and full.
func (s *shard[K, V]) victim(m *Map[K, V]) (index int, free bool) {
	index = -1
	for range min(len(s.ring), 2*s.size) * 2 {
		i := s.hand
		s.hand = (i + 1) % len(s.ring)
		e := s.ring[i]
		used := e.used.Load()
		if used {
			e.used.Store(false)
		}
		held := m.Held != nil && m.Held(&e.value)
		switch kept := m.Keep != nil && m.Keep(&e.value); {
		case held || used:
		case !kept:
			return i, true
		case index < 0:
			index = i
		}
	}
	return index, false
}
