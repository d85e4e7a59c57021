package pgkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrSchema says that the tables are not those that the store's package works with.
var ErrSchema = errors.New("pgstore: the schema does not fit")

// Step leads from one version of the tables to the next. What has been released is
// never changed.
type Step struct {
	// Text is SQL. {{schema}} stands before the names of tables: the quoted name of their
	// schema, and a dot. See Schema.Names for what else may stand there.
	Text string

	// Oldest is the oldest version whose programs can work with what this makes: they run
	// beside newer ones while those are rolled out, are started again, and come back when
	// those are rolled back. A step that adds leaves it as it was.
	Oldest int
}

// Schema is a store's tables: how each version of them is made from the one before.
type Schema struct {
	// Name is that of PostgreSQL's schema. "": the first of the search path.
	Name string

	// Versions is the name of a table with a row for each version that was made, which
	// the first step makes: its columns are version and oldest.
	Versions string

	// Names are further placeholders, each before what it stands for.
	Names []string

	Steps []Step
}

// ReadSteps reads steps from files, in the order of their names, each of which leaves
// older programs as they were.
func ReadSteps(files fs.FS, match string) []Step {
	names, _ := fs.Glob(files, match) // fails for a bad pattern only
	steps := make([]Step, len(names))
	for i, name := range names {
		text, _ := fs.ReadFile(files, name) // embedded
		steps[i] = Step{string(text), 1}
	}
	return steps
}

// Fill puts the names into a text.
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

// note writes down that step v was made.
func (s *Schema) note(v int) string {
	return fmt.Sprintf(`INSERT INTO %s (version, oldest) VALUES (%d, %d)`, s.versions(), v+1, s.Steps[v].Oldest)
}

// From is the SQL that Migrate executes where the tables have version from, and 0 where
// there are none. Where there is nothing to do it is empty; where from is no version,
// ErrSchema.
func (s *Schema) From(from int) (string, error) {
	if from < 0 || from > len(s.Steps) {
		return "", fmt.Errorf("%w: there is no version %d", ErrSchema, from)
	}
	var text strings.Builder
	if s.Name != "" && from == 0 {
		text.WriteString("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{s.Name}.Sanitize() + ";\n\n")
	}
	for v := from; v < len(s.Steps); v++ {
		text.WriteString(s.Fill(s.Steps[v].Text) + "\n" + s.note(v) + ";\n")
	}
	return text.String(), nil
}

// Check reads the version of the tables. ErrSchema: it is not one to work with.
func (s *Schema) Check(ctx context.Context, db Database) error {
	v, err := s.look(ctx, db)
	if err == nil && v < len(s.Steps) {
		err = fmt.Errorf("%w: it has version %d, and version %d is needed: run Migrate", ErrSchema, v, len(s.Steps))
	}
	return err
}

// Migrate brings the tables up to date, in one transaction. Where they are already,
// which is nearly always, that takes a look and no lock. Many processes may do so at
// once. ErrSchema: a newer version has made changes which this one cannot work with.
func (s *Schema) Migrate(ctx context.Context, db Database) error {
	v, err := s.look(ctx, db)
	if err != nil || v >= len(s.Steps) {
		return err
	}
	return db.ReadCommitted(ctx, func(through Sender) error { return s.upgrade(ctx, through) })
}

// look is the version that is there, 0 where there are no tables, and an error if it
// asks for newer programs. It looks into the catalog as a table, because the functions
// that look names up, like to_regclass, may answer from a cache that is as old as the
// transaction.
func (s *Schema) look(ctx context.Context, through Sender) (v int, err error) {
	var exists bool
	err = through.Send(ctx, &Statement{Text: `SELECT EXISTS (
		SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = $1::text AND (n.nspname = $2::text OR $2::text = '' AND pg_catalog.pg_table_is_visible(c.oid))
	)`, Args: []any{s.Versions, s.Name}, Scan: func(r Row) error { return r.Scan(&exists) }})
	if err != nil || !exists {
		return 0, err
	}
	oldest := 0
	err = through.Send(ctx, &Statement{
		Text: `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM ` + s.versions(),
		Scan: func(r Row) error { return r.Scan(&v, &oldest) },
	})
	if err == nil && oldest > len(s.Steps) {
		err = fmt.Errorf("%w: it has version %d, which a newer version of the package has made, "+
			"and programs must be for version %d at least: this one is for %d", ErrSchema, v, oldest, len(s.Steps))
	}
	return v, err
}

// upgrade is one transaction. The lock, which ends with it, makes others wait who want
// to do the same; they find it done. Tables of other names have other locks.
func (s *Schema) upgrade(ctx context.Context, t Sender) error {
	err := t.Send(ctx, &Statement{
		Text: `SELECT pg_advisory_xact_lock(hashtextextended('resilienthttp pgstore ' || $1::text, 0))`,
		Args: []any{s.versions()},
	})
	if err != nil {
		return err
	}
	v, err := s.look(ctx, t)
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

// create looks first, for CREATE SCHEMA IF NOT EXISTS needs a privilege even where
// there is nothing to create.
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

// apply executes one step and notes it: each statement by itself, for it is not
// prepared before the one that makes its table.
func (s *Schema) apply(ctx context.Context, t Sender, v int) error {
	for text := range strings.SplitSeq(s.Fill(s.Steps[v].Text), ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		if err := t.Send(ctx, &Statement{Text: text}); err != nil {
			return err
		}
	}
	return t.Send(ctx, &Statement{Text: s.note(v)})
}
