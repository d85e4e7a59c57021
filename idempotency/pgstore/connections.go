package pgstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// maxClaimWait is the longest time that a claim waits for a connection.
	maxClaimWait = time.Second

	// maxLeaseWait is the longest time that a write of a lease waits for a connection of
	// the pool, and leaseWaitPart the part of the lease that its renewal waits.
	maxLeaseWait  = 100 * time.Millisecond
	leaseWaitPart = 20
)

// connection is a connection of the pool. The caller must call release.
type connection struct {
	*pgx.Conn

	release func()
	sql     sqlConn // database/sql's own connection; nil for a pgxpool.Pool
	claims  bool    // for a claim, which does not wait long for locks
}

// closeIfBroken closes the connection, instead of returning it to the pool, if err says that its prepared statements are gone:
// transactional work may have sent DEALLOCATE ALL. pgx does not know that, so each of the statements would fail once more.
func (c *connection) closeIfBroken(ctx context.Context, err error) {
	const noSuchStatement = "26000"
	if !pgkit.HasCode(err, noSuchStatement) {
		return
	}
	ctx, cancel := endContext(ctx)
	defer cancel()
	_ = c.Close(ctx) // The first error is what matters.
}

// connections takes connections from the caller's pool.
type connections struct {
	// acquire waits for a connection as long as ctx allows.
	acquire func(ctx context.Context) (*connection, error)

	// connect opens a connection beside the pool, with the pool's configuration.
	connect func(ctx context.Context) (*pgx.Conn, error)

	reserved reservedConn

	claimWait time.Duration // maxClaimWait, except in a test
}

func pgxConnections(pool *pgxpool.Pool) *connections {
	return &connections{
		acquire: func(ctx context.Context) (*connection, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return &connection{Conn: conn.Conn(), release: conn.Release}, nil
		},
		connect:   func(ctx context.Context) (*pgx.Conn, error) { return connectAs(ctx, pool.Config()) },
		reserved:  newReservedConn(),
		claimWait: maxClaimWait,
	}
}

// connectAs opens a connection as the pool does.
func connectAs(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// sqlConn is what database/sql's work in a transaction needs of its driver.
type sqlConn interface {
	sqldriver.Conn
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
}

func sqlConnections(db *sql.DB) *connections {
	c := &connections{reserved: newReservedConn(), claimWait: maxClaimWait}
	var config atomic.Pointer[pgx.ConnConfig]
	c.acquire = func(ctx context.Context) (*connection, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		found := &connection{release: func() { _ = conn.Close() }} // The operation has its result already.
		err = conn.Raw(func(outer any) error {
			found.Conn, found.sql, err = pgxConn(outer)
			return err
		})
		if err != nil {
			found.release()
			return nil, err
		}
		if config.Load() == nil {
			config.Store(found.Config())
		}
		return found, nil
	}
	c.connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config.Load().Copy()) }
	return c
}

// pgxConn finds the connection of pgx behind database/sql's. A driver that wraps pgx's
// must have a method Raw, as otelsql has.
func pgxConn(outer any) (*pgx.Conn, sqlConn, error) {
	conn, ok := outer.(sqlConn)
	inner := outer
	for ok {
		switch c := inner.(type) {
		case *stdlib.Conn:
			return c.Conn(), conn, nil
		case interface{ Raw() sqldriver.Conn }:
			inner = c.Raw()
		default:
			ok = false
		}
	}
	return nil, nil, fmt.Errorf("%w: pgstore: NewSQL: the driver's connection is a %T (want that of pgx/v5/stdlib, or a wrapper with "+
		"the method Raw() driver.Conn)", idempotency.ErrInvalid, outer)
}

// forClaim waits for a connection for at most claimWait, or a tenth of the time until
// the deadline if that is less.
func (c *connections) forClaim(ctx context.Context) (*connection, error) {
	wait := c.claimWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/10)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := c.acquire(waiting)
	if err != nil && sleep.HasEnded(waiting) && !sleep.HasEnded(ctx) {
		return nil, fmt.Errorf("%w: pgstore: the pool had no connection within %v: all are in use, or the server does not answer", idempotency.ErrStoreBusy, wait)
	}
	if err == nil {
		conn.claims = true
	}
	return conn, err
}

// forLease waits for a connection of the pool for at most wait. After that it waits for
// the reserved connection, which it opens if need be.
func (c *connections) forLease(ctx context.Context, wait time.Duration) (*connection, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := c.acquire(waiting)
	if err != nil && sleep.HasEnded(waiting) && !sleep.HasEnded(ctx) {
		return c.reserved.acquire(ctx, c.connect)
	}
	return conn, err
}

// reservedConn is one connection beside the pool, for the writes of leases while work
// uses the whole pool. It is open only while it is needed.
type reservedConn struct {
	slot    chan *pgx.Conn // holds the connection, nil if it is not open; empty while it is used
	waiting *atomic.Int32
}

func newReservedConn() reservedConn {
	r := reservedConn{slot: make(chan *pgx.Conn, 1), waiting: new(atomic.Int32)}
	r.slot <- nil
	return r
}

func (r *reservedConn) acquire(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (*connection, error) {
	r.waiting.Add(1)
	var conn *pgx.Conn
	select {
	case conn = <-r.slot:
	case <-ctx.Done():
		r.waiting.Add(-1)
		return nil, ctx.Err()
	}
	release := func() {
		if r.waiting.Add(-1) == 0 && conn != nil {
			ctx, cancel := endContext(ctx)
			_ = conn.Close(ctx) // The operation has its result already.
			cancel()
			conn = nil
		}
		r.slot <- conn
	}
	if conn == nil || conn.IsClosed() {
		var err error
		if conn, err = connect(ctx); err != nil {
			release()
			return nil, err
		}
	}
	return &connection{Conn: conn, release: release}, nil
}

// endContext is the context for ending a transaction or a connection. A context that has
// ended gets one more second.
func endContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}
