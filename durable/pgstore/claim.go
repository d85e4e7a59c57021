package pgstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Claim implements driver.Store. It takes two round trips, and one more if a scope has fewer due
// intents than its share.
func (s *Store) Claim(ctx context.Context, claim driver.Claim) (claimed driver.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return driver.Claimed{}, err
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		claim := claim
		r := claimRound{is: s.is, t: t, claim: &claim}
		rows, err := r.choose(ctx)
		if err != nil {
			return err
		}
		claimed = driver.Claimed{Now: r.now, Held: r.held, Waiting: r.waiting, Lease: r.expires.Sub(r.now)} // anew for each try
		var w writing
		for _, row := range rows {
			e := claim.Event(&row.Record)
			if result := w.take(row, &e, r.now); result.Err == nil {
				claimed.Changes = append(claimed.Changes, result.Change)
			}
		}
		return w.write(ctx, t, s.is)
	})
	if err != nil {
		return driver.Claimed{}, err
	}
	return claimed, nil
}

// promoteBatch is the maximum number of scheduled intents that a claim promotes.
const promoteBatch = 1000

// claimRound selects intents of each gateway, from its scopes in turn (round robin).
type claimRound struct {
	is    *statements
	t     *pgkit.Transaction
	claim *driver.Claim

	now     time.Time
	held    []string
	waiting []driver.Hold
	expires time.Time // the worker's lease
	shares  []*share  // by place, which counts from 1
}

// share is the part of a queue in a claim.
type share struct {
	gateway   string
	rows      []*row // longest due first
	limit     int
	exhausted bool // nothing else is due
	want      int  // how many more are read
}

// choose selects the intents of the claim. Decide rejects those that are not due.
func (r *claimRound) choose(ctx context.Context) ([]*row, error) {
	c, waits := r.claim, false
	// It follows the clock, so that the lease is no shorter than Claimed.Lease.
	renew := &pgkit.Statement{Text: r.is.renewLeaseIfDue, Args: []any{c.Worker, ceil(c.Lease)}, Scan: timeInto(&r.expires)}
	clock := &pgkit.Statement{Text: r.is.clockHeld, Scan: func(from pgkit.Row) error {
		err := from.Scan(&r.now, &r.held, &waits)
		r.now = r.now.UTC()
		return err
	}}
	var rows []*row
	if c.ID != nil {
		one := &pgkit.Statement{Text: r.is.lockOne, Args: []any{nameOf(c.ID)}, Scan: into(&rows)}
		err := r.t.Send(ctx, one, clock, renew)
		if err == nil && waits {
			err = r.wait(ctx)
		}
		return slices.DeleteFunc(rows, func(row *row) bool { return !c.Permits(&row.Record) }), err
	}
	promote := &pgkit.Statement{Text: r.is.promote, Args: []any{int64(promoteBatch)}}
	err := r.t.Send(ctx, promote, &pgkit.Statement{Text: r.is.choose, Args: limits(c), Scan: into(&rows)}, clock, renew)
	if err == nil && waits {
		err = r.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.begin(rows)
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	queues := make([][]*row, len(r.shares))
	for i, s := range r.shares {
		queues[i] = s.rows
	}
	record := func(r *row) *driver.Record { return &r.Record }
	queries, err := r.queries(ctx)
	return driver.AddQueries(c, driver.FairOrder(c, queues, record), queries, record), err
}

// wait reads the provider's holds, and applies them to the claim.
func (r *claimRound) wait(ctx context.Context) error {
	err := r.t.Send(ctx, r.is.readWaits(&r.waiting))
	r.claim.Wait(r.waiting)
	return err
}

// queries reads status queries of gateways that wait because the provider asked to.
func (r *claimRound) queries(ctx context.Context) (rows []*row, err error) {
	gateways := make(map[string]bool)
	for key := range r.claim.Waiting {
		if a := r.claim.Gateways[key.Gateway]; a.CanQuery && a.Limit > 0 {
			gateways[key.Gateway] = true
		}
	}
	if len(gateways) == 0 {
		return nil, nil
	}
	args := arrays([]field[string]{
		column("", "", func(name string) string { return name }),
		column("", "", func(name string) int64 { return int64(r.claim.Allowance(name).Limit) }),
	}, slices.Collect(maps.Keys(gateways)))
	err = r.t.Send(ctx, &pgkit.Statement{Text: r.is.dueQueries, Args: append(args, r.now), Scan: into(&rows)})
	return rows, err
}

// limits are the arguments of choose.
func limits(c *driver.Claim) []any {
	args := arrays([]field[string]{
		column("", "", func(name string) string { return name }),
		column("", "", func(name string) int64 { return int64(c.Allowance(name).Limit) }),
		column("", "", func(name string) int64 { return int64(c.Allowance(name).PerScope) }),
		column("", "", func(name string) string { return c.Allowance(name).Cursor }),
	}, slices.Collect(maps.Keys(c.Gateways)))
	scope := column("", "", func(q driver.QueueKey) string { return q.Scope })
	gateway := column("", "", func(q driver.QueueKey) string { return q.Gateway })
	limit := column("", "", func(q driver.QueueKey) int64 { return int64(c.QueueLimit(q)) })
	args = append(append(args, int64(c.Limit)), arrays([]field[driver.QueueKey]{scope, gateway, limit}, slices.Collect(maps.Keys(c.InFlight)))...)
	return append(args, arrays([]field[driver.QueueKey]{scope, gateway}, slices.Collect(maps.Keys(c.Waiting)))...)
}

// begin groups the rows into shares.
func (r *claimRound) begin(rows []*row) {
	dueOrder(rows)
	even, place := make(map[string]int), int64(0)
	for _, row := range rows {
		if row.place != place {
			place = row.place
			r.shares = append(r.shares, &share{gateway: row.Gateway, limit: r.claim.QueueLimit(driver.QueueKeyOf(&row.Record))})
		}
		s := r.shares[len(r.shares)-1]
		row.place = int64(len(r.shares) - 1)
		s.rows = append(s.rows, row)
		even[s.gateway] = max(even[s.gateway], len(s.rows))
	}
	for _, s := range r.shares {
		s.exhausted = len(s.rows) < min(even[s.gateway], s.limit)
	}
}

func dueOrder(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.place, b.place), a.NextAt.Compare(b.NextAt), cmp.Compare(a.seq, b.seq))
	})
}

