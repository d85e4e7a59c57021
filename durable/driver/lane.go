package driver

import (
	"cmp"
	"math"
	"slices"
)

// QueueKey identifies the queue of a gateway in a scope.
type QueueKey struct{ Scope, Gateway string }

// QueueKeyOf is that of a record.
func QueueKeyOf(r *Record) QueueKey { return QueueKey{Scope: r.ID.Scope, Gateway: r.Gateway} }

// Capacity is how much of everything a claim has room for, by the shares that Claim tells of.
// It is not safe for concurrent use.
type Capacity struct {
	claim  *Claim
	left   int // of Claim.Limit
	all    use
	scopes map[string]*use
}

// use is what is held of so many senders: those of a worker, or of a scope's share.
type use struct {
	size, total int
	held        map[string]int // by gateway
}

// Capacity returns that of a claim that has taken nothing yet.
func (c *Claim) Capacity() *Capacity {
	r := &Capacity{claim: c, left: c.Limit, all: newUse(cmp.Or(c.MaxWorkers, math.MaxInt)), scopes: make(map[string]*use)}
	for lane, n := range c.InFlight {
		r.all.add(lane.Gateway, n)
		r.scope(lane.Scope).add(lane.Gateway, n)
	}
	return r
}

func newUse(size int) use { return use{size: size, held: make(map[string]int)} }

func (u *use) add(gateway string, n int) {
	u.held[gateway] += n
	u.total += n
}

func (r *Capacity) scope(name string) *use {
	u := r.scopes[name]
	if u == nil {
		made := newUse(r.claim.PerScope)
		u = &made
		r.scopes[name] = u
	}
	return u
}

// Gateway is how many more of a gateway there is room for, in whatever scopes.
func (r *Capacity) Gateway(name string) int { return min(r.left, r.all.room(r.claim, name)) }

// Scope is how many more of a scope there is room for, of whatever gateways.
func (r *Capacity) Scope(name string) int { return max(min(r.left, r.scope(name).left()), 0) }

// Queue is how many more of a queue there is room for.
func (r *Capacity) Queue(l QueueKey) int {
	return min(r.Gateway(l.Gateway), r.scope(l.Scope).room(r.claim, l.Gateway))
}

// PerScope is how many there is room for of a gateway in a scope of which nothing is held.
func (r *Capacity) PerScope(gateway string) int {
	fresh := newUse(r.claim.PerScope)
	return min(r.Gateway(gateway), fresh.room(r.claim, gateway))
}

// TryTake takes one of a queue, if there is room.
func (r *Capacity) TryTake(l QueueKey) bool {
	if r.Queue(l) <= 0 {
		return false
	}
	r.left--
	r.all.add(l.Gateway, 1)
	r.scope(l.Scope).add(l.Gateway, 1)
	return true
}

func (u *use) left() int { return u.size - u.total }

// room is how many more of a gateway are within its share, and leave to each other gateway
// what is kept for it: a quarter of all in even parts, of one at least, for the first that
// come if these are more than the quarter.
func (u *use) room(c *Claim, gateway string) int {
	share, bound := c.GatewayLimits[gateway]
	if !bound { // what is of no gateway is not sent
		return max(u.left(), 0)
	}
	quarter := u.size / 4
	part := min(max(quarter/len(c.GatewayLimits), 1), quarter)
	others := 0
	for name := range c.GatewayLimits {
		if name != gateway {
			others += max(part-u.held[name], 0)
		}
	}
	kept := min(others, quarter)
	most := max(int(int64(share)*int64(u.size)/int64(c.MaxWorkers)), 1)
	return max(min(most-u.held[gateway], u.left(), max(part-u.held[gateway], u.left()-kept)), 0)
}

// FairOrder puts what a store has found into the order of the round, and leaves out what there
// is no room for: the scopes give one in their turn, first those behind Claim.After; and
// in a scope the gateways, of which it has taken least and then what is due longest. Each
// lane's rows are in their order already, and record gives that of one.
func FairOrder[T any](room *Capacity, rows []T, record func(T) *Record) []T {
	type queue struct {
		lane  QueueKey
		rows  []T
		given int
	}
	lanes := make(map[QueueKey]*queue)
	scopes := make(map[string][]*queue)
	var names []string
	for _, row := range rows {
		lane := QueueKeyOf(record(row))
		q := lanes[lane]
		if q == nil {
			q = &queue{lane: lane}
			lanes[lane] = q
			if scopes[lane.Scope] == nil {
				names = append(names, lane.Scope)
			}
			scopes[lane.Scope] = append(scopes[lane.Scope], q)
		}
		q.rows = append(q.rows, row)
	}
	slices.SortFunc(names, room.claim.inRound)
	sooner := func(a, b *queue) int {
		return cmp.Or(cmp.Compare(a.given, b.given), record(a.rows[0]).NextAt.Compare(record(b.rows[0]).NextAt),
			cmp.Compare(a.lane.Gateway, b.lane.Gateway))
	}
	var taken []T
	for before := -1; before < len(taken); {
		before = len(taken)
		for _, name := range names {
			open := slices.DeleteFunc(scopes[name], func(q *queue) bool { return len(q.rows) == 0 || room.Queue(q.lane) == 0 })
			scopes[name] = open
			if len(open) == 0 {
				continue
			}
			q := slices.MinFunc(open, sooner)
			room.TryTake(q.lane)
			taken, q.rows = append(taken, q.rows[0]), q.rows[1:]
			q.given++
		}
	}
	return taken
}

// Start is the scope behind which the round of a gateway begins.
func (c *Claim) Start(gateway string) string {
	if behind, served := c.GatewayCursors[gateway]; served {
		return behind
	}
	return c.ScopeCursor
}

// inRound compares scopes by when it is their turn.
func (c *Claim) inRound(a, b string) int {
	return cmp.Or(cmp.Compare(btoi(a <= c.ScopeCursor), btoi(b <= c.ScopeCursor)), cmp.Compare(a, b))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
