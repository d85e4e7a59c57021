package pgstore

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// ErrSchema means that the tables are not those that this version of the package works with.
// Nothing was changed.
var ErrSchema = pgkit.ErrSchema

// migrations are applied in the order of their names, each once.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Options are the options of a store. nil and the zero value are the defaults.
type Options struct {
	// Schema is PostgreSQL's schema of the tables. It is created if it does not exist. "" means the
	// one in which the connection's search_path finds the tables, or else its first. New looks once:
	// a search_path that changes later, as by SET LOCAL, changes nothing.
	Schema string

	// NoMigration makes New check the tables and not change them: see Migrate and Schema. An
	// older schema is ErrSchema.
	NoMigration bool
}

// maxName is the limit of PostgreSQL, in bytes. It truncates longer names.
const maxName = 63

// schema returns the schema of the options. The error is a durable.ErrInvalid.
func (o *Options) schema() (*pgkit.Schema, error) {
	s := &pgkit.Schema{Versions: "durable_schema", Steps: pgkit.ReadSteps(migrations, "migrations/*.sql"), Names: ourTerms()}
	if o != nil {
		s.Name = o.Schema
	}
	if len(s.Name) > maxName || !storable(s.Name) {
		return nil, fmt.Errorf("%w: pgstore: Options.Schema is %q, want UTF-8 without NUL, at most %d bytes", durable.ErrInvalid, s.Name, maxName)
	}
	return s, nil
}

// storable reports whether PostgreSQL accepts the name.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// New returns a store of a pool, and creates its tables if needed. nil options are the
// defaults. Errors are ErrSchema, durable.ErrInvalid, and PostgreSQL's. The connections may go
// through PgBouncer: see the package comment.
func New(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Store, error) {
	schema, err := options.schema()
	if err != nil {
		return nil, err
	}
	if err := schema.Locate(ctx, pgkit.PGX(pool)); err != nil {
		return nil, err
	}
	prepare := schema.Migrate
	if options != nil && options.NoMigration {
		prepare = func(ctx context.Context, pool pgkit.DB) error { return schema.Check(ctx, pgkit.PGX(pool)) }
	}
	if err := prepare(ctx, pool); err != nil {
		return nil, err
	}
	return newStore(pool, schema), nil
}

// Migrate creates the tables or updates them, in one transaction, without a store: see
// Options.NoMigration. Several processes may call it at once. If a newer version of the package
// was there, it does nothing, or returns ErrSchema if this version cannot work with those
// tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options *Options) error {
	schema, err := options.schema()
	if err != nil {
		return err
	}
	return schema.Migrate(ctx, pool)
}

// Schema returns the SQL that Migrate executes if the tables have version from, or 0 if there
// are none, for a schema that another tool manages, such as goose, Flyway or atlas. nil options
// are the defaults. It is empty if there is nothing to do. ErrSchema: from is no version.
func Schema(options *Options, from int) (string, error) {
	schema, err := options.schema()
	if err != nil {
		return "", err
	}
	return schema.From(from)
}
