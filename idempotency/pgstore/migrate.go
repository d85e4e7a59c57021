package pgstore

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

//go:embed migrations/1.sql
var first string

// released are the steps that lead to the schema that this package's statements are
// for. What has been released is never changed.
func released() []pgkit.Step { return []pgkit.Step{{Text: first, Oldest: 1}} }

// ErrSchema says that the tables are not those that this version of the package works
// with.
var ErrSchema = pgkit.ErrSchema

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
	return options.tables().made(released()).From(from)
}

// made is how the tables are made, by these steps.
func (t *tables) made(steps []pgkit.Step) *pgkit.Schema {
	return &pgkit.Schema{
		Name: t.schema, Versions: t.versionsName, Steps: steps,
		Names: []string{"{{records}}", t.records, "{{versions}}", t.versions, "{{expires}}", t.expires, "{{open}}", t.open},
	}
}
