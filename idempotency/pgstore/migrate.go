package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// migration is a step from one version of the schema to the next.
type migration struct {
	text string

	// oldest is the oldest version whose programs can work with what this makes:
	// they run beside newer ones while those are rolled out, are started again, and
	// come back when those are rolled back. A step that adds leaves it as it was.
	oldest int
}

//go:embed migrations/1.sql
var first string

// released are the steps that lead to the schema that this package's statements are
// for. What has been released is never changed.
func released() []migration { return []migration{{first, 1}} }

// ErrSchema says that the tables are not those that this version of the package works
// with.
var ErrSchema = errors.New("pgstore: the schema does not fit")

// Migrate makes the tables, or brings them up to date, without a store: for a
// program that is run before those which may not change tables, see
// Options.NoMigration. It may be run by many processes at once, one of which does
// the work, all in one transaction. Where a newer version of the package has been
// there is nothing to do; ErrSchema: that has made changes which this one cannot work
// with.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options *Options) error {
	o := Options{}
	if options != nil {
		o = *options
	}
	o.NoMigration = false
	_, err := New(ctx, pool, &o)
	return err
}

// Schema is the SQL that Migrate executes where the tables have version from, and 0
// where there are none, for those whose schema is in the hands of another tool: a
// migration of goose or Flyway, a schema of atlas. nil options are the defaults.
// Where there is nothing to do it is empty; where from is no version, ErrSchema.
func Schema(options *Options, from int) (string, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return "", err
	}
	m := migrator{nil, options.tables(), released()}
	if from < 0 || from > m.version() {
		return "", fmt.Errorf("%w: there is no version %d", ErrSchema, from)
	}
	var text strings.Builder
	if m.schema != "" && from == 0 {
		text.WriteString("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{m.schema}.Sanitize() + ";\n\n")
	}
	for v := from; v < m.version(); v++ {
		text.WriteString(m.fill(v))
		text.WriteString("\n" + m.note(v) + ";\n")
	}
	return text.String(), nil
}

// migrator brings tables up to date.
type migrator struct {
	db connection
	tables
	steps []migration
}

// version is that of the package.
func (m *migrator) version() int { return len(m.steps) }

// fill is step v, from version v to v+1, with the tables' names.
func (m *migrator) fill(v int) string {
	return strings.NewReplacer(
		"{{records}}", m.records, "{{versions}}", m.versions, "{{expires}}", m.expires, "{{open}}", m.open,
	).Replace(m.steps[v].text)
}

// note writes down that step v was made.
func (m *migrator) note(v int) string {
	return fmt.Sprintf(`INSERT INTO %s (version, oldest) VALUES (%d, %d)`, m.versions, v+1, m.steps[v].oldest)
}

// check reads the schema's version.
func (m migrator) check(ctx context.Context) error {
	v, err := m.look(ctx, m.db)
	if err == nil && v < m.version() {
		err = fmt.Errorf("%w: it has version %d, and version %d is needed: run Migrate", ErrSchema, v, m.version())
	}
	return err
}

// migrate brings the schema up to date. Where it is already, which is nearly
// always, that takes a look and no lock.
func (m migrator) migrate(ctx context.Context) error {
	v, err := m.look(ctx, m.db)
	if err != nil || v >= m.version() {
		return err
	}
	return m.db.readCommitted(ctx, func(q querier) error { return m.upgrade(ctx, q) })
}

// look is the version that is there, 0 where there are no tables, and an error if it
// asks for newer programs. It looks into the catalog as a table, because the
// functions that look names up, like to_regclass, may answer from a cache that is as
// old as the transaction.
func (m *migrator) look(ctx context.Context, q querier) (int, error) {
	var exists bool
	err := q.row(ctx, `SELECT EXISTS (
		SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = $1::text AND (n.nspname = $2::text OR $2::text = '' AND pg_catalog.pg_table_is_visible(c.oid))
	)`, m.versionsName, m.schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var v, oldest int
	err = q.row(ctx, `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM `+m.versions).Scan(&v, &oldest)
	if err == nil && oldest > m.version() {
		err = fmt.Errorf("%w: it has version %d, which a newer version of the package has made, "+
			"and programs must be for version %d at least: this one is for %d", ErrSchema, v, oldest, m.version())
	}
	return v, err
}

// upgrade is one transaction. The lock, which ends with it, makes others wait who
// want to do the same; they find it done. Tables of other names have other locks.
func (m *migrator) upgrade(ctx context.Context, q querier) error {
	_, err := q.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('resilienthttp pgstore ' || $1::text, 0))`, m.records)
	if err != nil {
		return err
	}
	v, err := m.look(ctx, q)
	if err != nil || v >= m.version() {
		return err
	}
	if err := m.createSchema(ctx, q); err != nil {
		return err
	}
	for ; v < m.version(); v++ {
		if err := m.apply(ctx, q, v); err != nil {
			return fmt.Errorf("pgstore: migration %d: %w", v+1, err)
		}
	}
	return nil
}

// createSchema looks first, for CREATE SCHEMA IF NOT EXISTS needs a privilege even
// where there is nothing to create.
func (m *migrator) createSchema(ctx context.Context, q querier) error {
	if m.schema == "" {
		return nil
	}
	var exists bool
	err := q.row(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`, m.schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = q.exec(ctx, `CREATE SCHEMA `+pgx.Identifier{m.schema}.Sanitize())
	return err
}

// apply executes one step and notes it.
func (m *migrator) apply(ctx context.Context, q querier, v int) error {
	for statement := range strings.SplitSeq(m.fill(v), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := q.exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := q.exec(ctx, m.note(v))
	return err
}
