package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Claim implements durable.Store.
func (s *Store) Claim(ctx context.Context, claim driver.Claim) (claimed driver.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return driver.Claimed{}, err
	}
	err = s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		claimed = driver.Claimed{Now: now} // anew for each try
		if err := t.beat(ctx, claim.Worker, now.Add(ceil(claim.Lease))); err != nil {
			return err
		}
		rows, err := t.choose(ctx, &claim, now)
		if err != nil {
			return err
		}
		for i := range rows {
			e := claim.Event(&rows[i].Record)
			result, err := t.judge(ctx, rows[i], &e, now)
			if err != nil {
				return err
			}
			if result.Err == nil {
				claimed.Changes = append(claimed.Changes, result.Change)
			}
		}
		return nil
	})
	if err != nil {
		return driver.Claimed{}, err
	}
	return claimed, nil
}

// choose is what a claim is about. What is not due Decide leaves alone.
func (t *transaction) choose(ctx context.Context, claim *driver.Claim, now time.Time) ([]*row, error) {
	if claim.ID != nil {
		only, err := readRow(ctx, t.statement(find), *claim.ID)
		if err != nil || only == nil {
			return nil, err
		}
		return []*row{only}, nil
	}
	if err := t.exec(ctx, ripen, now.Add(driver.Soon).UnixMicro(), ripenBatch); err != nil {
		return nil, err
	}
	gateways, err := t.gateways(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*row
	room := claim.Capacity()
	for _, gateway := range gateways {
		r := round{t: t, claim: claim, room: room, gateway: gateway, limit: room.Gateway(gateway), now: now.UnixMicro()}
		if r.limit <= 0 {
			continue
		}
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
		if err := r.fill(ctx); err != nil {
			return nil, err
		}
		rows = append(rows, r.turns()...)
	}
	return driver.FairOrder(room, rows, func(r *row) *driver.Record { return &r.Record }), nil
}

// gateways are those for which there is anything to claim, be it due or not.
func (t *transaction) gateways(ctx context.Context) (names []string, err error) {
	_, err = sqlitekit.ReadRows(ctx, t.statement(dueGateways), nil, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// ripenBatch is the most intents that a claim brings back from what is later, those first
// that are due first.
const ripenBatch = 1000

// round goes over the scopes of a gateway, which each give one intent in their turn.
type round struct {
	t       *transaction
	claim   *driver.Claim
	room    *driver.Capacity
	gateway string
	limit   int
	now     int64
	shares  []*share
	total   int // rows
}

// share is a scope's part of a claim.
type share struct {
	rows []row // what is due longest
	room int   // the most that it may have
	dry  bool  // nothing else is due
}

var errEnough = errors.New("enough")

// begin reads the first of each scope: as many as are wanted, or all.
func (r *round) begin(ctx context.Context) error {
	for _, part := range [...]statement{dueAfter, dueUntil} {
		_, err := sqlitekit.ReadRows(ctx, r.t.statement(part), []any{r.claim.Start(r.gateway), r.now, r.gateway}, func(rows *sql.Rows) error {
			first, err := scanRow(rows)
			if err != nil {
				return err
			}
			if room := r.room.Queue(driver.QueueKeyOf(&first.Record)); room > 0 {
				r.shares = append(r.shares, &share{rows: []row{first}, room: room})
				r.total++
			}
			if r.total == r.limit {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill reads more of each scope, evenly, until there is enough or nothing left.
func (r *round) fill(ctx context.Context) error {
	for {
		var open []*share
		for _, s := range r.shares {
			if !s.dry && len(s.rows) < s.room {
				open = append(open, s)
			}
		}
		missing := r.limit - r.total
		if missing <= 0 || len(open) == 0 {
			return nil
		}
		each := (missing + len(open) - 1) / len(open)
		for _, s := range open {
			want := min(each, s.room-len(s.rows))
			more, err := readRows(ctx, r.t.statement(dueMore), s.rows[0].ID.Scope, r.now, want, len(s.rows), r.gateway)
			if err != nil {
				return err
			}
			s.rows = append(s.rows, more...)
			s.dry = len(more) < want
			r.total += len(more)
		}
	}
}

// turns puts the shares into the order of the round.
func (r *round) turns() []*row {
	rows := make([]*row, 0, min(r.total, r.limit))
	for turn := 0; len(rows) < cap(rows); turn++ {
		for _, s := range r.shares {
			if turn < len(s.rows) && len(rows) < cap(rows) {
				rows = append(rows, &s.rows[turn])
			}
		}
	}
	return rows
}
