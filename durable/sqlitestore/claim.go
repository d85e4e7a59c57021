package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
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
		if claimed.Held, err = t.names(ctx, heldGateways, now.UnixMicro()); err != nil {
			return err
		}
		if claimed.Waiting, err = waiting(ctx, t.statement(readWaits), now.UnixMicro()); err != nil {
			return err
		}
		claim := claim
		claim.Wait(claimed.Waiting)
		rows, err := t.choose(ctx, &claim, claimed.Held, now)
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

// choose selects the intents of the claim. Decide rejects those that are not due.
func (t *transaction) choose(ctx context.Context, claim *driver.Claim, held []string, now time.Time) ([]*row, error) {
	if claim.ID != nil {
		only, err := readRow(ctx, t.statement(find), *claim.ID)
		if err != nil || only == nil || slices.Contains(held, only.Gateway) || !claim.Permits(&only.Record) {
			return nil, err
		}
		return []*row{only}, nil
	}
	if err := t.exec(ctx, promote, now.UnixMicro(), promoteBatch); err != nil {
		return nil, err
	}
	gateways, err := t.names(ctx, dueGateways)
	if err != nil {
		return nil, err
	}
	var (
		queues  [][]*row
		queries []*row
	)
	for _, gateway := range gateways {
		r := round{t: t, claim: claim, gateway: gateway, allowed: claim.Allowance(gateway), now: now.UnixMicro()}
		if r.allowed.Limit <= 0 || slices.Contains(held, gateway) {
			continue
		}
		if len(claim.Waiting) > 0 && r.allowed.CanQuery {
			asks, err := readRows(ctx, t.statement(dueQueries), gateway, r.now, r.allowed.Limit)
			if err != nil {
				return nil, err
			}
			queries = append(queries, pointers(asks)...)
		}
		if claim.Waiting[driver.QueueKey{Gateway: gateway}] {
			continue
		}
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
		if err := r.fill(ctx); err != nil {
			return nil, err
		}
		for _, s := range r.shares {
			queues = append(queues, pointers(s.rows))
		}
	}
	record := func(r *row) *driver.Record { return &r.Record }
	return driver.AddQueries(claim, driver.FairOrder(claim, queues, record), queries, record), nil
}

func pointers(rows []row) []*row {
	all := make([]*row, len(rows))
	for i := range rows {
		all[i] = &rows[i]
	}
	return all
}

// names reads a column of names.
func (t *transaction) names(ctx context.Context, s statement, args ...any) (names []string, err error) {
	_, err = sqlitekit.ReadRows(ctx, t.statement(s), args, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// promoteBatch is the maximum number of scheduled intents that a claim promotes.
const promoteBatch = 1000

// round selects intents of a gateway, from its scopes in turn (round robin).
type round struct {
	t       *transaction
	claim   *driver.Claim
	gateway string
	allowed driver.Allowance
	now     int64
	shares  []*share
	total   int // rows
}

// share is the part of a queue in a claim.
type share struct {
	rows      []row // longest due first
	limit     int
	exhausted bool // nothing else is due
}

var errEnough = errors.New("enough")

// begin reads the first due intent of each scope, up to the limit.
func (r *round) begin(ctx context.Context) error {
	for _, part := range [...]statement{dueAfter, dueUntil} {
		_, err := sqlitekit.ReadRows(ctx, r.t.statement(part), []any{r.allowed.Cursor, r.now, r.gateway}, func(rows *sql.Rows) error {
			first, err := scanRow(rows)
			if err != nil {
				return err
			}
			if limit := r.claim.QueueLimit(driver.QueueKeyOf(&first.Record)); limit > 0 {
				r.shares = append(r.shares, &share{rows: []row{first}, limit: limit})
				r.total++
			}
			if r.total == r.allowed.Limit {
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
			if !s.exhausted && len(s.rows) < s.limit {
				open = append(open, s)
			}
		}
		missing := r.allowed.Limit - r.total
		if missing <= 0 || len(open) == 0 {
			return nil
		}
		each := (missing + len(open) - 1) / len(open)
		for _, s := range open {
			want := min(each, s.limit-len(s.rows))
			more, err := readRows(ctx, r.t.statement(dueMore), s.rows[0].ID.Scope, r.now, want, len(s.rows), r.gateway)
			if err != nil {
				return err
			}
			s.rows = append(s.rows, more...)
			s.exhausted = len(more) < want
			r.total += len(more)
		}
	}
}
