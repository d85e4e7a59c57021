package pgstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Claim implements durable.Store. It takes two round trips, and one more where a scope
// has less than its share.
func (s *Store) Claim(ctx context.Context, claim driver.Claim) (claimed driver.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return driver.Claimed{}, err
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		r := round{is: s.is, t: t, claim: &claim}
		rows, err := r.choose(ctx)
		if err != nil {
			return err
		}
		claimed = driver.Claimed{Now: r.now, Lease: r.expires.Sub(r.now)} // anew for each try
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

// ripenBatch is the most intents that a claim brings back from what is later.
const ripenBatch = 1000

// round goes over the scopes of each gateway, which each give one intent in their turn.
type round struct {
	is    *statements
	t     *pgkit.Transaction
	claim *driver.Claim
	room  *driver.Capacity

	now     time.Time
	expires time.Time // the worker's lease
	shares  []*share  // by place, which counts from 1
}

// share is a lane's part of a claim.
type share struct {
	gateway string
	rows    []*row // what is due longest
	room    int    // the most that it may have
	dry     bool   // nothing else is due
	want    int    // how many more are read
}

// choose is what a claim is about. What is not due Decide leaves alone.
func (r *round) choose(ctx context.Context) ([]*row, error) {
	c := r.claim
	// After the clock: the lease is no shorter than is said.
	stay := &pgkit.Statement{Text: r.is.stay, Args: []any{c.Worker, ceil(c.Lease)}, Scan: timeInto(&r.expires)}
	var rows []*row
	if c.ID != nil {
		one := &pgkit.Statement{Text: r.is.lockOne, Args: []any{nameOf(c.ID)}, Scan: into(&rows)}
		return rows, r.t.Send(ctx, one, clockInto(&r.now), stay)
	}
	r.room = c.Capacity()
	ripen := &pgkit.Statement{Text: r.is.ripen, Args: []any{driver.Soon.Microseconds(), int64(ripenBatch)}}
	err := r.t.Send(ctx, ripen, &pgkit.Statement{Text: r.is.choose, Args: rooms(c, r.room), Scan: into(&rows)}, clockInto(&r.now), stay)
	if err != nil {
		return nil, err
	}
	r.begin(rows)
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	return driver.FairOrder(r.room, r.turns(), func(r *row) *driver.Record { return &r.Record }), nil
}

// rooms are what choose is told.
func rooms(c *driver.Claim, room *driver.Capacity) []any {
	gateways, lanes := slices.Collect(maps.Keys(c.GatewayLimits)), slices.Collect(maps.Keys(c.InFlight))
	for name := range c.GatewayCursors {
		if _, shares := c.GatewayLimits[name]; !shares {
			gateways = append(gateways, name)
		}
	}
	const other = "" // no gateway is called that
	itself := func(name string) string { return name }
	args := arrays([]field[string]{
		column("", "", itself),
		column("", "", func(name string) int64 { return int64(room.Gateway(name)) }),
		column("", "", func(name string) int64 { return int64(room.PerScope(name)) }),
		column("", "", c.Start),
	}, gateways)
	args = append(args, int64(room.Gateway(other)), int64(room.PerScope(other)), c.ScopeCursor)
	seen := make(map[string]bool)
	var scopes []string
	for _, lane := range lanes {
		if !seen[lane.Scope] {
			seen[lane.Scope] = true
			scopes = append(scopes, lane.Scope)
		}
	}
	args = append(args, arrays([]field[string]{
		column("", "", itself),
		column("", "", func(name string) int64 { return int64(room.Scope(name)) }),
	}, scopes)...)
	return append(args, arrays([]field[driver.QueueKey]{
		column("", "", func(l driver.QueueKey) string { return l.Scope }),
		column("", "", func(l driver.QueueKey) string { return l.Gateway }),
		column("", "", func(l driver.QueueKey) int64 { return int64(room.Queue(l)) }),
	}, lanes)...)
}

// begin makes the shares. A lane of which others have all is not among them.
func (r *round) begin(rows []*row) {
	inOrder(rows)
	even, place := make(map[string]int), int64(0)
	for _, row := range rows {
		if row.place != place {
			place = row.place
			r.shares = append(r.shares, &share{gateway: row.Gateway, room: r.room.Queue(driver.QueueKeyOf(&row.Record))})
		}
		s := r.shares[len(r.shares)-1]
		row.place = int64(len(r.shares) - 1)
		s.rows = append(s.rows, row)
		even[s.gateway] = max(even[s.gateway], len(s.rows))
	}
	for _, s := range r.shares {
		s.dry = len(s.rows) < min(even[s.gateway], s.room)
	}
}

func inOrder(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.place, b.place), a.NextAt.Compare(b.NextAt), cmp.Compare(a.seq, b.seq))
	})
}

// fill reads more of each gateway's scopes, evenly, until there is enough or nothing left.
func (r *round) fill(ctx context.Context) error {
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
			enough += min(n, r.room.Gateway(name))
		}
		var behind []*row // the last of each share that may have more
		for _, s := range r.shares {
			missing := r.room.Gateway(s.gateway) - total[s.gateway]
			if missing > 0 && s.open() && enough < r.claim.Limit {
				s.want = min((missing-1)/open[s.gateway]+1, s.room-len(s.rows))
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

func (s *share) open() bool { return !s.dry && len(s.rows) < s.room }

// more reads what is wanted of some shares, behind what they have, and finds out which are
// dry.
func (r *round) more(ctx context.Context, behind []*row) error {
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
	inOrder(rows)
	got := make(map[int64]int, len(behind))
	for _, row := range rows {
		got[row.place]++
		s := r.shares[row.place]
		s.rows = append(s.rows, row)
	}
	for _, last := range behind {
		s := r.shares[last.place]
		s.dry = got[last.place] < s.want
	}
	return err
}

// turns puts the shares of each gateway into the order of its round.
func (r *round) turns() (rows []*row) {
	given := make(map[string]int)
	for turn, before := 0, -1; before < len(rows); turn++ {
		before = len(rows)
		for _, s := range r.shares {
			if turn < len(s.rows) && given[s.gateway] < r.room.Gateway(s.gateway) {
				given[s.gateway]++
				rows = append(rows, s.rows[turn])
			}
		}
	}
	return rows
}
