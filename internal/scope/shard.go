package scope

import "sync"

const (
	// mostShards is into how many parts a Map is divided, so that new keys wait
	// for each other only where they fall into the same one.
	mostShards = 64
	// shardSize is how many places there are for each shard, at least.
	shardSize = 64
	// searchShards is in how many other shards room is looked for, at most, when
	// all that a key's own shard holds is kept.
	searchShards = 8
)

// searchPerInsert is how many entries, on average, an eviction may look at. The
// search is for the first entry that is neither used nor kept. Every new key
// pays in this many steps, up to two turns of the hand (the first clears the
// used marks, so the second finds whatever is not kept), and a search takes
// what it needs: a hundred kept entries in a row are passed over. Only where
// nearly all are kept does the account run out, and then the second best has to
// go, because a new host must not wait, again and again, for a walk over
// thousands of open circuits. That also is how a Map gets rid of entries that
// are kept for ever and never asked for.
const searchPerInsert = 64

// shard is the part of a Map's entries whose hashes fall into the same groups. How
// many entries it holds is bounded by the Map alone: the places are all shards'.
type shard[K comparable, V any] struct {
	mu     sync.Mutex
	ring   []*entry[K, V] // what is held, in no order but that of the hand
	hand   int
	credit int // steps that the hand may still make in search of a victim
}

// pay adds what one new key pays for the search. The shard is locked.
func (s *shard[K, V]) pay() {
	s.credit = min(s.credit+searchPerInsert, max(2*len(s.ring), searchPerInsert))
}

// victim returns the index in the ring of the entry to evict, and whether it may
// go: -1 if there is none, and false if all that was seen is kept. The shard is
// locked.
func (s *shard[K, V]) victim(keep func(*V) bool) (best int, free bool) {
	best, bestRank := -1, 4
	if len(s.ring) > 0 {
		best = s.hand % len(s.ring)
	}
	for s.credit > 0 && len(s.ring) > 0 {
		s.credit--
		i := s.hand % len(s.ring)
		s.hand = i + 1
		e := s.ring[i]
		rank := 0
		if e.used.Load() {
			e.used.Store(false)
			rank++
		}
		if keep != nil && keep(&e.value) {
			rank += 2
		}
		if rank == 0 {
			return i, true
		}
		if rank < bestRank {
			best, bestRank = i, rank
		}
	}
	return best, bestRank < 2
}

// evict forgets an entry, for which the last of the ring moves up. The shard is
// locked.
func (s *shard[K, V]) evict(t *table[K, V], i int) {
	t.remove(s.ring[i])
	last := len(s.ring) - 1
	s.ring[i], s.ring[last] = s.ring[last], nil
	s.ring = s.ring[:last]
}

// giveUp evicts an entry, for a new one in another shard, and reports whether it
// did: one that may go, or any if it must.
func (s *shard[K, V]) evictOrGrow(t *table[K, V], keep func(*V) bool, must bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, free := s.victim(keep)
	if i < 0 || !free && !must {
		return false
	}
	s.evict(t, i)
	return true
}
