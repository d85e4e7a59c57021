package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Attempts implements durable.Store.
func (s *Store) Attempts(ctx context.Context, id idempotency.ID) (all []driver.Attempt, err error) {
	if err := driver.ValidID(id); err != nil {
		return nil, err
	}
	found := 0
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		all = nil // anew for each try
		found, err = sqlitekit.ReadRows(ctx, s.read[attempts], []any{id.Scope, id.Operation, id.Key}, func(rows *sql.Rows) error {
			a, there, err := scanAttempt(rows)
			if there && err == nil {
				all = append(all, a)
			}
			return err
		})
		return err
	})
	if err == nil && found == 0 {
		err = driver.ErrNotFound
	}
	slices.SortFunc(all, func(a, b driver.Attempt) int { return cmp.Compare(a.Generation, b.Generation) })
	return all, err
}

// scanAttempt reads a row of the statement attempts. false: the intent exists, and has no
// attempt.
func scanAttempt(rows *sql.Rows) (a driver.Attempt, there bool, err error) {
	var (
		n, kind, epoch, sent, finished, class, status sql.NullInt64
		key, worker, code, reference, text            sql.NullString
	)
	err = rows.Scan(&n, &kind, &epoch, &key, &worker, &sent, &finished, &class, &code, &status, &reference, &text)
	return driver.Attempt{
		Generation: n.Int64, Kind: driver.Kind(kind.Int64), Epoch: int(epoch.Int64), Key: key.String, Worker: worker.String,
		SentAt: timeOrNone(sent), FinishedAt: timeOrNone(finished),
		Class: driver.Class(class.Int64), Code: code.String, Status: int(status.Int64), Reference: reference.String, Error: text.String,
	}, n.Valid, err
}

// dialect is SQLite's, for the lists.
var dialect = sqlquery.Dialect{ //nolint:gochecknoglobals // constant
	Param: func(n int, _ any) string { return "?" + strconv.Itoa(n) },
	Time:  func(t time.Time) any { return t.UnixMicro() },
	From: func(held, byID bool) string {
		switch {
		case byID:
			return "durable_intent i"
		case held:
			return "durable_intent i INDEXED BY durable_intent_held"
		}
		return "durable_intent i INDEXED BY durable_intent_listed"
	},
}

// list reads the rows of one statement.
func list[T any](ctx context.Context, s *Store, text string, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		all, err = collect(ctx, sqlitekit.In(s.kit.Read, text), args, scan)
		return err
	})
	return all, err
}

func collect[T any](ctx context.Context, by sqlitekit.Statement, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	_, err = sqlitekit.ReadRows(ctx, by, args, func(rows *sql.Rows) error {
		each, err := scan(rows)
		all = append(all, each)
		return err
	})
	return all, err
}

// DeadLetters implements durable.Store.
func (s *Store) DeadLetters(ctx context.Context, filter driver.Filter, after *driver.DeadLetter, limit int) ([]driver.DeadLetter, error) {
	if err := cmp.Or(s.kit.Usable(ctx), filter.Validate()); err != nil || limit <= 0 {
		return nil, err
	}
	text, args := lettersQuery(&filter, after, limit)
	return list(ctx, s, text, args, scanLetter)
}

func lettersQuery(filter *driver.Filter, after *driver.DeadLetter, limit int) (text string, args []any) {
	tail, args := dialect.DeadLetters(filter, after, limit)
	return `SELECT i.scope, i.operation, i.key, l.n, l.gateway, l.batch, l.row, l.reason, l.class, l.code, l.doubt, l.attempts,
			l.dead_at, l.redriven_at, l."by", l.note
		FROM durable_letter l JOIN durable_intent i ON i.id = l.intent WHERE ` + tail, args
}

func scanLetter(rows *sql.Rows) (l driver.DeadLetter, err error) {
	var (
		dead     int64
		redriven sql.NullInt64
	)
	err = rows.Scan(&l.ID.Scope, &l.ID.Operation, &l.ID.Key, &l.Number, &l.Gateway, &l.Batch, &l.Row, &l.Reason, &l.Class,
		&l.Code, &l.InDoubt, &l.Attempts, &dead, &redriven, &l.By, &l.Note)
	l.DeadAt, l.RedrivenAt = timeOf(dead), timeOrNone(redriven)
	return l, err
}

// Intents implements durable.Store.
func (s *Store) Intents(ctx context.Context, filter driver.Filter, after *driver.Record, limit int) ([]driver.Record, error) {
	if err := cmp.Or(s.kit.Usable(ctx), filter.Validate()); err != nil || limit <= 0 {
		return nil, err
	}
	text, args := dialect.Intents(bareColumns, &filter, after, limit)
	return list(ctx, s, text, args, func(rows *sql.Rows) (driver.Record, error) {
		r, err := scanRow(rows)
		return r.Record, err
	})
}

// Counts implements durable.Store.
func (s *Store) Counts(ctx context.Context, states []driver.State) (counts []driver.Count, err error) {
	filter := driver.Filter{States: states}
	if err := cmp.Or(s.kit.Usable(ctx), filter.Validate()); err != nil {
		return nil, err
	}
	counts, err = list(ctx, s, dialect.Counts(states), nil, func(rows *sql.Rows) (c driver.Count, err error) {
		return c, rows.Scan(&c.State, &c.Gateway, &c.Scope, &c.N)
	})
	slices.SortFunc(counts, driver.Count.Compare)
	return counts, err
}

// Stats implements durable.Store.
func (s *Store) Stats(ctx context.Context) (all driver.Stats, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		all, err = readStats(ctx, s.read[stats])
		return err
	})
	return all, err
}

func readStats(ctx context.Context, statement sqlitekit.Statement) (driver.Stats, error) {
	all := driver.Stats{States: make(map[driver.State]int)}
	_, err := sqlitekit.ReadRows(ctx, statement, nil, func(rows *sql.Rows) error {
		var (
			state, n, due int
			at            sql.NullInt64
		)
		err := rows.Scan(&state, &n, &due, &at)
		sqlquery.AddState(&all, state, n, due, timeOf(at.Int64))
		return err
	})
	return all, err
}
