package pgstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Claim implements durable.Store. It takes two round trips, and one more where a scope
// has less than its share.
func (s *Store) Claim(ctx context.Context, claim durable.Claim) (claimed durable.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return durable.Claimed{}, err
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		r := round{is: s.is, t: t, claim: &claim}
		rows, err := r.choose(ctx)
		if err != nil {
			return err
		}
		claimed = durable.Claimed{Now: r.now, Lease: r.expires.Sub(r.now)} // anew for each try
		var w writing
		for _, row := range rows {
			e := claim.Event(&row.Record)
			if result := w.judge(row, &e, r.now); result.Err == nil {
				claimed.Changes = append(claimed.Changes, result.Change)
			}
		}
		return w.write(ctx, t, s.is)
	})
	if err != nil {
		return durable.Claimed{}, err
	}
	return claimed, nil
}

// ripenBatch is the most intents that a claim brings back from what is later.
const ripenBatch = 1000

// round goes over the scopes, which each give one intent in their turn.
type round struct {
	is    *statements
	t     *pgkit.Transaction
	claim *durable.Claim

	now     time.Time
	expires time.Time // the worker's lease
	shares  []*share  // by place, which counts from 1
	total   int       // rows
}

// share is a scope's part of a claim.
type share struct {
	rows []*row // what is due longest
	room int    // the most that it may have
	dry  bool   // nothing else is due
}

// choose is what a claim is about. What is not due Decide leaves alone.
func (r *round) choose(ctx context.Context) ([]*row, error) {
	c := r.claim
	// After the clock: the lease is no shorter than is said.
	stay := &pgkit.Statement{Text: r.is.stay, Args: []any{c.Worker, ceil(c.Lease)}, Scan: timeInto(&r.expires)}
	var rows []*row
	if c.Only != nil {
		one := &pgkit.Statement{Text: r.is.lockOne, Args: []any{c.Only.Scope, c.Only.Operation, c.Only.Key}, Scan: into(&rows)}
		return rows, r.t.Send(ctx, one, clockInto(&r.now), stay)
	}
	scopes, counts := make([]string, 0, len(c.Held)), make([]int64, 0, len(c.Held))
	for scope, n := range c.Held {
		scopes, counts = append(scopes, scope), append(counts, int64(n))
	}
	ripen := &pgkit.Statement{Text: r.is.ripen, Args: []any{durable.Soon.Microseconds(), int64(ripenBatch)}}
	err := r.t.Send(ctx, ripen, &pgkit.Statement{
		Text: r.is.choose, Args: []any{c.After, int64(c.Limit), int64(c.PerScope), scopes, counts}, Scan: into(&rows),
	}, clockInto(&r.now), stay)
	if err != nil {
		return nil, err
	}
	r.begin(rows)
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	return r.turns(), nil
}

// begin makes the shares. A scope of which others have all is not among them.
func (r *round) begin(rows []*row) {
	inOrder(rows)
	even, place := 0, int64(0)
	for _, row := range rows {
		if row.place != place {
			place = row.place
			r.shares = append(r.shares, &share{room: r.claim.PerScope - r.claim.Held[row.ID.Scope]})
		}
		s := r.shares[len(r.shares)-1]
		row.place = int64(len(r.shares) - 1)
		s.rows = append(s.rows, row)
		even = max(even, len(s.rows))
	}
	for _, s := range r.shares {
		s.dry = len(s.rows) < min(even, s.room)
	}
	r.total = len(rows)
}

func inOrder(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.place, b.place), a.NextAt.Compare(b.NextAt), cmp.Compare(a.id, b.id))
	})
}

// fill reads more of each scope, evenly, until there is enough or nothing left.
func (r *round) fill(ctx context.Context) error {
	for {
		var open []*row // the last of each scope that may have more
		for _, s := range r.shares {
			if !s.dry && len(s.rows) < s.room {
				open = append(open, s.rows[len(s.rows)-1])
			}
		}
		missing := r.claim.Limit - r.total
		if missing <= 0 || len(open) == 0 {
			return nil
		}
		rows, err := r.more(ctx, open, (missing-1)/len(open)+1)
		if err != nil {
			return err
		}
		r.total += len(rows)
		for _, row := range rows {
			s := r.shares[row.place]
			s.rows = append(s.rows, row)
		}
	}
}

// more reads up to each of the scopes of the open rows, behind these, and finds out
// which scopes are dry.
func (r *round) more(ctx context.Context, open []*row, each int) ([]*row, error) {
	var rows []*row
	args := arrays([]field[*row]{
		column("", "", func(last *row) string { return last.ID.Scope }),
		column("", "", func(last *row) time.Time { return last.NextAt }),
		column("", "", func(last *row) int64 { return last.id }),
		column("", "", func(last *row) int64 { return int64(r.want(last, each)) }),
		column("", "", func(last *row) int64 { return last.place }),
	}, open)
	err := r.t.Send(ctx, &pgkit.Statement{Text: r.is.chooseMore, Args: append(args, r.now), Scan: into(&rows)})
	inOrder(rows)
	got := make(map[int64]int, len(open))
	for _, row := range rows {
		got[row.place]++
	}
	for _, last := range open {
		r.shares[last.place].dry = got[last.place] < r.want(last, each)
	}
	return rows, err
}

// want is how many more of a scope fit, each at most.
func (r *round) want(last *row, each int) int {
	s := r.shares[last.place]
	return min(each, s.room-len(s.rows))
}

// turns puts the shares into the order of the round.
func (r *round) turns() []*row {
	rows := make([]*row, 0, min(r.total, r.claim.Limit))
	for turn := 0; len(rows) < cap(rows); turn++ {
		for _, s := range r.shares {
			if turn < len(s.rows) && len(rows) < cap(rows) {
				rows = append(rows, s.rows[turn])
			}
		}
	}
	return rows
}
