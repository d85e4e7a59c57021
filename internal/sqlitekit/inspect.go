package sqlitekit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// inspection is what New wants to know of a database that it is given.
type inspection struct {
	path        string
	busyTimeout int64 // milliseconds
}

// inspect looks whether a database of the work's can be a store's.
func inspect(ctx context.Context, db *sql.DB) (*inspection, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	defer func() { _ = conn.Close() }() // gives it back
	if err := checkDriver(conn); err != nil {
		return nil, err
	}
	var found inspection
	const mainFile = `SELECT file FROM pragma_database_list WHERE name = 'main'`
	if err := conn.QueryRowContext(ctx, mainFile).Scan(&found.path); err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	if found.path == "" {
		return nil, errors.New("sqlitestore: the database is in memory: what is stored must outlive the process")
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&found.busyTimeout); err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	return &found, checkPragmas(ctx, conn)
}

// checkDriver demands this package's own driver. Two libraries of SQLite in one
// process undo each other's locks on a file, and the database is damaged.
func checkDriver(conn *sql.Conn) error {
	err := conn.Raw(func(c any) error {
		of, ok := DriverConn(c).(interface {
			sqlite.FileControl
			sqlite.HookRegisterer
			IsReadOnly(schema string) (bool, error)
		})
		if !ok {
			return fmt.Errorf("the database's driver is not that of modernc.org/sqlite, but has a %T", c)
		}
		readOnly, err := of.IsReadOnly("main")
		if err == nil && readOnly {
			err = errors.New("the database is read-only")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	return nil
}

// DriverConn is the driver's own connection, in what instruments it.
func DriverConn(c any) any {
	for {
		of, ok := c.(interface{ Raw() driver.Conn })
		if !ok {
			return c
		}
		c = of.Raw()
	}
}

func checkPragmas(ctx context.Context, conn *sql.Conn) error {
	var journal string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	if journal != "wal" {
		return fmt.Errorf("sqlitestore: the journal mode is %s, and must be WAL: "+
			"open the database with _pragma=journal_mode(WAL)", journal)
	}
	var queryOnly bool
	if err := conn.QueryRowContext(ctx, "PRAGMA query_only").Scan(&queryOnly); err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	if queryOnly {
		return errors.New("sqlitestore: the database is opened with query_only, and work must be able to write")
	}
	return CheckSynchronous(ctx, conn)
}

// CheckSynchronous says if a commit that has returned might not be on the disk.
func CheckSynchronous(ctx context.Context, conn *sql.Conn) error {
	const full = 2
	var synchronous int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	if synchronous < full {
		return fmt.Errorf("sqlitestore: synchronous is %d, and must be FULL (2) or EXTRA (3): "+
			"open the database with _pragma=synchronous(FULL)", synchronous)
	}
	return nil
}
