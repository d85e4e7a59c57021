package durable

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// QueueKey identifies the queue of a gateway in a scope.
type QueueKey struct{ Scope, Gateway string }

// QueueKeyOf returns the queue of a record.
func QueueKeyOf(r *Record) QueueKey { return QueueKey{Scope: r.ID.Scope, Gateway: r.Gateway} }

// Allowance is what a claim may take of one gateway.
type Allowance struct {
	// Terms are those of the gateway.
	Terms

	// Limit is the maximum number of intents. Zero means none.
	Limit int

	// PerScope is the maximum number of intents of one scope, together with Claim.InFlight.
	PerScope int

	// Cursor is the scope behind which the round over the scopes begins.
	Cursor string
}

// Allowance returns the allowance of a gateway. The intents of a gateway that is not in
// Gateways are buried, up to Limit.
func (c *Claim) Allowance(gateway string) Allowance {
	if a, ok := c.Gateways[gateway]; ok {
		a.Limit = min(a.Limit, c.Limit)
		return a
	}
	return Allowance{Limit: c.Limit, PerScope: math.MaxInt}
}

// QueueLimit returns the maximum number of intents of a queue.
func (c *Claim) QueueLimit(key QueueKey) int {
	if c.waits(key) {
		return 0
	}
	a := c.Allowance(key.Gateway)
	return max(min(a.Limit, a.PerScope-c.InFlight[key]), 0)
}

// Wait adds the provider's holds to Waiting.
func (c *Claim) Wait(holds []Hold) {
	if len(holds) == 0 {
		return
	}
	waiting := make(map[QueueKey]bool, len(c.Waiting)+len(holds))
	maps.Copy(waiting, c.Waiting)
	for i := range holds {
		waiting[holds[i].queue()] = true
	}
	c.Waiting = waiting
}

func (c *Claim) waits(key QueueKey) bool {
	return c.Waiting[key] || c.Waiting[QueueKey{Gateway: key.Gateway}]
}

// Permits reports whether Waiting permits to claim the intent.
func (c *Claim) Permits(r *Record) bool { return !c.waits(QueueKeyOf(r)) || c.isQuery(r) }

// isQuery reports whether a claim of the intent begins a status query.
func (c *Claim) isQuery(r *Record) bool {
	return r.State == StateUnknown && r.QueryNext && c.Gateways[r.Gateway].CanQuery
}

// AddQueries adds status queries of queues in Waiting to the rows of a claim. Those that a store
// has read are due, longest due first.
func AddQueries[T any](c *Claim, rows, queries []T, record func(T) *Record) []T {
	rest := *c
	rest.Waiting, rest.Gateways = nil, maps.Clone(c.Gateways)
	if rest.Limit -= len(rows); rest.Limit <= 0 {
		return rows
	}
	for _, row := range rows {
		a, ok := rest.Gateways[record(row).Gateway]
		if a.Limit--; ok {
			rest.Gateways[record(row).Gateway] = a
		}
	}
	var queues [][]T
	at := make(map[QueueKey]int)
	for _, row := range queries {
		r := record(row)
		key := QueueKeyOf(r)
		if !c.waits(key) || !c.isQuery(r) {
			continue
		}
		i, ok := at[key]
		if !ok {
			i = len(queues)
			at[key], queues = i, append(queues, nil)
		}
		queues[i] = append(queues[i], row)
	}
	return append(rows, FairOrder(&rest, queues, record)...)
}

// FairOrder selects from the queues that a store has read, and returns the rows in the order
// of the claim. Each queue has rows of one QueueKey, longest due first. The queues of a
// gateway are in the order of its round.
//
// The gateways take turns, beginning with the one that is due longest. Within a gateway, its
// scopes take turns.
func FairOrder[T any](c *Claim, queues [][]T, record func(T) *Record) []T {
	var rounds []round[T]
	for _, queue := range queues {
		if len(queue) == 0 {
			continue
		}
		first := record(queue[0])
		queue = queue[:min(len(queue), c.QueueLimit(QueueKeyOf(first)))]
		i := slices.IndexFunc(rounds, func(r round[T]) bool { return r.oldest.Gateway == first.Gateway })
		if i < 0 {
			i = len(rounds)
			rounds = append(rounds, round[T]{oldest: first})
		}
		r := &rounds[i]
		r.queues = append(r.queues, queue)
		if first.NextAt.Before(r.oldest.NextAt) {
			r.oldest = first
		}
	}
	slices.SortFunc(rounds, func(a, b round[T]) int {
		return cmp.Or(a.oldest.NextAt.Compare(b.oldest.NextAt), cmp.Compare(a.oldest.Gateway, b.oldest.Gateway))
	})
	gateways := make([][]T, len(rounds))
	for i, r := range rounds {
		gateways[i] = inTurn(r.queues, c.Allowance(r.oldest.Gateway).Limit)
	}
	return inTurn(gateways, c.Limit)
}

// round is the queues of one gateway.
type round[T any] struct {
	oldest *Record
	queues [][]T
}

// inTurn takes one row of each queue, then the second of each, and so on up to the limit.
func inTurn[T any](queues [][]T, limit int) (rows []T) {
	for turn, before := 0, -1; before < len(rows); turn++ {
		before = len(rows)
		for _, queue := range queues {
			if turn < len(queue) && len(rows) < limit {
				rows = append(rows, queue[turn])
			}
		}
	}
	return rows
}
