package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Attempts implements durable.Store.
func (s *Store) Attempts(ctx context.Context, id idempotency.ID) ([]driver.Attempt, error) {
	if err := driver.ValidID(id); err != nil {
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

// scanAttempt reads a row of the journal. nil: the intent exists, and has no attempt.
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

// dialect is PostgreSQL's, for the lists.
func (is *statements) dialect() sqlquery.Dialect {
	return sqlquery.Dialect{
		Param: func(n int, value any) string {
			kind := "text"
			switch value.(type) {
			case time.Time:
				kind = "timestamptz"
			case int64:
				kind = "bigint"
			}
			return fmt.Sprintf("$%d::%s", n, kind)
		},
		Time: func(t time.Time) any { return t },
		From: func(bool, bool) string { return is.intents },
	}
}

// list reads the rows of one statement, with the settings that make PostgreSQL use the indexes.
func list[T any](ctx context.Context, s *Store, text string, args []any, scan func(pgkit.Row) (T, error)) (all []T, err error) {
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		all = nil // anew for each try
		return t.Commit(ctx, listing(&all, text, args, scan))
	})
	return all, err
}

// listing is a statement that collects rows.
func listing[T any](all *[]T, text string, args []any, scan func(pgkit.Row) (T, error)) *pgkit.Statement {
	return &pgkit.Statement{Text: text, Args: args, Scan: func(from pgkit.Row) error {
		each, err := scan(from)
		*all = append(*all, each)
		return err
	}}
}

// DeadLetters implements durable.Store.
func (s *Store) DeadLetters(ctx context.Context, filter driver.Filter, after *driver.DeadLetter, limit int) ([]driver.DeadLetter, error) {
	if err := cmp.Or(ctx.Err(), filter.Validate()); err != nil || limit <= 0 {
		return nil, err
	}
	tail, args := s.is.dialect().DeadLetters(&filter, after, limit)
	return list(ctx, s, s.is.letters+tail, args, scanLetter)
}

// Intents implements durable.Store.
func (s *Store) Intents(ctx context.Context, filter driver.Filter, after *driver.Record, limit int) ([]driver.Record, error) {
	if err := cmp.Or(ctx.Err(), filter.Validate()); err != nil || limit <= 0 {
		return nil, err
	}
	text, args := s.is.dialect().Intents(bareColumns, &filter, after, limit)
	return list(ctx, s, text, args, func(from pgkit.Row) (driver.Record, error) {
		r, err := scanRow(from)
		return r.Record, err
	})
}

// Counts implements durable.Store.
func (s *Store) Counts(ctx context.Context, states []driver.State) (counts []driver.Count, err error) {
	filter := driver.Filter{States: states}
	if err := cmp.Or(ctx.Err(), filter.Validate()); err != nil {
		return nil, err
	}
	counts, err = list(ctx, s, s.is.dialect().Counts(states), nil, func(from pgkit.Row) (c driver.Count, err error) {
		return c, from.Scan(&c.State, &c.Gateway, &c.Scope, &c.N)
	})
	slices.SortFunc(counts, driver.Count.Compare)
	return counts, err
}

func scanLetter(from pgkit.Row) (l driver.DeadLetter, err error) {
	var redriven *time.Time
	err = from.Scan(&l.ID.Scope, &l.ID.Operation, &l.ID.Key, &l.Number, &l.Gateway, &l.Batch, &l.Row, &l.Reason, &l.Class,
		&l.Code, &l.InDoubt, &l.Attempts, &l.DeadAt, &redriven, &l.By, &l.Note)
	l.DeadAt, l.RedrivenAt = l.DeadAt.UTC(), orNone(redriven)
	return l, err
}

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
	sqlquery.AddState(all, state, n, due, orNone(at))
	return err
}
