package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// ErrSchema means that the database's tables were made by a newer version of the
// store's package, and this one cannot work with them. Nothing was changed.
var ErrSchema = errors.New("sqlitestore: the schema does not fit")

// Schema is a store's tables: how each version of them is made from the one before.
//
// The table named Versions has a row for each version that was made, with the columns
// version and oldest: the oldest version of the package, by the version that it knows
// itself, that may work with the tables. A script that has been released is never
// changed: another is added, which leaves what older versions read and write as it is,
// and says in its row which of them may go on.
type Schema struct {
	Versions string
	Scripts  []string // the first makes version 1
}

// ReadSchema reads the scripts from the files that match, in the order of their names.
func ReadSchema(versions string, files fs.FS, match string) Schema {
	names, _ := fs.Glob(files, match) // fails for a bad pattern only
	s := Schema{Versions: versions, Scripts: make([]string, len(names))}
	for i, name := range names {
		script, _ := fs.ReadFile(files, name) // embedded
		s.Scripts[i] = string(script)
	}
	return s
}

// From is the SQL that makes all versions after from. The error is an ErrSchema.
func (s Schema) From(from int) (string, error) {
	if from < 0 || from > len(s.Scripts) {
		return "", fmt.Errorf("%w: there is no version %d, but %d of them", ErrSchema, from, len(s.Scripts))
	}
	return strings.Join(s.Scripts[from:], "\n"), nil
}

// version is that of the tables, and the oldest of the package that may work with
// them. 0: there are none.
type version struct{ number, oldest int }

// good reports whether there is nothing to be done for a package that knows as
// many versions. The error is an ErrSchema.
func (v version) good(known int) (bool, error) {
	if v.oldest > known {
		return false, fmt.Errorf("%w: version %d is for %d and later, and the last that is known here is %d",
			ErrSchema, v.number, v.oldest, known)
	}
	return v.number >= known, nil
}

// Check reports whether the tables are those of this version. It writes nothing.
func (d *DB) Check(ctx context.Context) error {
	return d.Reading(ctx, func(ctx context.Context) error {
		found, err := d.settings.Schema.version(ctx, d.Read)
		if err != nil {
			return err
		}
		done, err := found.good(len(d.settings.Schema.Scripts))
		if err == nil && !done {
			err = fmt.Errorf("%w: it has version %d, want %d: open the store once with the right to write", ErrSchema, found.number, len(d.settings.Schema.Scripts))
		}
		return err
	})
}

// migrate brings the tables up to date. Any number of processes may do so at the
// same time: who comes first does it under the write lock, the others find it
// done. Where nothing is to be done the lock is not taken, so that opening a
// store does not wait for somebody's long transaction.
func (d *DB) migrate(ctx context.Context, db *sql.DB) error {
	schema := d.settings.Schema
	var done bool
	err := d.Retry(ctx, d.Patience(), func() error {
		found, err := schema.version(ctx, db)
		if err == nil {
			done, err = found.good(len(schema.Scripts))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: reading the schema's version: %w", err)
	}
	if done {
		return nil
	}
	return d.Retry(ctx, d.Patience(), func() error { return schema.apply(ctx, db) })
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s Schema) version(ctx context.Context, db querier) (v version, err error) {
	var tables int
	const hasVersions = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`
	if err := db.QueryRowContext(ctx, hasVersions, s.Versions).Scan(&tables); err != nil || tables == 0 {
		return v, err
	}
	readVersion := `SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM ` + s.Versions
	err = db.QueryRowContext(ctx, readVersion).Scan(&v.number, &v.oldest)
	return v, err
}

// apply does all in one transaction, which is an immediate one, by the connection's
// _txlock: it reads the version only when it has the write lock.
func (s Schema) apply(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing

	found, err := s.version(ctx, tx)
	if err != nil {
		return err
	}
	if done, err := found.good(len(s.Scripts)); done || err != nil {
		return err
	}
	for i := found.number; i < len(s.Scripts); i++ {
		if _, err := tx.ExecContext(ctx, s.Scripts[i]); err != nil {
			return fmt.Errorf("sqlitestore: making version %d of the schema: %w", i+1, err)
		}
	}
	return tx.Commit()
}
