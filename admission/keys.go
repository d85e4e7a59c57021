package admission

import "slices"

// keyQueue has the requests of one key: those that wait, by class, and the number in flight.
// Without Shedder.Key, there is one for all requests.
type keyQueue struct {
	key      string
	inflight [classes]int
	queued   int
	waiting  [classes]classQueue
}

// classQueue has the waiting requests of a key and class, the newest first: under lasting
// overload, the oldest has the least time left.
type classQueue struct {
	newest, oldest *waiter
	len            int
}

// held returns how many slots the key's requests of a class and of more important ones hold.
func (k *keyQueue) held(class int) (n int) {
	for _, inflight := range k.inflight[:class+1] {
		n += inflight
	}
	return n
}

// first returns the newest request of the most important class that waits.
func (k *keyQueue) first() *waiter {
	for i := range k.waiting {
		if w := k.waiting[i].newest; w != nil {
			return w
		}
	}
	return nil
}

// last returns the oldest request of the least important class that waits.
func (k *keyQueue) last() *waiter {
	for i := classes - 1; i >= 0; i-- {
		if w := k.waiting[i].oldest; w != nil {
			return w
		}
	}
	return nil
}

// fairQueue has the waiting requests of all keys. A key exists only while it has requests
// that wait or are in flight.
type fairQueue struct {
	shared  keyQueue // of all requests without Shedder.Key
	keys    map[string]*keyQueue
	spare   *keyQueue   // one that can be used again
	waiting []*keyQueue // the keys that wait; the one served last is at the end
	len     int
}

// of returns the queue of a key.
func (q *fairQueue) of(key string) *keyQueue {
	if k := q.keys[key]; k != nil {
		return k
	}
	if q.keys == nil {
		q.keys = map[string]*keyQueue{}
	}
	k := q.spare
	if k == nil {
		k = new(keyQueue)
	}
	q.spare, k.key = nil, key
	q.keys[key] = k
	return k
}

// forget deletes a key that has no requests.
func (q *fairQueue) forget(k *keyQueue) {
	if k != &q.shared && k.queued == 0 && k.held(classes-1) == 0 && q.keys[k.key] == k {
		delete(q.keys, k.key)
		k.key = ""
		q.spare = k
	}
}

// push adds a request to the queue of its key.
func (q *fairQueue) push(w *waiter) {
	if w.key.queued == 0 {
		q.waiting = append(q.waiting, w.key)
	}
	c := &w.key.waiting[w.class]
	w.queued, w.newer, w.older = true, nil, c.newest
	if c.newest != nil {
		c.newest.newer = w
	} else {
		c.oldest = w
	}
	c.newest = w
	c.len++
	w.key.queued++
	q.len++
}

// remove removes a request, if it is still in the queue.
func (q *fairQueue) remove(w *waiter) {
	if !w.queued {
		return
	}
	c := &w.key.waiting[w.class]
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		c.newest = w.older
	}
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		c.oldest = w.newer
	}
	w.queued, w.newer, w.older = false, nil, nil
	c.len--
	w.key.queued--
	q.len--
	if w.key.queued == 0 {
		i := slices.Index(q.waiting, w.key)
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// exceedsShare reports whether one more request of the class would hold more than an equal
// share of the slots. Every key may hold one.
func (q *fairQueue) exceedsShare(k *keyQueue, class, slots int) bool {
	return len(q.keys) > 1 && k.held(class)+1 > max(1, slots/len(q.keys))
}

// first returns the request that gets the next slot. Keys within their share come first, by
// priority. Of equal ones, the key that holds the fewest slots is next.
func (q *fairQueue) first(slots int) *waiter {
	if len(q.waiting) == 0 {
		return nil
	}
	best := q.waiting[0].first()
	for _, k := range q.waiting[1:] {
		if w := k.first(); q.before(w, best, slots) {
			best = w
		}
	}
	return best
}

// before reports whether a gets a slot before b.
func (q *fairQueue) before(a, b *waiter, slots int) bool {
	exceedsA, exceedsB := q.exceedsShare(a.key, a.class, slots), q.exceedsShare(b.key, b.class, slots)
	switch {
	case exceedsA != exceedsB:
		return exceedsB
	case !exceedsA && a.class != b.class:
		return a.class < b.class
	}
	return a.key.held(a.class) < b.key.held(b.class)
}

// served moves a key behind all others that wait.
func (q *fairQueue) served(k *keyQueue) {
	if k.queued > 0 && len(q.waiting) > 1 {
		i := slices.Index(q.waiting, k)
		q.waiting = append(slices.Delete(q.waiting, i, i+1), k)
	}
}

// last returns the request that is evicted: of the key with the most that wait, the oldest
// of the least important class.
func (q *fairQueue) last() *waiter {
	longest := q.waiting[0]
	for _, k := range q.waiting[1:] {
		if k.queued > longest.queued {
			longest = k
		}
	}
	return longest.last()
}

// ahead returns how many waiting requests certainly get a slot before a new one: those of
// the same key that are more important.
func (k *keyQueue) ahead(class int) (n int) {
	for i := range class {
		n += k.waiting[i].len
	}
	return n
}

// drop removes a request that gets no slot.
func (q *fairQueue) drop(w *waiter) {
	q.remove(w)
	q.forget(w.key)
}
