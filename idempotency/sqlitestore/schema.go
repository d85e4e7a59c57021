package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// ErrSchema means that the database's tables were made by a newer version of this
// package, which this one must not touch. Nothing was changed.
var ErrSchema = errors.New("sqlitestore: the schema is newer than this program")

// migrations are applied in the order of their names, each once. One that has
// been released is never changed: another is added.
//
//go:embed migrations/*.sql
var migrations embed.FS

const (
	createVersions = `CREATE TABLE IF NOT EXISTS idempotency_schema (
		version INTEGER PRIMARY KEY,
		applied INTEGER NOT NULL
	) STRICT`

	hasVersions  = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'idempotency_schema'`
	readVersion  = `SELECT coalesce(max(version), 0) FROM idempotency_schema`
	writeVersion = `INSERT INTO idempotency_schema (version, applied) VALUES (?, ` + now + `)`
)

// migrate brings the tables up to date. Any number of processes may do so at the
// same time: who comes first does it under the write lock, the others find it
// done. Where nothing is to be done the lock is not taken, so that opening a
// store does not wait for somebody's long transaction.
func (s *Store) migrate(ctx context.Context, db *sql.DB) error {
	scripts, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	version := 0
	err = s.retry(ctx, s.patience(), func() error {
		version, err = schemaVersion(ctx, db)
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: reading the schema's version: %w", err)
	}
	if version == len(scripts) {
		return nil
	}
	return s.retry(ctx, s.patience(), func() error { return applyMigrations(ctx, db, scripts) })
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func schemaVersion(ctx context.Context, db querier) (version int, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, hasVersions).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, readVersion).Scan(&version)
	return version, err
}

// applyMigrations does all in one transaction, which is an immediate one, by the
// connection's _txlock: it reads the version only when it has the write lock.
func applyMigrations(ctx context.Context, db *sql.DB, scripts []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing

	if _, err := tx.ExecContext(ctx, createVersions); err != nil {
		return err
	}
	version, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if version > len(scripts) {
		return fmt.Errorf("%w: version %d, and the last that is known here is %d", ErrSchema, version, len(scripts))
	}
	for i, name := range scripts[version:] {
		if err := applyMigration(ctx, tx, version+i+1, name); err != nil {
			return fmt.Errorf("sqlitestore: %s: %w", name, err)
		}
	}
	return tx.Commit()
}

func applyMigration(ctx context.Context, tx *sql.Tx, version int, name string) error {
	script, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, writeVersion, version)
	return err
}
