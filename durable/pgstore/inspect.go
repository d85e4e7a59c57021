package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Attempts implements durable.Store.
func (s *Store) Attempts(ctx context.Context, id idempotency.ID) ([]driver.Attempt, error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	var all []driver.Attempt
	there := false
	err := s.ask(ctx, func() *pgkit.Statement {
		all = nil
		return &pgkit.Statement{Text: s.is.journal, Args: []any{nameOf(&id)}, Scan: func(from pgkit.Row) error {
			a, err := scanAttempt(from)
			there = true
			if a != nil {
				all = append(all, *a)
			}
			return err
		}}
	})
	if err == nil && !there {
		err = driver.ErrNotFound
	}
	return all, err
}

// scanAttempt reads a row of the journal. nil: it says only that the intent is there.
func scanAttempt(from pgkit.Row) (*driver.Attempt, error) {
	var (
		n, epoch, status                        *int64
		kind, class                             *int16
		key, worker, code, reference, errorText *string
		sent, finished                          *time.Time
	)
	err := from.Scan(&n, &kind, &epoch, &key, &worker, &sent, &finished, &class, &code, &status, &reference, &errorText)
	if err != nil || n == nil {
		return nil, err
	}
	return &driver.Attempt{
		Generation: *n, Kind: driver.Kind(*kind), Epoch: int(*epoch), Key: *key, Worker: *worker,
		SentAt: orNone(sent), FinishedAt: orNone(finished),
		Class: driver.Class(*class), Code: *code, Status: int(*status), Reference: *reference, Error: *errorText,
	}, nil
}

// DeadLetters implements durable.Store.
func (s *Store) DeadLetters(
	ctx context.Context, filter driver.Filter, after *driver.DeadLetter, limit int,
) (found []driver.DeadLetter, err error) {
	q := query{}
	q.choose(&filter)
	if q.nothing || limit <= 0 {
		return nil, ctx.Err()
	}
	if after != nil {
		// The first condition is for the index.
		q.add("l.dead_at >= $", after.DeadAt)
		q.add("(l.dead_at, i.scope, i.operation, i.key, l.n) > ($, $, $, $, $)",
			after.DeadAt, after.ID.Scope, after.ID.Operation, after.ID.Key, after.Number)
	}
	q.args = append(q.args, limit)
	text := s.is.letters + strings.Join(q.where, " AND ") +
		fmt.Sprintf(" ORDER BY l.dead_at, i.scope, i.operation, i.key, l.n LIMIT $%d::bigint", len(q.args))
	err = s.ask(ctx, func() *pgkit.Statement {
		found = nil
		return &pgkit.Statement{Text: text, Args: q.args, Scan: func(from pgkit.Row) error {
			l, err := scanLetter(from)
			found = append(found, l)
			return err
		}}
	})
	return found, err
}

func scanLetter(from pgkit.Row) (l driver.DeadLetter, err error) {
	var redriven *time.Time
	err = from.Scan(&l.ID.Scope, &l.ID.Operation, &l.ID.Key, &l.Number, &l.Gateway, &l.Batch, &l.Row, &l.Reason, &l.Class,
		&l.Code, &l.InDoubt, &l.Attempts, &l.DeadAt, &redriven, &l.By, &l.Note)
	l.DeadAt, l.RedrivenAt = l.DeadAt.UTC(), orNone(redriven)
	return l, err
}

// query is what Filter.Matches and Letter.Compare say.
type query struct {
	where   []string
	args    []any
	nothing bool // no row is such
}

// add adds a condition, in which each $ stands for a value.
func (q *query) add(condition string, values ...any) {
	for _, value := range values {
		q.args = append(q.args, value)
		kind := "text"
		switch value.(type) {
		case time.Time:
			kind = "timestamptz"
		case int64:
			kind = "bigint"
		}
		before, behind, _ := strings.Cut(condition, "$")
		condition = fmt.Sprintf("%s\x00%d::%s%s", before, len(q.args), kind, behind)
	}
	q.where = append(q.where, strings.ReplaceAll(condition, "\x00", "$"))
}

func (q *query) choose(filter *driver.Filter) {
	q.where = []string{"true"}
	for _, each := range [...]struct{ column, value string }{
		{"i.scope", filter.Scope}, {"i.operation", filter.Operation}, {"i.key", filter.Key},
		{"l.gateway", filter.Gateway}, {"l.batch", filter.Batch}, {"l.code", filter.Code}, {"l.reason", filter.Reason},
	} {
		if each.value != "" {
			q.nothing = q.nothing || !storable(each.value)
			q.add(each.column+" = $", each.value)
		}
	}
	if !filter.IncludeResolved {
		q.where = append(q.where, "l.redriven_at IS NULL")
	}
	if !filter.From.IsZero() {
		q.add("l.dead_at >= $", ceilTime(filter.From))
	}
	if !filter.Until.IsZero() {
		q.add("l.dead_at < $", ceilTime(filter.Until))
	}
}

// ceilTime is the first microsecond that is not before t.
func ceilTime(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }

// Stats implements durable.Store.
func (s *Store) Stats(ctx context.Context) (all driver.Stats, err error) {
	err = s.ask(ctx, func() *pgkit.Statement {
		all = driver.Stats{States: make(map[driver.State]int)}
		return &pgkit.Statement{Text: s.is.stats, Scan: func(from pgkit.Row) error { return countState(from, &all) }}
	})
	return all, err
}

func countState(from pgkit.Row, all *driver.Stats) error {
	var (
		state, n, due int
		at            *time.Time
	)
	err := from.Scan(&state, &n, &due, &at)
	switch {
	case state < 0: // not a state: the workers, and the time
		all.Workers, all.Now = n, orNone(at)
		return err
	case due > 0 && (all.Oldest.IsZero() || at.Before(all.Oldest)):
		all.Oldest = orNone(at)
	}
	all.Due += due
	all.States[driver.State(state)] += n
	return err
}
