package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Heartbeat implements driver.Store. If the pool has no connection within a ninth of the lease,
// it makes one: a worker that waits for a connection is not dead.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration) (now time.Time, err error) {
	if err := driver.ValidateHeartbeat(worker, lease); err != nil {
		return time.Time{}, err
	}
	statement := &pgkit.Statement{Text: s.db.is.of(heartbeat), Args: []any{worker, ceil(lease)}, Scan: timeInto(&now)}
	if lease == 0 { // without it, the lease only ends later
		err = s.db.send(ctx, statement)
		return now, err
	}
	conn, release, err := s.soon(ctx, lease/9)
	if err != nil {
		return time.Time{}, err
	}
	defer release()
	err = pgkit.Retry(ctx, func() error { return conn.Send(ctx, statement) })
	return now, err
}

// soon returns a connection of the pool, or one of its own if the pool has none in that time.
func (s *Store) soon(ctx context.Context, maxWait time.Duration) (conn pgkit.Sender, release func(), err error) {
	limited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	pooled, err := s.db.pool.Acquire(limited)
	if err == nil {
		return pgkit.PGX(pooled.Conn()), pooled.Release, nil
	}
	if limited.Err() == nil || ctx.Err() != nil {
		return nil, nil, err
	}
	beside, err := s.beside(ctx)
	if err != nil {
		return nil, nil, err
	}
	return pgkit.PGX(beside), beside.Close, nil
}

// ceil returns a duration in microseconds, rounded up: no lease is shorter than requested.
func ceil(d time.Duration) int64 {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond).Microseconds()
}
