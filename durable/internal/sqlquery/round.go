package sqlquery

import "github.com/resilienthttp/resilienthttp/durable"

// Round is what a claim reads: of each gateway a share of each scope, evenly (round robin).
type Round[T any] struct {
	Claim  *durable.Claim
	Shares []*Share[T]
}

// Share is the part of a queue in a claim.
type Share[T any] struct {
	Queue     durable.QueueKey
	Rows      []T  // longest due first
	Exhausted bool // nothing else is due
	Want      int  // how many more are to be read
	Limit     int  // the maximum number of rows
}

// Add adds a row to the share of its queue. The rows of a queue follow each other. It reports whether the claim permits any of
// the queue.
func (r *Round[T]) Add(queue durable.QueueKey, row T) bool {
	if n := len(r.Shares); n == 0 || r.Shares[n-1].Queue != queue {
		limit := r.Claim.QueueLimit(queue)
		if limit == 0 {
			return false
		}
		r.Shares = append(r.Shares, &Share[T]{Queue: queue, Limit: limit})
	}
	last := r.Shares[len(r.Shares)-1]
	last.Rows = append(last.Rows, row)
	return true
}

// Open returns the shares of which more is to be read, and sets Want of each.
func (r *Round[T]) Open() (open []*Share[T]) {
	total, shares := make(map[string]int), make(map[string]int)
	for _, s := range r.Shares {
		total[s.Queue.Gateway] += len(s.Rows)
		if s.isOpen() {
			shares[s.Queue.Gateway]++
		}
	}
	for _, s := range r.Shares {
		gateway := s.Queue.Gateway
		missing := r.Claim.Allowance(gateway).Limit - total[gateway]
		if missing > 0 && s.isOpen() {
			s.Want = min((missing-1)/shares[gateway]+1, s.Limit-len(s.Rows))
			open = append(open, s)
		}
	}
	return open
}

func (s *Share[T]) isOpen() bool { return !s.Exhausted && len(s.Rows) < s.Limit }

// Got adds the rows that were read.
func (s *Share[T]) Got(rows ...T) {
	s.Rows = append(s.Rows, rows...)
	s.Exhausted = len(rows) < s.Want
}

// Queues are the rows of the shares, for durable.FairOrder.
func (r *Round[T]) Queues() [][]T {
	queues := make([][]T, len(r.Shares))
	for i, s := range r.Shares {
		queues[i] = s.Rows
	}
	return queues
}
