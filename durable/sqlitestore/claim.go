package sqlitestore

import (
	"context"
	"errors"
	"slices"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// Claim implements durable.Store.
func (s *Store) Claim(ctx context.Context, claim durable.Claim) (claimed durable.Claimed, err error) {
	if err := claim.Validate(); err != nil {
		return durable.Claimed{}, err
	}
	err = s.db.transact(ctx, false, func(ctx context.Context, t *transaction) error {
		claimed = durable.Claimed{Now: t.now} // anew for each try
		if err := t.exec(ctx, beat, claim.Worker, t.now, t.now.Add(ceil(claim.Lease))); err != nil {
			return err
		}
		if claimed.Held, err = t.names(ctx, heldGateways); err != nil {
			return err
		}
		if claimed.Waiting, err = sqlquery.ReadWaits(ctx, t); err != nil {
			return err
		}
		claim := claim
		claim.Wait(claimed.Waiting)
		suspects, err := t.suspects(ctx, &claim, claimed.Held)
		if err != nil {
			return err
		}
		rows := suspects[:min(len(suspects), 1)]
		if !claim.Alone {
			claimed.Suspect = len(suspects) > 0
			if rows, err = t.choose(ctx, &claim, claimed.Held); err != nil {
				return err
			}
		}
		for _, r := range rows {
			result, err := t.judge(ctx, r, new(claim.Event(&r.Record)))
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
		return durable.Claimed{}, err
	}
	return claimed, nil
}

// promoteBatch is the maximum number of scheduled intents that a claim promotes.
const promoteBatch = 1000

// suspects reads some suspects that the claim may take if it is for one alone.
func (t *transaction) suspects(ctx context.Context, claim *durable.Claim, held []string) (due []*row, err error) {
	if claim.ID != nil {
		due, err = t.rows(ctx, find, claim.ID.Scope, claim.ID.Operation, claim.ID.Key)
	} else {
		due, err = t.rows(ctx, dueSuspects, t.now)
	}
	return slices.DeleteFunc(due, func(r *row) bool {
		return slices.Contains(held, r.Gateway) || !claim.MayTakeAlone(&r.Record, t.now)
	}), err
}

// choose selects the intents of the claim, none of which is a suspect. Decide rejects those that are not due.
func (t *transaction) choose(ctx context.Context, claim *durable.Claim, held []string) ([]*row, error) {
	if claim.ID != nil {
		only, err := t.row(ctx, find, *claim.ID)
		if err != nil || only == nil || only.Suspect() || slices.Contains(held, only.Gateway) || !claim.Permits(&only.Record) {
			return nil, err
		}
		return []*row{only}, nil
	}
	if err := t.exec(ctx, promote, t.now, promoteBatch); err != nil {
		return nil, err
	}
	gateways, err := t.names(ctx, dueGateways)
	if err != nil {
		return nil, err
	}
	r := round{t: t, Round: sqlquery.Round[*row]{Claim: claim}}
	for _, gateway := range gateways {
		if claim.Allowance(gateway).Limit <= 0 || slices.Contains(held, gateway) {
			continue
		}
		if err := r.begin(ctx, gateway); err != nil {
			return nil, err
		}
	}
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	record := func(r *row) *durable.Record { return &r.Record }
	return durable.AddQueries(claim, durable.FairOrder(claim, r.Queues(), record), r.queries, record), nil
}

// names reads a column of names.
func (t *transaction) names(ctx context.Context, text string) (names []string, err error) {
	err = t.Query(ctx, text, nil, func(from sqlquery.Row) error {
		var name string
		err := from.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// round is what a claim reads.
type round struct {
	sqlquery.Round[*row]

	t       *transaction
	queries []*row // of gateways and scopes that wait
}

var errEnough = errors.New("enough")

// begin reads the first due intent of each scope of a gateway, up to the limit, and the status queries if something waits.
func (r *round) begin(ctx context.Context, gateway string) error {
	allowed := r.Claim.Allowance(gateway)
	if len(r.Claim.Waiting) > 0 && allowed.CanQuery {
		queries, err := r.t.rows(ctx, dueQueries, gateway, allowed.Limit)
		if err != nil {
			return err
		}
		r.queries = append(r.queries, queries...)
	}
	if r.Claim.Waiting[durable.QueueKey{Gateway: gateway}] {
		return nil
	}
	n := 0
	for _, part := range [...]string{dueAfter, dueUntil} {
		err := r.t.Query(ctx, part, []any{allowed.Cursor, gateway}, func(from sqlquery.Row) error {
			first, err := scanRow(from)
			if err != nil {
				return err
			}
			if r.Add(durable.QueueKeyOf(&first.Record), first) {
				n++
			}
			if n == allowed.Limit {
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
		open := r.Open()
		if len(open) == 0 {
			return nil
		}
		for _, s := range open {
			more, err := r.t.rows(ctx, dueMore, s.Queue.Gateway, s.Queue.Scope, s.Want, len(s.Rows))
			if err != nil {
				return err
			}
			s.Got(more...)
		}
	}
}
