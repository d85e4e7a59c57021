package sqlitekit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// inspect reports whether a store can use the application's database. busyTimeout is in milliseconds.
func inspect(ctx context.Context, db *sql.DB) (path string, busyTimeout int64, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	if err := OnConn(conn, func(c Conn) error {
		readOnly, err := c.IsReadOnly("main")
		if err == nil && readOnly {
			err = errors.New("the database is read-only")
		}
		return err
	}); err != nil {
		return "", 0, err
	}
	var journal string
	var queryOnly bool
	err = errors.Join(
		read(ctx, conn, `SELECT file FROM pragma_database_list WHERE name = 'main'`, &path),
		read(ctx, conn, "PRAGMA busy_timeout", &busyTimeout),
		read(ctx, conn, "PRAGMA journal_mode", &journal),
		read(ctx, conn, "PRAGMA query_only", &queryOnly))
	switch {
	case err != nil:
		return "", 0, err
	case path == "":
		return "", 0, errors.New("the database is in memory, want a file")
	case journal != "wal":
		return "", 0, fmt.Errorf("the journal mode is %s, must be WAL (open the database with _pragma=journal_mode(WAL))", journal)
	case queryOnly:
		return "", 0, errors.New("the database is opened with query_only, must be writable")
	}
	return path, busyTimeout, CheckSynchronous(ctx, conn)
}

func read(ctx context.Context, conn *sql.Conn, query string, to any) error {
	return conn.QueryRowContext(ctx, query).Scan(to)
}

// Conn is a connection of the driver.
type Conn interface {
	sqlite.FileControl
	sqlite.HookRegisterer

	// IsReadOnly reports whether a database of the connection cannot be written.
	IsReadOnly(schema string) (bool, error)
}

// OnConn calls do with the driver's own connection, without the wrappers of instrumentation. It returns an error for
// another driver: two SQLite libraries in one process drop each other's locks on a file, which damages the database.
func OnConn(conn *sql.Conn, do func(Conn) error) error {
	return conn.Raw(func(c any) error {
		for {
			if wrapper, ok := c.(interface{ Raw() driver.Conn }); ok {
				c = wrapper.Raw()
				continue
			}
			own, ok := c.(Conn)
			if !ok {
				return fmt.Errorf("the driver's connection is a %T, want that of modernc.org/sqlite", c)
			}
			return do(own)
		}
	})
}

// CheckSynchronous returns an error if a commit may return before it is on disk.
func CheckSynchronous(ctx context.Context, conn *sql.Conn) error {
	const full = 2
	var synchronous int
	if err := read(ctx, conn, "PRAGMA synchronous", &synchronous); err != nil {
		return err
	}
	if synchronous < full {
		return fmt.Errorf("synchronous is %d, must be FULL (2) or EXTRA (3) "+
			"(open the database with _pragma=synchronous(FULL))", synchronous)
	}
	return nil
}
