package quota

import (
	"container/list"
	"strings"
)

// route is the set of requests that are like this one.
func (b *bucket) route(method, path string) uint64 {
	return b.limiter.routeKeys(b.account.Load().who.scope, method, path).keys[0]
}

// pattern is the name of a route: in all processes the same.
func pattern(method, path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if looksLikeID(segment) {
			segments[i] = "*"
		}
	}
	return method + " " + strings.Join(segments, "/")
}

// refuse is told of a refusal that has been learned from.
func (b *bucket) refuse(t *Ticket) {
	route := b.route(t.method, t.path)
	for i := range b.axes {
		if q := &b.axes[i]; q.closes(b.latest) && (q.mentioned == b.version || t.scout) {
			q.belief.refuse(route)
			b.shown.Store(true)
		}
	}
}

// apart tells the quota apart of which an answer speaks that names none, where it cannot
// be the bucket's, of which nothing remains: by its limit, if that is another one, or
// else by its route. 0: it may be the bucket's. What was not sent in spite of the claim
// may be of before.
func (b *bucket) apart(t *Ticket, a *Answer) (id uint64) {
	if !t.scout && !b.shown.Load() || !a.served() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	route := b.route(t.method, t.path)
	for i := range b.axes {
		q := &b.axes[i]
		proven := q.belief.n > 0 // for another route
		if !q.closes(b.latest) || !t.scout && !proven || q.belief.holds(route) {
			continue
		}
		said := a.on(q.name)
		switch {
		case said != nil && said.Remaining == 0:
		case said != nil && said.Limit > 0 && said.Limit != q.limit:
			return uint64(said.Limit)
		case t.scout && proven:
			return b.limiter.Hash(pattern(t.method, t.path))
		}
	}
	return 0
}

// part gives the request's route, of the bucket's, the one of its own that its answer
// has shown, and returns that. Those of it who wait go there.
func (l *Limiter) part(from *bucket, t *Ticket, id uint64) *bucket {
	who, route := from.account.Load(), from.route(t.method, t.path)
	who.naming.Store(true)
	who.apart.Store(true)
	own := namedBucket{id: id}
	l.routes.Get(route).vote(own, 1)
	from.mu.Lock()
	defer from.mu.Unlock()
	for lane := range from.lanes {
		lane.move(route)
	}
	return l.bucket(who, own, 0)
}

// move sends those of the route away, to another bucket.
func (l *lane) move(route uint64) {
	var next *list.Element
	for place := l.waiters.Front(); place != nil; place = next {
		next = place.Next()
		if w := waiterAt(place); l.bucket.route(w.method, w.path) == route {
			l.dismiss(place, Ticket{}, &Refusal{Reason: moved})
		}
	}
}
