package admission

// keyQueue has the requests of one key: those that wait, by class, and the number in flight.
type keyQueue struct {
	key      string
	inflight [classes]int
	queued   int
	waiting  [classes]classQueue
	mark     uint64           // see knownKeys
	light    bool             // it holds less than half of the slots, see also knownKeys.isLight
	served   uint64           // when it last got a slot; zero means not since it was idle
	place    [classes + 1]int // its place in each keyHeap, from 1; zero means none
}

// precedes reports whether k gets a slot before b. Of light keys, the newest request comes
// first, as without keys. Of the others, the key that was served last comes last.
func (k *keyQueue) precedes(b *keyQueue, class int) bool {
	switch heldK, heldB := k.held(class), b.held(class); {
	case k.light != b.light:
		return k.light
	case k.light:
		return k.first().since > b.first().since
	case heldK != heldB:
		return heldK < heldB
	case k.served != b.served:
		return k.served < b.served
	}
	return k.first().since > b.first().since
}

// losesBefore reports whether k loses a request before b: the key with the most that wait. Light
// keys lose the oldest of their least important requests, as without keys.
func (k *keyQueue) losesBefore(b *keyQueue) bool {
	lastK, lastB := k.last(), b.last()
	switch {
	case k.light != b.light:
		return b.light
	case !k.light && k.queued != b.queued:
		return k.queued > b.queued
	case lastK.class != lastB.class:
		return lastK.class > lastB.class
	}
	return lastK.since < lastB.since
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

// fairQueue has the waiting requests of all keys. A known key has a queue of its own. Other
// keys are strangers: a client can invent them, so all strangers together count as at most
// strangerKeys keys.
//
// A pool of invented keys can become known. Equal shares would then leave each other key the
// share of one key of the pool. So shares limit only keys that are not light, and light keys
// are served as without keys.
type fairQueue struct {
	shared   keyQueue // of strangers, or of all requests without Shedder.Key
	keys     map[string]*keyQueue
	spare    *keyQueue        // one that can be used again
	next     [classes]keyHeap // the keys that wait, by their most important class: fewest slots first
	longest  keyHeap          // the keys that wait: most waiting requests first
	sequence uint64           // counts requests that wait, and slots
	admitted knownKeys
	allSlots int // the limit
	len      int
}

const (
	// strangerKeys is the number of keys for which all strangers together count, at most.
	strangerKeys = 3

	// keysPerSlot is the number of keys that may wait, per slot.
	keysPerSlot = 4
)

// of returns the queue for a request of the key, and the key's mark in admitted.
func (q *fairQueue) of(key string) (*keyQueue, uint64) {
	if q.keys == nil {
		q.init()
	}
	mark := q.admitted.mark(key)
	q.admitted.come(mark)
	if k := q.keys[key]; k != nil {
		return k, mark
	}
	if !q.admitted.has(mark) {
		return &q.shared, mark
	}
	k := q.spare
	if k == nil {
		k = new(keyQueue)
	}
	q.spare, k.key, k.mark, k.served = nil, key, mark, 0
	q.keys[key] = k
	return k, mark
}

func (q *fairQueue) init() {
	q.keys = map[string]*keyQueue{}
	q.admitted.init()
	for class := range q.next {
		q.next[class] = keyHeap{which: class, before: func(a, b *keyQueue) bool { return a.precedes(b, class) }}
	}
	q.longest = keyHeap{which: classes, before: (*keyQueue).losesBefore}
}

// forget deletes a key that has no requests.
func (q *fairQueue) forget(k *keyQueue) {
	if k != &q.shared && k.queued == 0 && k.held(classes-1) == 0 && q.keys[k.key] == k {
		delete(q.keys, k.key)
		k.key = ""
		q.spare = k
	}
}

// update moves a key to its place after its requests have changed.
func (q *fairQueue) update(k *keyQueue) {
	if k == &q.shared {
		return
	}
	k.light = 2*k.held(classes-1) < q.allSlots && q.admitted.isLight(k.mark)
	first := k.first()
	for class := range q.next {
		q.next[class].set(k, first != nil && first.class == class)
	}
	q.longest.set(k, first != nil)
}

// push adds a request to the queue of its key.
func (q *fairQueue) push(w *waiter) {
	q.sequence++
	w.since = q.sequence
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
	q.update(w.key)
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
	q.update(w.key)
}

// strangers returns the number of keys for which the requests of the shared queue count.
func (q *fairQueue) strangers() int {
	return min(q.shared.queued+q.shared.held(classes-1), strangerKeys)
}

// held returns how many slots a key holds for a class and more important ones. Strangers hold
// what each of them holds on average.
func (q *fairQueue) held(k *keyQueue, class int) int {
	if k == &q.shared {
		return k.held(class) / max(1, q.strangers())
	}
	return k.held(class)
}

// exceedsShare reports whether one more request of the class would hold more than an equal
// share of the slots. Every key may hold one, and a light key any number.
func (q *fairQueue) exceedsShare(k *keyQueue, class, slots int) bool {
	return !k.light && q.held(k, class)+1 > max(1, slots/max(1, len(q.keys)+q.strangers()))
}

// first returns the request that gets the next slot. Keys within their share come first, by
// priority. Of equal ones, the newest request of a light key is next, and then the key that
// holds the fewest slots.
func (q *fairQueue) first(slots int) *waiter {
	best := q.shared.first()
	for i := range q.next {
		if k := q.next[i].top(); k != nil {
			if w := k.first(); best == nil || q.before(w, best, slots) {
				best = w
			}
		}
	}
	return best
}

// before reports whether a gets a slot before b.
func (q *fairQueue) before(a, b *waiter, slots int) bool {
	exceedsA, exceedsB := q.exceedsShare(a.key, a.class, slots), q.exceedsShare(b.key, b.class, slots)
	heldA, heldB := q.held(a.key, a.class), q.held(b.key, b.class)
	lightA := a.key.light || a.key == &q.shared && !exceedsA // strangers within their share
	lightB := b.key.light || b.key == &q.shared && !exceedsB
	switch {
	case exceedsA != exceedsB:
		return exceedsB
	case !exceedsA && a.class != b.class:
		return a.class < b.class
	case lightA != lightB:
		return lightA
	case lightA:
		return a.since > b.since
	case heldA != heldB:
		return heldA < heldB
	}
	return a.key.served < b.key.served
}

// admit gives a slot to a request of the key. A mark of zero means no Shedder.Key.
func (q *fairQueue) admit(k *keyQueue, class int, mark uint64) {
	k.inflight[class]++
	if mark == 0 {
		return
	}
	q.sequence++
	k.served = q.sequence
	q.admitted.add(mark)
	if k.queued > 0 {
		q.update(k)
	}
}

// tooManyKeys reports whether more keys wait than get a slot soon. Strangers are counted by
// their requests.
func (q *fairQueue) tooManyKeys(slots int) bool {
	return q.keys != nil && len(q.longest.keys)+q.shared.queued > keysPerSlot*slots
}

// last returns the request that is evicted, see losesBefore.
func (q *fairQueue) last() *waiter {
	longest := q.longest.top()
	if longest == nil || q.shared.queued/strangerKeys >= longest.queued {
		longest = &q.shared
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
