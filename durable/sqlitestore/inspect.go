package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

func validID(id idempotency.ID) error {
	if err := id.Validate(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	return nil
}

// Attempts implements durable.Store.
func (s *Store) Attempts(ctx context.Context, id idempotency.ID) (all []driver.Attempt, err error) {
	if err := validID(id); err != nil {
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

// scanAttempt reads a row of the statement attempts. false: it says only that the intent
// is there.
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

// DeadLetters implements durable.Store.
func (s *Store) DeadLetters(
	ctx context.Context, filter driver.Filter, after *driver.DeadLetter, limit int,
) (letters []driver.DeadLetter, err error) {
	if limit <= 0 {
		return nil, s.kit.Usable(ctx)
	}
	query, args := lettersQuery(&filter, after, limit)
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		letters, err = readLetters(ctx, s.kit.Read, query, args)
		return err
	})
	return letters, err
}

// lettersQuery asks for what Filter.Matches and Letter.Compare say.
func lettersQuery(filter *driver.Filter, after *driver.DeadLetter, limit int) (query string, args []any) {
	var where []string
	add := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	for _, each := range [...]struct{ column, value string }{
		{"i.scope", filter.Scope}, {"i.operation", filter.Operation}, {"i.key", filter.Key},
		{"l.gateway", filter.Gateway}, {"l.batch", filter.Batch}, {"l.code", filter.Code}, {"l.reason", filter.Reason},
	} {
		if each.value != "" {
			add(each.column+" = ?", each.value)
		}
	}
	if !filter.IncludeResolved {
		add("l.redriven_at IS NULL")
	}
	if !filter.From.IsZero() {
		add("l.dead_at >= ?", ceilMicros(filter.From))
	}
	if !filter.Until.IsZero() {
		add("l.dead_at < ?", ceilMicros(filter.Until))
	}
	if after != nil {
		// The first condition is for the index.
		add("l.dead_at >= ? AND (l.dead_at, i.scope, i.operation, i.key, l.n) > (?, ?, ?, ?, ?)", micros(after.DeadAt),
			micros(after.DeadAt), after.ID.Scope, after.ID.Operation, after.ID.Key, after.Number)
	}
	if len(where) == 0 {
		where = append(where, "true")
	}
	return `SELECT i.scope, i.operation, i.key, l.n, l.gateway, l.batch, l.row, l.reason, l.class, l.code, l.doubt, l.attempts,
			l.dead_at, l.redriven_at, l."by", l.note
		FROM durable_letter l JOIN durable_intent i ON i.id = l.intent
		WHERE ` + strings.Join(where, " AND ") + `
		ORDER BY l.dead_at, i.scope, i.operation, i.key, l.n LIMIT ?`, append(args, limit)
}

// ceilMicros is the first microsecond that is not before t.
func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func readLetters(ctx context.Context, db *sql.DB, query string, args []any) (letters []driver.DeadLetter, err error) {
	_, err = sqlitekit.ReadRows(ctx, unprepared{db, query}, args, func(rows *sql.Rows) error {
		var (
			l        driver.DeadLetter
			dead     int64
			redriven sql.NullInt64
		)
		err := rows.Scan(&l.ID.Scope, &l.ID.Operation, &l.ID.Key, &l.Number, &l.Gateway, &l.Batch, &l.Row, &l.Reason, &l.Class,
			&l.Code, &l.InDoubt, &l.Attempts, &dead, &redriven, &l.By, &l.Note)
		l.DeadAt, l.RedrivenAt = timeOf(dead), timeOrNone(redriven)
		letters = append(letters, l)
		return err
	})
	return letters, err
}

// unprepared is a statement that is seldom run.
type unprepared struct {
	*sql.DB

	text string
}

// QueryContext implements sqlitekit.Statement.
func (u unprepared) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return u.DB.QueryContext(ctx, u.text, args...)
}

// ExecContext implements sqlitekit.Statement.
func (u unprepared) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return u.DB.ExecContext(ctx, u.text, args...)
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
		switch {
		case state < 0: // not a state: the workers, and the time
			all.Workers, all.Now = n, timeOf(at.Int64)
			return err
		case due > 0 && (all.Oldest.IsZero() || timeOf(at.Int64).Before(all.Oldest)):
			all.Oldest = timeOf(at.Int64)
		}
		all.Due += due
		all.States[driver.State(state)] += n
		return err
	})
	return all, err
}