// fill reads more of each gateway's scopes, evenly, until there is enough or nothing left.
func (r *claimRound) fill(ctx context.Context) error {
	for {
		total, open := make(map[string]int), make(map[string]int)
		for _, s := range r.shares {
			total[s.gateway] += len(s.rows)
			if s.open() {
				open[s.gateway]++
			}
		}
		enough := 0
		for name, n := range total {
			enough += min(n, r.claim.Allowance(name).Limit)
		}
		var behind []*row // the last of each share that may have more
		for _, s := range r.shares {
			missing := r.claim.Allowance(s.gateway).Limit - total[s.gateway]
			if missing > 0 && s.open() && enough < r.claim.Limit {
				s.want = min((missing-1)/open[s.gateway]+1, s.limit-len(s.rows))
				behind = append(behind, s.rows[len(s.rows)-1])
			}
		}
		if len(behind) == 0 {
			return nil
		}
		if err := r.more(ctx, behind); err != nil {
			return err
		}
	}
}

func (s *share) open() bool { return !s.exhausted && len(s.rows) < s.limit }

// more reads the wanted number of rows of some shares, after those that they have.
func (r *claimRound) more(ctx context.Context, behind []*row) error {
	var rows []*row
	args := arrays([]field[*row]{
		column("", "", func(last *row) string { return last.Gateway }),
		column("", "", func(last *row) string { return last.ID.Scope }),
		column("", "", func(last *row) time.Time { return last.NextAt }),
		column("", "", func(last *row) int64 { return last.seq }),
		column("", "", func(last *row) int64 { return int64(r.shares[last.place].want) }),
		column("", "", func(last *row) int64 { return last.place }),
	}, behind)
	err := r.t.Send(ctx, &pgkit.Statement{Text: r.is.chooseMore, Args: append(args, r.now), Scan: into(&rows)})
	dueOrder(rows)
	got := make(map[int64]int, len(behind))
	for _, row := range rows {
		got[row.place]++
		s := r.shares[row.place]
		s.rows = append(s.rows, row)
	}
	for _, last := range behind {
		s := r.shares[last.place]
		s.exhausted = got[last.place] < s.want
	}
	return err
}
