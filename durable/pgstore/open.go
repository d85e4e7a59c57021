package pgstore

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// ErrSchema says that the tables are not those that this version of the package works
// with. Nothing was changed.
var ErrSchema = pgkit.ErrSchema

// migrations are applied in the order of their names, each once.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Options are what can be chosen. The zero value, and nil, are the defaults.
type Options struct {
	// Schema is where the tables are: PostgreSQL's schema. "": the first of the
	// connection's search_path. It is created if it does not exist.
	Schema string

	// NoMigration leaves the tables as they are, for applications that are not allowed to
	// change them. They are checked all the same, and an older schema is an ErrSchema:
	// see Migrate and Schema.
	NoMigration bool
}

// longestName is PostgreSQL's, in bytes. It cuts off the rest.
const longestName = 63

// schema is that of the options, nil for the defaults. The error is a durable.ErrInvalid.
func (o *Options) schema() (*pgkit.Schema, error) {
	s := &pgkit.Schema{Versions: "durable_schema", Steps: pgkit.ReadSteps(migrations, "migrations/*.sql")}
	if o != nil {
		s.Name = o.Schema
	}
	if len(s.Name) > longestName || !storable(s.Name) {
		return nil, fmt.Errorf("%w: the name %q of a schema", driver.ErrInvalid, s.Name)
	}
	return s, nil
}

// storable: no name is another, and PostgreSQL would refuse to look for it.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// New makes a store of a pool, and its tables if they are not there. nil options are
// the defaults. The error is an ErrSchema, a durable.ErrInvalid, or PostgreSQL's.
//
// The pool's connections may come from PgBouncer: see the package comment.
func New(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Store, error) {
	schema, err := options.schema()
	if err != nil {
		return nil, err
	}
	prepare := schema.Migrate
	if options != nil && options.NoMigration {
		prepare = func(ctx context.Context, pool pgkit.DB) error { return schema.Check(ctx, pgkit.PGX(pool)) }
	}
	if err := prepare(ctx, pool); err != nil {
		return nil, err
	}
	is := newStatements(schema)
	return &Store{pool: pool, is: is, joined: is.joined(true), quiet: is.joined(false)}, nil
}

// Migrate makes the tables, or brings them up to date, without a store: for a program
// that is run before those which may not change tables, see Options.NoMigration. It may
// be run by many processes at once, one of which does the work, all in one transaction.
// Where a newer version of the package has been there is nothing to do; ErrSchema: that
// has made changes which this one cannot work with.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options *Options) error {
	schema, err := options.schema()
	if err != nil {
		return err
	}
	return schema.Migrate(ctx, pool)
}

// Schema is the SQL that Migrate executes where the tables have version from, and 0
// where there are none, for those whose schema is in the hands of another tool: a
// migration of goose or Flyway, a schema of atlas. nil options are the defaults. Where
// there is nothing to do it is empty; where from is no version, ErrSchema.
func Schema(options *Options, from int) (string, error) {
	schema, err := options.schema()
	if err != nil {
		return "", err
	}
	return schema.From(from)
}
