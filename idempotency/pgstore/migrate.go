package pgstore

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

//go:embed migrations/*.sql
var steps embed.FS

// ErrSchema means that the tables are missing, or are not those that this version of the
// package reads and writes. Its text says what to run.
var ErrSchema = pgkit.ErrSchema

// Migrate makes the tables or brings them up to date, for a program that runs before the
// services that may not change tables (Options.NoMigration). Options.NoMigration is
// ignored. Many processes may call it at once. The error is an ErrSchema if a newer
// program has made changes that this one cannot work with.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options *Options) error {
	s, _, err := locate(ctx, pgkit.PGX(pool), options)
	if err != nil {
		return err
	}
	return s.Migrate(ctx, pool)
}

// locate is schemaOf with names that are qualified for good: if there is no Options.Schema, by the schema to which the search
// path leads now. The search path may change, for example by SET LOCAL in the transaction of the work.
func locate(ctx context.Context, through pgkit.Sender, options *Options) (*pgkit.Schema, *tables, error) {
	if options == nil {
		options = &Options{}
	}
	s, err := schemaOf(options)
	if err != nil {
		return nil, nil, err
	}
	if err := s.Locate(ctx, through); err != nil {
		return nil, nil, err
	}
	found := *options
	found.Schema = s.Name
	s, err = schemaOf(&found)
	return s, found.tables(), err
}

// Schema returns the SQL that Migrate executes where the tables have version from, or 0
// if there are none: for a migration of another tool, such as goose or Flyway. nil
// options are the defaults. It is empty if there is nothing to do. The error is an
// ErrSchema if from is no version.
func Schema(options *Options, from int) (string, error) {
	s, err := schemaOf(options)
	if err != nil {
		return "", err
	}
	return s.From(from)
}

// schemaOf describes the tables for this package's statements. A released step is never changed.
func schemaOf(options *Options) (*pgkit.Schema, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	t := options.tables()
	return &pgkit.Schema{
		Name: t.schema, Versions: t.name + "_version", Steps: pgkit.ReadSteps(steps, "migrations/*.sql"),
		Names: []string{"{{records}}", t.records, "{{versions}}", t.versions, "{{expires}}", t.expires, "{{open}}", t.open, "{{leases}}", t.leases},
		Table: t.name, Columns: map[string]string{
			"scope": "text", "operation": "text", "key": "text", "fingerprint": "text", "owner": "text", "header": "text",
			"status": "smallint", "takeover": "smallint", "generation": "bigint", "code": "bigint",
			"body": "bytea", "reference": "bytea",
			"lease_expires": timestamptz, "started": timestamptz, "updated": timestamptz, "expires": timestamptz,
		},
	}, nil
}

const timestamptz = "timestamp with time zone"
