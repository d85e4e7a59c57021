package pgstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Claim implements durable.Store. It takes two round trips, and one more if a scope has fewer due
// intents than its share.
func (s *Store) Claim(ctx context.Context, claim durable.Claim) (claimed durable.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return durable.Claimed{}, err
	}
	err = s.db.transact(ctx, func(t *ownTransaction) error {
		claim := claim
		r := claimRound{is: s.db.is, t: t, Round: sqlquery.Round[*row]{Claim: &claim}}
		rows, err := r.choose(ctx)
		if err != nil {
			return err
		}
		claimed = durable.Claimed{Now: r.now, Held: r.held, Waiting: r.waiting, Lease: r.expires.Sub(r.now), Suspect: r.suspect} // anew for each try
		var w writing
		for _, row := range rows {
			if result := w.take(row, new(claim.Event(&row.Record)), r.now); result.Err == nil {
				claimed.Changes = append(claimed.Changes, result.Change)
			}
		}
		return t.Commit(ctx, w.statements(s.db.is, false)...)
	})
	if err != nil {
		return durable.Claimed{}, err
	}
	return claimed, nil
}

// promoteBatch is the maximum number of scheduled intents that a claim promotes.
const promoteBatch = 1000

// claimRound selects intents of each gateway, from its scopes in turn (round robin).
type claimRound struct {
	sqlquery.Round[*row]

	is *texts
	t  *ownTransaction

	now     time.Time
	held    []string
	waiting []durable.Hold
	expires time.Time // the worker's lease
	suspect bool      // one is due, and not claimed
}

// choose selects the intents of the claim. Decide rejects those that are not due.
func (r *claimRound) choose(ctx context.Context) ([]*row, error) {
	c, waits := r.Claim, false
	// It follows the clock, so that the lease is no shorter than Claimed.Lease.
	renew := &pgkit.Statement{Text: r.is.of(renewLeaseIfDue), Args: []any{c.Worker, ceil(c.Lease)}, Scan: timeInto(&r.expires)}
	clock := &pgkit.Statement{Text: r.is.of(clockHeld), Scan: func(from pgkit.Row) error {
		err := from.Scan(&r.now, &r.held, &waits)
		r.now = r.now.UTC()
		return err
	}}
	var rows, suspects []*row
	statements := r.find(&rows, &suspects)
	err := r.t.Send(ctx, append(statements, clock, renew)...)
	if err == nil && waits {
		err = r.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	suspects = slices.DeleteFunc(suspects, func(row *row) bool { return !c.MayTakeAlone(&row.Record, r.now) })
	if c.Alone {
		return suspects[:min(len(suspects), 1)], nil
	}
	r.suspect = len(suspects) > 0
	if c.ID != nil {
		return slices.DeleteFunc(rows, func(row *row) bool { return !c.Permits(&row.Record) }), nil
	}
	r.begin(rows)
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	record := func(r *row) *durable.Record { return &r.Record }
	queries, err := r.queries(ctx)
	return durable.AddQueries(c, durable.FairOrder(c, r.Queues(), record), queries, record), err
}

// find returns the statements that read intents of the claim, and suspects that are due.
func (r *claimRound) find(rows, suspects *[]*row) []*pgkit.Statement {
	c := r.Claim
	switch {
	case c.ID != nil:
		one := func(from pgkit.Row) error {
			row, err := scanRow(from)
			to := rows
			if err == nil && row.Suspect() {
				to = suspects
			}
			*to = append(*to, row)
			return err
		}
		return []*pgkit.Statement{{Text: r.is.of(lockOne), Args: []any{nameOf(c.ID)}, Scan: one}}
	case c.Alone:
		return []*pgkit.Statement{{Text: r.is.of(lockSuspects), Scan: into(suspects)}}
	default:
		return []*pgkit.Statement{
			r.is.statement(promote, int64(promoteBatch)),
			{Text: r.is.of(choose), Args: limits(c), Scan: into(rows)},
			{Text: r.is.of(dueSuspects), Scan: into(suspects)},
		}
	}
}

// wait reads the provider's holds, and applies them to the claim.
func (r *claimRound) wait(ctx context.Context) error {
	var err error
	r.waiting, err = sqlquery.ReadWaits(ctx, session{r.t.Send, r.is.of})
	r.Claim.Wait(r.waiting)
	return err
}

// queries reads status queries of gateways that wait because the provider asked to.
func (r *claimRound) queries(ctx context.Context) (rows []*row, err error) {
	gateways := make(map[string]bool)
	for key := range r.Claim.Waiting {
		if a := r.Claim.Gateways[key.Gateway]; a.CanQuery && a.Limit > 0 {
			gateways[key.Gateway] = true
		}
	}
	if len(gateways) == 0 {
		return nil, nil
	}
	names := slices.Collect(maps.Keys(gateways))
	args := []any{names, array(names, func(name string) int64 { return int64(r.Claim.Allowance(name).Limit) })}
	err = r.t.Send(ctx, &pgkit.Statement{Text: r.is.of(dueQueries), Args: args, Scan: into(&rows)})
	return rows, err
}

// limits are the arguments of choose.
func limits(c *durable.Claim) []any {
	names := slices.Collect(maps.Keys(c.Gateways))
	held, waiting := slices.Collect(maps.Keys(c.InFlight)), slices.Collect(maps.Keys(c.Waiting))
	scope := func(q durable.QueueKey) string { return q.Scope }
	gateway := func(q durable.QueueKey) string { return q.Gateway }
	return []any{
		names,
		array(names, func(name string) int64 { return int64(c.Allowance(name).Limit) }),
		array(names, func(name string) int64 { return int64(c.Allowance(name).PerScope) }),
		array(names, func(name string) string { return c.Allowance(name).Cursor }),
		int64(c.Limit),
		array(held, scope), array(held, gateway), array(held, func(q durable.QueueKey) int64 { return int64(c.QueueLimit(q)) }),
		array(waiting, scope), array(waiting, gateway),
	}
}

// begin groups the rows into shares.
func (r *claimRound) begin(rows []*row) {
	dueOrder(rows)
	most := make(map[string]int)
	for _, row := range rows {
		r.Add(durable.QueueKeyOf(&row.Record), row)
	}
	for i, s := range r.Shares {
		for _, row := range s.Rows {
			row.place = int64(i)
		}
		most[s.Queue.Gateway] = max(most[s.Queue.Gateway], len(s.Rows))
	}
	for _, s := range r.Shares {
		s.Exhausted = len(s.Rows) < min(most[s.Queue.Gateway], s.Limit)
	}
}

func dueOrder(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.place, b.place), a.NextAt.Compare(b.NextAt), cmp.Compare(a.seq, b.seq))
	})
}

