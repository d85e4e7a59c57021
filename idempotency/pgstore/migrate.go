package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// migrations are 1.sql, 2.sql and so on. What has been released is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// version is the schema that this package's statements are for.
const version = 1

// ErrSchema says that the tables are not those that this version of the package works
// with.
var ErrSchema = errors.New("pgstore: the schema does not fit")

// Migrate makes the tables, or brings them up to date, without a store: for a
// program that is run before those which may not change tables, see
// Options.NoMigration. It may be run by many processes at once, one of which does
// the work, all in one transaction. ErrSchema: a newer version of the package has
// been here.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options *Options) error {
	o := Options{}
	if options != nil {
		o = *options
	}
	o.NoMigration = false
	_, err := New(ctx, pool, &o)
	return err
}

// check reads the schema's version.
func (s *Store) check(ctx context.Context) error {
	v, err := s.version(ctx, s.querier)
	switch {
	case err != nil:
		return err
	case v < version:
		return fmt.Errorf("%w: it has version %d, and version %d is needed: run Migrate", ErrSchema, v, version)
	default:
		return tooNew(v)
	}
}

func tooNew(v int) error {
	if v > version {
		return fmt.Errorf("%w: it has version %d, newer than %d: a newer version of the package has been here",
			ErrSchema, v, version)
	}
	return nil
}

// migrate brings the schema up to date. Where it is already, which is nearly
// always, that takes a look and no lock.
func (s *Store) migrate(ctx context.Context) error {
	v, err := s.version(ctx, s.querier)
	if err != nil {
		return err
	}
	if v >= version {
		return tooNew(v)
	}
	return s.readCommitted(ctx, func(q querier) error { return s.upgrade(ctx, q) })
}

// version is 0 where there are no tables. It asks the catalog as a table, because the
// functions that look names up, like to_regclass, may answer from a cache that is as
// old as the transaction.
func (s *Store) version(ctx context.Context, q querier) (int, error) {
	var exists bool
	err := q.row(ctx, `SELECT EXISTS (
		SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = $1::text AND (n.nspname = $2::text OR $2::text = '' AND pg_catalog.pg_table_is_visible(c.oid))
	)`, s.tables.versionsName, s.tables.schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var v int
	err = q.row(ctx, `SELECT coalesce(max(version), 0) FROM `+s.tables.versions).Scan(&v)
	return v, err
}

// upgrade is one transaction. The lock, which ends with it, makes others wait who
// want to do the same; they find it done. Tables of other names have other locks.
func (s *Store) upgrade(ctx context.Context, q querier) error {
	_, err := q.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('resilienthttp pgstore ' || $1::text, 0))`, s.tables.records)
	if err != nil {
		return err
	}
	v, err := s.version(ctx, q)
	if err != nil || v >= version {
		return errors.Join(err, tooNew(v))
	}
	if err := s.createSchema(ctx, q); err != nil {
		return err
	}
	for ; v < version; v++ {
		if err := s.apply(ctx, q, v+1); err != nil {
			return fmt.Errorf("pgstore: migration %d: %w", v+1, err)
		}
	}
	return nil
}

// createSchema looks first, for CREATE SCHEMA IF NOT EXISTS needs a privilege even
// where there is nothing to create.
func (s *Store) createSchema(ctx context.Context, q querier) error {
	if s.tables.schema == "" {
		return nil
	}
	var exists bool
	err := q.row(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`, s.tables.schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = q.exec(ctx, `CREATE SCHEMA `+pgx.Identifier{s.tables.schema}.Sanitize())
	return err
}

// apply executes one migration and notes it.
func (s *Store) apply(ctx context.Context, q querier, v int) error {
	text, err := migrations.ReadFile(fmt.Sprintf("migrations/%d.sql", v))
	if err != nil {
		return err
	}
	filled := strings.NewReplacer(
		"{{records}}", s.tables.records, "{{versions}}", s.tables.versions, "{{expires}}", s.tables.expires,
	).Replace(string(text))
	for statement := range strings.SplitSeq(filled, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := q.exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err = q.exec(ctx, `INSERT INTO `+s.tables.versions+` (version) VALUES ($1::integer)`, v)
	return err
}

// readCommitted is a transaction whose statements see what was committed before
// them, whatever the database's default: who has waited for the lock must see what
// was done meanwhile.
func (s *Store) readCommitted(ctx context.Context, f func(querier) error) error {
	if s.pool != nil {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return f(pgxQuerier{tx})
		})
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := f(sqlQuerier{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
