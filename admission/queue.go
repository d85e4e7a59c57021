package admission

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// classes is how many priorities there are.
const classes = 3

// class is the place of a priority among them: 0 is what matters most.
func class(p resilienthttp.Priority) int { return int(resilienthttp.PriorityCritical - p) }

// waiter is a request that waits for a place.
type waiter struct {
	class        int
	older, newer *waiter // of its class
	queued       bool
	until        time.Duration // it does not wait longer
	flight       int           // how many have a place, itself among them, when it gets one
	verdict      chan verdict  // is sent one when somebody else takes it out of the queue
	timer        *time.Timer
}

// verdict is what somebody else decides of a waiter.
type verdict uint8

const (
	admitted verdict = iota
	evicted
)

func (v verdict) reason() Reason {
	if v == admitted {
		return ReasonNone
	}
	return ReasonEvicted
}

// queue is those who wait, by class, the newest first: under lasting overload the
// oldest is the one that has the least time left.
type queue struct {
	classes [classes]struct {
		newest, oldest *waiter
		len            int
	}
	len int
}

func (q *queue) push(w *waiter) {
	c := &q.classes[w.class]
	w.queued, w.newer, w.older = true, nil, c.newest
	if c.newest != nil {
		c.newest.newer = w
	} else {
		c.oldest = w
	}
	c.newest = w
	c.len++
	q.len++
}

// remove takes one out that may not be in it any more.
func (q *queue) remove(w *waiter) {
	if !w.queued {
		return
	}
	c := &q.classes[w.class]
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
	q.len--
}

// first is who is next: of the most important class the newest.
func (q *queue) first() *waiter {
	for i := range q.classes {
		if w := q.classes[i].newest; w != nil {
			return w
		}
	}
	return nil
}

// last is who has to make room: of the least important class the oldest.
func (q *queue) last() *waiter {
	for i := classes - 1; i >= 0; i-- {
		if w := q.classes[i].oldest; w != nil {
			return w
		}
	}
	return nil
}

// ahead is how many are certain to come before a new one of the class.
func (q *queue) ahead(class int) int {
	n := 0
	for i := range class {
		n += q.classes[i].len
	}
	return n
}
