package resilientotel

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// table is a map that is read far more often than it grows: who reads takes no lock. It
// never shrinks, so its keys must be bounded.
type table[K comparable, V any] struct {
	read atomic.Pointer[map[K]V]
	full atomic.Bool
	mu   sync.Mutex // of those who add
}

func (t *table[K, V]) get(key K) (v V, ok bool) {
	if m := t.read.Load(); m != nil {
		v, ok = (*m)[key]
	}
	return v, ok
}

// add adds what value makes for a key, unless somebody was quicker or the table has most
// entries already; ok is whether it is there.
func (t *table[K, V]) add(key K, most int, value func() (K, V)) (v V, ok bool) {
	if t.full.Load() {
		return t.get(key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.get(key); ok {
		return v, ok
	}
	grown := map[K]V{}
	if m := t.read.Load(); m != nil {
		if most >= 0 && len(*m) >= most {
			t.full.Store(true)
			return v, false
		}
		grown = maps.Clone(*m)
	}
	key, v = value()
	grown[key] = v
	t.read.Store(&grown)
	return v, true
}

// other is what all values of an attribute are called that came when there were as many
// as there may be.
const other = "_OTHER"

// names are the values of an attribute: the first so many, and other. Negative: any number.
type names struct {
	most  int
	known table[string, string]
}

// of is what a name is called.
func (n *names) of(name string) string {
	if known, ok := n.known.get(name); ok {
		return known
	}
	known, ok := n.known.add(name, n.most, func() (string, string) {
		name = strings.Clone(name) // which may be a part of something large
		return name, name
	})
	if !ok {
		return other
	}
	return known
}
