// Package sqlitekit is the common part of the SQLite stores of package idempotency and package durable. It opens the
// database file with separate connections for reading, writing and sweeping, migrates the tables, and waits for
// SQLite's write lock. It does not depend on what a store keeps.
//
// Both packages are named sqlitestore, and error texts begin with that name.
package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// DB is a store's connections to a database. Open and New make one. It is safe for concurrent use. Any number of them,
// in any number of processes of one machine, may share a file.
type DB struct {
	writerQueue

	settings Settings
	closed   atomic.Bool

	// File is the database file.
	File File

	// Work is the pool of the application's transactions. If Owned is true, Close
	// closes it. BusyTimeout is that of its connections, in milliseconds.
	Work        *sql.DB
	Owned       bool
	BusyTimeout int64

	// Read, Write and Sweeper are the store's own pools, independent of the size and the settings of Work. Read does
	// not wait for writers. Write has one connection, which flushes each commit (synchronous=FULL). Sweeper has one
	// connection, which does not flush and leaves checkpoints to Sweep.
	Read, Write, Sweeper *sql.DB

	readers chan struct{} // one slot for each connection of Read
	logged  atomic.Int64  // records swept since the last checkpoint, approximately
}

// ErrClosed means that the store is closed.
var ErrClosed = errors.New("sqlitestore: closed")

// Reading calls query, which reads from Read without a lock. It waits for a free connection until ctx ends.
//
// A statement that has begun does not receive ctx. It takes microseconds, SQLite
// can be interrupted only between its steps, and watching ctx costs a goroutine.
func (d *DB) Reading(ctx context.Context, query func(context.Context) error) error {
	if err := d.Usable(ctx); err != nil {
		return err
	}
	select {
	case d.readers <- struct{}{}:
		defer func() { <-d.readers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.Retry(ctx, d.LockTimeout(), func() error { return query(context.WithoutCancel(ctx)) })
}

// Exclusive calls write when w is first in the queue, and again while another process has the write lock. ctx ends the
// wait. A statement that has begun is not interrupted, so that its result is known.
func (d *DB) Exclusive(ctx context.Context, w *Waiter, timeout time.Duration, write func(context.Context) error) error {
	if err := d.Usable(ctx); err != nil {
		return err
	}
	if err := d.Enter(ctx, w, timeout); err != nil {
		return err
	}
	if w.taken {
		return w.err
	}
	defer d.Leave(w)
	if err := d.File.Check(); err != nil {
		return err
	}
	try := func() error { return d.Retry(ctx, timeout, func() error { return write(context.WithoutCancel(ctx)) }) }
	err := try()
	if HasCode(err, sqlite3.SQLITE_FULL) { // it wrote nothing, and only a commit that succeeds shortens the log
		d.checkpoint(ctx, "TRUNCATE")
		err = try()
	}
	return err
}

// transact begins an immediate transaction, because of the connection's _txlock.
func transact(ctx context.Context, db *sql.DB, work work) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Usable returns ErrClosed, the error of ctx, or nil.
func (d *DB) Usable(ctx context.Context) error {
	if d.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Close closes the store's connections, and Work if it is owned. An open transaction of Work may still be committed;
// everything else fails with ErrClosed. A second call does nothing.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.closePools()
}

func (d *DB) closePools() error {
	var errs []error
	pools := []*sql.DB{d.Read, d.Write, d.Sweeper}
	if d.Owned {
		pools = append(pools, d.Work)
	}
	for _, db := range pools {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sqlitestore: close: %w", err)
	}
	return nil
}

// Statement is a statement that is ready to run: a *sql.Stmt, or a text (see In).
type Statement interface {
	// QueryContext runs a statement that returns rows.
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)

	// ExecContext runs a statement that returns no rows.
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
}

// In returns a statement of a transaction or a pool. It is not prepared: a prepared
// statement would end with the transaction, and some statements run rarely.
func In(db runner, text string) Statement { return unprepared{db, text} }

// runner is a *sql.Tx or a *sql.DB.
type runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

type unprepared struct {
	db   runner
	text string
}

func (u unprepared) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return u.db.QueryContext(ctx, u.text, args...)
}

func (u unprepared) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return u.db.ExecContext(ctx, u.text, args...)
}

// ReadRows calls scan for each row of the statement and returns the number of rows.
// It runs the statement to its end. Only then SQLite commits a statement with
// RETURNING, and begins a checkpoint that is due. sql.Row stops after one row.
func ReadRows(ctx context.Context, s Statement, args []any, scan func(*sql.Rows) error) (n int, err error) {
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for ; rows.Next(); n++ {
		if err := scan(rows); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// Affected returns the number of rows that a statement has changed.
func Affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