// fill reads more of each gateway's scopes, evenly, until there is enough or nothing left.
func (r *claimRound) fill(ctx context.Context) error {
	for !r.enough() {
		open := r.Open()
		if len(open) == 0 {
			return nil
		}
		if err := r.more(ctx, open); err != nil {
			return err
		}
	}
	return nil
}

// enough reports whether there are as many as the claim may take.
func (r *claimRound) enough() bool {
	total, enough := make(map[string]int), 0
	for _, s := range r.Shares {
		total[s.Queue.Gateway] += len(s.Rows)
	}
	for name, n := range total {
		enough += min(n, r.Claim.Allowance(name).Limit)
	}
	return enough >= r.Claim.Limit
}

// more reads the wanted number of rows of some shares, after those that they have.
func (r *claimRound) more(ctx context.Context, open []*sqlquery.Share[*row]) error {
	var rows []*row
	behind := array(open, func(s *sqlquery.Share[*row]) *row { return s.Rows[len(s.Rows)-1] })
	args := []any{
		array(behind, func(last *row) string { return last.Gateway }),
		array(behind, func(last *row) string { return last.ID.Scope }),
		array(behind, func(last *row) time.Time { return last.NextAt }),
		array(behind, func(last *row) int64 { return last.seq }),
		array(open, func(s *sqlquery.Share[*row]) int64 { return int64(s.Want) }),
		array(behind, func(last *row) int64 { return last.place }),
	}
	err := r.t.Send(ctx, &pgkit.Statement{Text: r.is.of(chooseMore), Args: args, Scan: into(&rows)})
	dueOrder(rows)
	got := make(map[int64][]*row, len(open))
	for _, row := range rows {
		got[row.place] = append(got[row.place], row)
	}
	for i, s := range open {
		s.Got(got[behind[i].place]...)
	}
	return err
}
