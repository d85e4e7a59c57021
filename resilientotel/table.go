package resilientotel

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// table is a map for keys that are read far more often than added. A reader takes no lock.
// Entries are never removed, so the number of keys must be bounded.
type table[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	full    atomic.Bool
	adding  sync.Mutex
}

func (t *table[K, V]) get(key K) (v V, ok bool) {
	if m := t.entries.Load(); m != nil {
		v, ok = (*m)[key]
	}
	return v, ok
}

// add returns the entry of a key. If there is none, and fewer than limit entries, it adds
// what create returns. A negative limit is no limit. ok is false if the table is full.
func (t *table[K, V]) add(key K, limit int, create func() (K, V)) (v V, ok bool) {
	if v, ok = t.get(key); ok || t.full.Load() {
		return v, ok
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	if v, ok = t.get(key); ok {
		return v, ok
	}
	grown := map[K]V{}
	if m := t.entries.Load(); m != nil {
		if limit >= 0 && len(*m) >= limit {
			t.full.Store(true)
			return v, false
		}
		grown = maps.Clone(*m)
	}
	key, v = create()
	grown[key] = v
	t.entries.Store(&grown)
	return v, true
}

// names limits the number of values of an attribute. Values beyond it become "_OTHER".
type names struct {
	limit int // negative: none
	known table[string, string]
}

func (n *names) of(name string) string {
	known, ok := n.known.add(name, n.limit, func() (string, string) {
		name = strings.Clone(name) // it may be a part of a long string
		return name, name
	})
	if !ok {
		return other
	}
	return known
}
