package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// DB is a store's part of a database. Open and New make one. It is safe for concurrent
// use; any number of them, in any number of processes of one machine, may share a file.
type DB struct {
	settings Settings
	closed   atomic.Bool

	// File is the database's.
	File File

	// Work is where the transactions of the work come from. Owned: Close closes it.
	// BusyTimeout is that of its connections, in milliseconds.
	Work        *sql.DB
	Owned       bool
	BusyTimeout int64

	// What follows is the store's own, so that neither a small pool nor the settings
	// of the work stand in its way. Read never waits for a writer; Write is one
	// connection, which flushes each commit (synchronous=FULL); Sweeper is one that
	// does not, and leaves checkpoints to Sweep.
	Read, Write, Sweeper *sql.DB

	readers chan struct{} // a place for each connection of Read
	turn    turn
	logged  atomic.Int64 // what was swept and not brought into the file, about
}

// ErrClosed means that the store is closed.
var ErrClosed = errors.New("sqlitestore: closed")

// Reading calls query, which reads from Read, without a lock. Readers are as many as
// there are connections; the others wait for one.
//
// Once it has a connection, a statement is not given the context: it takes
// microseconds, and SQLite can be interrupted only between its steps, so that all
// the context would do is cost a goroutine.
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
	return d.Retry(ctx, d.Patience(), func() error { return query(context.WithoutCancel(ctx)) })
}

// Alone calls write when it is the ticket's turn, and again as long as SQLite's
// write lock is with somebody else. The waiting ends with ctx; a statement that
// has begun is brought to its end, so that its answer is never in doubt for the
// sake of an impatient caller.
func (d *DB) Alone(ctx context.Context, k *Ticket, patience time.Duration, write func(context.Context) error) error {
	if err := d.Usable(ctx); err != nil {
		return err
	}
	if err := d.Enter(ctx, k, patience); err != nil {
		return err
	}
	if k.taken {
		return k.err
	}
	defer d.turn.leave(k)
	return d.writing(ctx, patience, write)
}

// writing is Alone for who has the turn.
func (d *DB) writing(ctx context.Context, patience time.Duration, write func(context.Context) error) error {
	if err := d.File.Check(); err != nil {
		return err
	}
	return d.Retry(ctx, patience, func() error { return write(context.WithoutCancel(ctx)) })
}

// transact begins an immediate transaction, by the connection's _txlock.
func transact(ctx context.Context, db *sql.DB, work work) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Usable is ErrClosed, the context's error, or nil.
func (d *DB) Usable(ctx context.Context) error {
	if d.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Close ends the store's connections, and the work's if they are owned. A transaction
// of the work that is open may still be committed; all else fails with ErrClosed.
// Calling it again does nothing.
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
		return fmt.Errorf("sqlitestore: closing: %w", err)
	}
	return nil
}
