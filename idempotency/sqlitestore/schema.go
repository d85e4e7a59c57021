package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// ErrSchema means that the database's tables were made by a newer version of this
// package, and this one cannot work with them. Nothing was changed.
var ErrSchema = errors.New("sqlitestore: the schema does not fit")

// migrations are applied in the order of their names, each once. One that has
// been released is never changed: another is added, which leaves what older
// versions read and write as it is, and says in its row of idempotency_schema which
// of them may go on.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Schema is the SQL that Open and New execute where the tables have version from,
// and 0 where there are none, for those whose schema is in the hands of another
// tool, such as goose or atlas. Where it has been applied there is nothing left for
// Open to make. It is empty where there is nothing to do; where from is no version,
// the error is an ErrSchema.
//
// What a newer version of this package adds can be lived with by older ones, so
// that both may run at the same time, and the older may come back; ErrSchema is
// what they say where that is not so.
func Schema(from int) (string, error) {
	all := scripts()
	if from < 0 || from > len(all) {
		return "", fmt.Errorf("%w: there is no version %d, but %d of them", ErrSchema, from, len(all))
	}
	return strings.Join(all[from:], "\n"), nil
}

// scripts are the migrations: the first makes version 1.
func scripts() []string {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // fails for a bad pattern only
	all := make([]string, len(names))
	for i, name := range names {
		script, _ := migrations.ReadFile(name) // embedded
		all[i] = string(script)
	}
	return all
}

// version is that of the tables, and the oldest of this package that may work with
// them. 0: there are none.
type version struct{ number, oldest int }

// good reports whether there is nothing to be done for a package that knows as
// many versions. The error is an ErrSchema.
func (v version) good(known int) (bool, error) {
	if v.oldest > known {
		return false, fmt.Errorf("%w: version %d is for %d and later, and the last that is known here is %d",
			ErrSchema, v.number, v.oldest, known)
	}
	return v.number >= known, nil
}

const (
	hasVersions = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'idempotency_schema'`
	readVersion = `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM idempotency_schema`
)

// migrate brings the tables up to date. Any number of processes may do so at the
// same time: who comes first does it under the write lock, the others find it
// done. Where nothing is to be done the lock is not taken, so that opening a
// store does not wait for somebody's long transaction.
func (s *Store) migrate(ctx context.Context, db *sql.DB, scripts []string) error {
	var done bool
	err := s.retry(ctx, s.patience(), func() error {
		found, err := schemaVersion(ctx, db)
		if err == nil {
			done, err = found.good(len(scripts))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: reading the schema's version: %w", err)
	}
	if done {
		return nil
	}
	return s.retry(ctx, s.patience(), func() error { return applyMigrations(ctx, db, scripts) })
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func schemaVersion(ctx context.Context, db querier) (v version, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, hasVersions).Scan(&tables); err != nil || tables == 0 {
		return v, err
	}
	err = db.QueryRowContext(ctx, readVersion).Scan(&v.number, &v.oldest)
	return v, err
}

// applyMigrations does all in one transaction, which is an immediate one, by the
// connection's _txlock: it reads the version only when it has the write lock.
func applyMigrations(ctx context.Context, db *sql.DB, scripts []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing

	found, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if done, err := found.good(len(scripts)); done || err != nil {
		return err
	}
	for i := found.number; i < len(scripts); i++ {
		if _, err := tx.ExecContext(ctx, scripts[i]); err != nil {
			return fmt.Errorf("sqlitestore: making version %d of the schema: %w", i+1, err)
		}
	}
	return tx.Commit()
}
