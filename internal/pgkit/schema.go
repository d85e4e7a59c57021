package pgkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrSchema means that the tables are not those that the store's package reads and writes.
var ErrSchema = errors.New("pgstore: schema mismatch")

// Schema describes a store's tables and the steps that make them.
type Schema struct {
	// Name is the name of PostgreSQL's schema. "": where the search path leads. Locate replaces that by the name.
	Name string

	// Versions is the name of a table with a row for each version, which the first step
	// makes. Its columns are version and oldest: the oldest version of programs that can work with the tables.
	Versions string

	// Names are more placeholders, each followed by its replacement.
	Names []string

	// Table and Columns are a table, by its unquoted name, and its columns with their
	// types, which Check compares. "": none.
	Table   string
	Columns map[string]string

	// Steps are SQL, each of which makes one version from the version before. {{schema}} is replaced by the quoted name
	// of the tables' schema and a dot. A released step is never changed. A step that excludes older programs raises
	// oldest in the rows of Versions.
	Steps []string
}

// DB is a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Querier

	// BeginTx is that of pgx.
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// ReadSteps reads steps from files, in the order of their names.
func ReadSteps(files fs.FS, match string) []string {
	names, _ := fs.Glob(files, match) // fails for a bad pattern only
	steps := make([]string, len(names))
	for i, name := range names {
		text, _ := fs.ReadFile(files, name) // embedded
		steps[i] = string(text)
	}
	return steps
}

// Fill replaces the placeholders of a text.
func (s *Schema) Fill(text string) string {
	prefix := ""
	if s.Name != "" {
		prefix = pgx.Identifier{s.Name}.Sanitize() + "."
	}
	return strings.NewReplacer(append([]string{"{{schema}}", prefix}, s.Names...)...).Replace(text)
}

func (s *Schema) versions() string {
	return s.Fill("{{schema}}") + pgx.Identifier{s.Versions}.Sanitize()
}

func (s *Schema) note(v int) string {
	return fmt.Sprintf(`INSERT INTO %s (version, oldest) VALUES (%d, 1)`, s.versions(), v+1)
}

// From returns the SQL that Migrate executes where the tables have version from; 0 means that there are none. It is
// empty if there is nothing to do. The error is an ErrSchema: from is no version.
func (s *Schema) From(from int) (string, error) {
	if from < 0 || from > len(s.Steps) {
		return "", fmt.Errorf("%w: there is no version %d", ErrSchema, from)
	}
	var text strings.Builder
	if s.Name != "" && from == 0 {
		text.WriteString("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{s.Name}.Sanitize() + ";\n\n")
	}
	for v := from; v < len(s.Steps); v++ {
		text.WriteString(s.Fill(s.Steps[v]) + "\n" + s.note(v) + ";\n")
	}
	return text.String(), nil
}

// Locate sets Name, if it is empty, to the schema in which the search path finds the tables now. If there are no tables, that
// is the schema in which PostgreSQL would create them. From then on, each text names the schema. Otherwise every statement
// would follow the search path of its moment: after SET LOCAL search_path, it would write to another tenant's tables.
func (s *Schema) Locate(ctx context.Context, through Sender) error {
	if s.Name != "" {
		return nil
	}
	return through.Send(ctx, &Statement{Text: `SELECT coalesce((
			SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relname = $1::text AND pg_catalog.pg_table_is_visible(c.oid)), pg_catalog.current_schema(), '')::text`,
		Args: []any{s.Versions}, Scan: func(r Row) error { return r.Scan(&s.Name) },
	})
}

// Check compares the tables with those that the program needs. It needs no right to write, and no statement of it fails
// because a table or a column is missing, so that a transaction of the caller stays usable. The error is an ErrSchema
// that says what to run, or PostgreSQL's.
func (s *Schema) Check(ctx context.Context, through Sender) error {
	v, err := s.version(ctx, through)
	switch {
	case err != nil:
		return err
	case v == 0:
		return fmt.Errorf("%w: table %s does not exist: run pgstore.Migrate, or the SQL of pgstore.Schema", ErrSchema, s.versions())
	case v < len(s.Steps):
		return fmt.Errorf("%w: the tables have version %d, want %d: run pgstore.Migrate, or the SQL of pgstore.Schema(options, %d)",
			ErrSchema, v, len(s.Steps), v)
	case s.Table == "":
		return nil
	}
	_, err = s.compare(ctx, through, s.Table, s.Columns)
	return err
}

// Migrate calls Locate, and makes the tables or brings them up to date, in one transaction. It takes no lock if there is
// nothing to do. Many processes may call it at once. The error is an ErrSchema if a newer program has made changes that this
// one cannot work with, or if another program made the tables.
func (s *Schema) Migrate(ctx context.Context, db DB) error {
	if err := s.Locate(ctx, PGX(db)); err != nil {
		return err
	}
	v, err := s.version(ctx, PGX(db))
	if err != nil || v >= len(s.Steps) {
		return err
	}
	return Retry(ctx, func() error {
		return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return s.upgrade(ctx, PGX(tx))
		})
	})
}

