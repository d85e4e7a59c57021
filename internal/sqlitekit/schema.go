package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"
)

// ErrSchema means that the database does not have the tables that this version of
// the store's package reads and writes. Nothing was changed.
var ErrSchema = errors.New("sqlitestore: the schema does not fit")

// Schema describes a store's tables and how each version is made from the one before.
//
// The table Versions has a row for each version that was made. Its column oldest is the oldest version of the package
// that can work with the tables. A released script never changes. A new script leaves the tables usable for older
// versions of the package, or excludes them by its row.
type Schema struct {
	Versions string
	Scripts  []string // the first makes version 1

	// Probes are statements that name all columns and unique keys. SQLite prepares
	// them only if the tables fit. They are not executed.
	Probes []string
}

// ReadSchema reads the scripts from the files that match, in the order of names.
func ReadSchema(versions string, files fs.FS, match string, probes ...string) Schema {
	names, _ := fs.Glob(files, match) // fails for a bad pattern only
	s := Schema{Versions: versions, Scripts: make([]string, len(names)), Probes: probes}
	for i, name := range names {
		script, _ := fs.ReadFile(files, name) // embedded
		s.Scripts[i] = string(script)
	}
	return s
}

// From returns the SQL that makes all versions after from, or ErrSchema.
func (s Schema) From(from int) (string, error) {
	if from < 0 || from > len(s.Scripts) {
		return "", fmt.Errorf("%w: version is %d, must be 0 to %d", ErrSchema, from, len(s.Scripts))
	}
	return strings.Join(s.Scripts[from:], "\n"), nil
}

// version is the version of the tables, 0 if there are none, and the oldest version
// of the package that can work with them.
type version struct{ number, oldest int }

// Check returns ErrSchema unless the tables are those of this version. It needs no right to write.
func (d *DB) Check(ctx context.Context) error {
	return d.Reading(ctx, func(ctx context.Context) error { return d.settings.Schema.check(ctx, d.Read) })
}

func (s Schema) check(ctx context.Context, db *sql.DB) error {
	found, err := s.version(ctx, db.QueryRowContext)
	switch known := len(s.Scripts); {
	case err != nil:
		return err
	case found.oldest > known:
		return fmt.Errorf("%w: it has version %d, which needs version %d of the package, and this is version %d: "+
			"update the program", ErrSchema, found.number, found.oldest, known)
	case found.number < known:
		return fmt.Errorf("%w: it has version %d, must be %d (0: there are no tables): "+
			"execute the SQL of sqlitestore.Schema(%[2]d), or open the store once with the right to write",
			ErrSchema, found.number, known)
	}
	for _, probe := range s.Probes {
		statement, err := db.PrepareContext(ctx, probe)
		if err != nil {
			return s.foreign(err)
		}
		_ = statement.Close() //nolint:sqlclosecheck // in a loop
	}
	return nil
}

// foreign is an ErrSchema if err is about the text of a statement: a table or a column is missing.
func (s Schema) foreign(err error) error {
	if !HasCode(err, sqlite3.SQLITE_ERROR) {
		return err
	}
	return fmt.Errorf("%w: a table of that name is not this package's: "+
		"rename it and %s, and execute the SQL of sqlitestore.Schema(0): %w", ErrSchema, s.Versions, err)
}

// migrate makes the missing versions. Any number of processes may do so at the same
// time: one does it under the write lock, the others find it done. If nothing is
// missing the lock is not taken, so that Open does not wait for a long transaction.
func (d *DB) migrate(ctx context.Context, db *sql.DB) error {
	schema := d.settings.Schema
	return d.Retry(ctx, d.LockTimeout(), func() error {
		found, err := schema.version(ctx, db.QueryRowContext)
		if err != nil || found.number >= len(schema.Scripts) {
			return err
		}
		err = transact(ctx, db, schema.apply)
		if HasCode(err, sqlite3.SQLITE_READONLY) {
			return schema.check(ctx, db)
		}
		return err
	})
}

func (s Schema) version(ctx context.Context, query func(context.Context, string, ...any) *sql.Row) (v version, err error) {
	var tables int
	const hasVersions = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`
	if err := query(ctx, hasVersions, s.Versions).Scan(&tables); err != nil || tables == 0 {
		return v, err
	}
	readVersion := `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM ` + s.Versions
	err = query(ctx, readVersion).Scan(&v.number, &v.oldest)
	return v, s.foreign(err)
}

// apply reads the version again, because now it has the write lock.
func (s Schema) apply(ctx context.Context, tx *sql.Tx) error {
	found, err := s.version(ctx, tx.QueryRowContext)
	if err != nil {
		return err
	}
	for i := found.number; i < len(s.Scripts); i++ {
		if _, err := tx.ExecContext(ctx, s.Scripts[i]); err != nil {
			return fmt.Errorf("sqlitestore: make version %d of the schema: %w", i+1, s.foreign(err))
		}
	}
	return nil
}
