package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// longestQueue is how long a verb on a lease waits for a connection of the pool,
	// which the work may have to the last.
	longestQueue = 100 * time.Millisecond

	// leasePart is how much of a lease, at most, its renewal waits likewise.
	leasePart = 20
)

// lane is a way to the database that does not queue behind the work: the pool's, if
// it has a connection soon, and else one connection more, which is closed when
// nobody waits for it. Leases are renewed there, for a pool that is used up is
// when executions take long.
type lane struct {
	// pool takes a connection of the pool, which release gives back.
	pool func(ctx context.Context) (c connection, release func(), err error)

	// connect opens one like those of the pool. nil: it is not known how.
	connect func(ctx context.Context) (*pgx.Conn, error)

	// socket: the server is on this host.
	socket bool

	turn    chan *pgx.Conn // whose turn it is: there is one, nil if it is not open
	waiting atomic.Int32
}

func newLane() *lane {
	l := &lane{turn: make(chan *pgx.Conn, 1)}
	l.turn <- nil
	return l
}

// do calls f with a connection, having waited for the pool's no longer than queue.
func (l *lane) do(ctx context.Context, queue time.Duration, f func(connection) error) error {
	soon := ctx
	if l.connect != nil {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, queue)
		defer cancel()
	}
	c, release, err := l.pool(soon)
	switch {
	case err == nil:
		defer release()
		return f(c)
	case l.connect != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return l.overtake(ctx, f)
	default:
		return err
	}
}

// overtake calls f with the connection beside the pool.
func (l *lane) overtake(ctx context.Context, f func(connection) error) (err error) {
	l.waiting.Add(1)
	var conn *pgx.Conn
	select {
	case conn = <-l.turn:
	case <-ctx.Done():
		l.waiting.Add(-1)
		return ctx.Err()
	}
	defer func() {
		if l.waiting.Add(-1) == 0 && conn != nil {
			ctx, cancel := lastWords(ctx)
			_ = conn.Close(ctx) // What was done is done.
			cancel()
			conn = nil
		}
		l.turn <- conn
	}()
	if conn == nil || conn.IsClosed() {
		if conn, err = l.connect(ctx); err != nil {
			return err
		}
	}
	return f(onPgx(conn))
}

// soon is safely, past the queue for the pool's connections.
func (v *verbs) soon(ctx context.Context, queue time.Duration, f func(*verbs) error) error {
	if v.lane == nil {
		return v.safely(ctx, f)
	}
	return v.lane.do(ctx, queue, func(c connection) error { return v.on(c).safely(ctx, f) })
}

func pgxLane(pool *pgxpool.Pool) *lane {
	l := newLane()
	l.pool = func(ctx context.Context) (connection, func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return onPgx(conn), conn.Release, nil
	}
	l.connect = func(ctx context.Context) (*pgx.Conn, error) { return connectAs(ctx, pool.Config()) }
	l.socket = socket(pool.Config().ConnConfig)
	return l
}

func socket(config *pgx.ConnConfig) bool {
	network, _ := pgconn.NetworkAddress(config.Host, config.Port)
	return network == "unix"
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

// sqlLane asks a connection how it was opened. A driver around pgx's does not say.
func sqlLane(ctx context.Context, db *sql.DB) (*lane, error) {
	l := newLane()
	l.pool = func(ctx context.Context) (connection, func(), error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		return onSQL(conn), func() { _ = conn.Close() }, nil // What was done is done.
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	err = conn.Raw(func(driver any) error {
		if c, ok := driver.(*stdlib.Conn); ok {
			config := c.Conn().Config()
			l.socket = socket(config)
			l.connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config.Copy()) }
		}
		return nil
	})
	return l, errors.Join(err, conn.Close())
}