// version returns the tables' version, 0 if there are none. The error is an ErrSchema if
// they need newer programs, or are not the store's.
func (s *Schema) version(ctx context.Context, through Sender) (v int, err error) {
	exists, err := s.compare(ctx, through, s.Versions, map[string]string{"version": "integer", "oldest": "integer"})
	if err != nil || !exists {
		return 0, err
	}
	oldest := 0
	err = through.Send(ctx, &Statement{
		Text: `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM ` + s.versions(),
		Scan: func(r Row) error { return r.Scan(&v, &oldest) },
	})
	if err == nil && oldest > len(s.Steps) {
		err = fmt.Errorf("%w: the tables have version %d, which a newer program made, and need programs for version %d or newer: "+
			"this one is for version %d, update it", ErrSchema, v, oldest, len(s.Steps))
	}
	return v, err
}

// compare compares the columns of a table, and reports whether it exists. It reads the catalog as a table, because
// functions such as to_regclass may answer from a cache that is as old as the transaction.
func (s *Schema) compare(ctx context.Context, through Sender, table string, want map[string]string) (exists bool, err error) {
	got := map[string]string{}
	err = through.Send(ctx, &Statement{Text: `SELECT a.attname::text, pg_catalog.format_type(a.atttypid, NULL)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relname = $1::text AND (n.nspname = $2::text OR $2::text = '' AND pg_catalog.pg_table_is_visible(c.oid))`,
		Args: []any{table, s.Name}, Scan: func(r Row) error {
			var name, kind string
			err := r.Scan(&name, &kind)
			got[name] = kind
			return err
		}})
	if err != nil || len(got) == 0 && table == s.Versions {
		return false, err
	}
	if len(got) == 0 { // the versions say that it was made
		return false, foreign(fmt.Errorf("table %q does not exist", table))
	}
	for name, kind := range want {
		switch got[name] {
		case kind:
		case "":
			return false, foreign(fmt.Errorf("table %q has no column %q", table, name))
		default:
			return false, foreign(fmt.Errorf("column %q of table %q is of type %s, want %s", name, table, got[name], kind))
		}
	}
	return true, nil
}

// foreign returns an ErrSchema that wraps err and says what to do about tables that the store did not make.
func foreign(err error) error {
	return fmt.Errorf("%w: %w: run pgstore.Migrate, or choose another name in Options if another program made the table", ErrSchema, err)
}

// SchemaError returns err, as an ErrSchema that says what to do if PostgreSQL misses a table or a column.
func SchemaError(err error) error {
	const undefinedTable, undefinedColumn = "42P01", "42703"
	if HasCode(err, undefinedTable, undefinedColumn) && !errors.Is(err, ErrSchema) {
		return foreign(err)
	}
	return err
}

// upgrade is one transaction. Other processes that migrate wait for its lock, and find the tables made.
func (s *Schema) upgrade(ctx context.Context, t Sender) error {
	err := t.Send(ctx, &Statement{
		Text: `SELECT pg_advisory_xact_lock(hashtextextended('resilienthttp pgstore ' || $1::text, 0))`,
		Args: []any{s.versions()},
	})
	if err != nil {
		return err
	}
	v, err := s.version(ctx, t) // again: another process may have held the lock to migrate
	if err != nil || v >= len(s.Steps) {
		return err
	}
	if err := s.create(ctx, t); err != nil {
		return err
	}
	for ; v < len(s.Steps); v++ {
		if err := s.apply(ctx, t, v); err != nil {
			return fmt.Errorf("pgstore: migration %d: %w", v+1, err)
		}
	}
	return nil
}

// create looks for the schema first, because CREATE SCHEMA IF NOT EXISTS needs a privilege even if the schema exists.
func (s *Schema) create(ctx context.Context, t Sender) error {
	if s.Name == "" {
		return nil
	}
	exists := false
	err := t.Send(ctx, &Statement{
		Text: `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`,
		Args: []any{s.Name}, Scan: func(r Row) error { return r.Scan(&exists) },
	})
	if err != nil || exists {
		return err
	}
	return t.Send(ctx, &Statement{Text: `CREATE SCHEMA ` + pgx.Identifier{s.Name}.Sanitize()})
}

// apply executes a step and records it. It sends each statement alone, because a
// statement cannot be prepared before the table exists.
func (s *Schema) apply(ctx context.Context, t Sender, v int) error {
	const duplicateTable = "42P07"
	for text := range strings.SplitSeq(s.Fill(s.Steps[v]), ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		err := t.Send(ctx, &Statement{Text: text})
		if HasCode(err, duplicateTable) { // the versions do not have it, so another program made it
			return foreign(err)
		}
		if err != nil {
			return err
		}
	}
	return t.Send(ctx, &Statement{Text: s.note(v)})
}
