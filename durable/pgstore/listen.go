package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// channelPrefix is followed by the number of the intents' table (its OID), so that stores
	// in two schemas do not wake each other.
	channelPrefix = `'durable_' || `

	// notifyInserted is added to what an INSERT returns. It notifies at the commit of the
	// caller's transaction if the intent is due.
	notifyInserted = ` || CASE WHEN next_at <= created THEN pg_notify(` + channelPrefix + `tableoid, '')::text ELSE '' END`

	// notifyUpdated does the same for an UPDATE, of an intent that is due again.
	notifyUpdated = ` RETURNING CASE WHEN t.state IN (0, 1, 4) AND t.next_at <= t.updated THEN pg_notify(` + channelPrefix + `t.tableoid, '') END`

	// notify is its own transaction. It does not wait for the disk, because PostgreSQL lets
	// only one transaction that notifies commit at a time.
	notify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(` + channelPrefix + `$1::text::regclass::oid, '')`

	// whereToListen returns the number of the server's process, and the channel.
	whereToListen = `SELECT pg_backend_pid(), ` + channelPrefix + `$1::text::regclass::oid`
)

const (
	// wakeInterval is the minimum time between two notifications that a Store sends after its
	// own commits, and between two calls of a listener's wake.
	wakeInterval = 10 * time.Millisecond

	// checkInterval is the time without a notification after which a listener checks its
	// connection, and checkTimeout limits that, as it limits connecting.
	checkInterval = 30 * time.Second
	checkTimeout  = 10 * time.Second
)

var errPooled = fmt.Errorf("pgstore: listen: the connection leads to a pooler, want PostgreSQL: %w", errors.ErrUnsupported)

// Listen implements durable.Listener. It has a connection beside the pool, with the same
// configuration. An errors.ErrUnsupported means that a pooler such as PgBouncer is between
// the store and PostgreSQL: it would give the connection, and the notifications, to others.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := s.subscribe(ctx, conn); err != nil {
		return err
	}
	for {
		wake()
		if err := sleep.Context(ctx, wakeInterval); err != nil {
			return err
		}
		if err := awaitNotification(ctx, conn); err != nil {
			return err
		}
	}
}

// connect makes a connection like those of the pool.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	pool, err := s.beside(ctx)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Hijack(), nil
}

func (s *Store) subscribe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var (
		process uint32
		channel string
	)
	if err := conn.QueryRow(ctx, whereToListen, s.table()).Scan(&process, &channel); err != nil {
		return err
	}
	if process != conn.PgConn().PID() {
		return errPooled
	}
	_, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize())
	return err
}

// awaitNotification waits for a notification and takes others that have come with it.
func awaitNotification(ctx context.Context, conn *pgx.Conn) error {
	for {
		limited, cancel := context.WithTimeout(ctx, checkInterval)
		_, err := conn.WaitForNotification(limited)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		err = conn.Ping(checking)
		cancel()
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	for {
		if _, err := conn.WaitForNotification(limited); err != nil {
			if limited.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
}

// beside returns a pool of one connection, configured like the store's.
func (s *Store) beside(ctx context.Context) (*pgxpool.Pool, error) {
	config := s.db.pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	return pgxpool.NewWithConfig(ctx, config)
}

// notifier limits the notifications of a Store: to one in the background, and to inTransactions
// in transactions of the caller, per wakeInterval. Commits beyond that are followed by one in
// the background at the interval's end.
type notifier struct {
	mu             sync.Mutex
	running, again bool
	inTransactions int
}

// inTransactions is the maximum of transactions that notify in a wakeInterval.
const inTransactions = 5

// begin begins an interval, and reports whether none was running. If one was and follow is set,
// a notification follows.
func (n *notifier) begin(follow bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	begun := !n.running
	n.running, n.again = true, n.again || !begun && follow
	return begun
}

// mayNotify reports whether a transaction of the caller may notify.
func (n *notifier) mayNotify() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inTransactions++
	return n.inTransactions <= inTransactions
}

// next ends an interval, and reports whether a notification must follow.
func (n *notifier) next() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running, n.again, n.inTransactions = n.again, false, 0
	return n.running
}

// notify notifies the listeners of all processes in the background.
func (s *Store) notify(ctx context.Context) {
	if s.notifier.begin(true) {
		go s.notifyAgain(context.WithoutCancel(ctx), true)
	}
}

// mayNotify reports whether a transaction of the caller may notify. Few do, because
// PostgreSQL lets only one transaction that notifies commit at a time.
func (s *Store) mayNotify(ctx context.Context) bool {
	notifies := s.notifier.mayNotify()
	if s.notifier.begin(!notifies) {
		go s.notifyAgain(context.WithoutCancel(ctx), false)
	}
	return notifies
}

// table is the name of the intents' table.
func (s *Store) table() string { return strings.TrimSpace(s.db.is.of(intents)) }

func (s *Store) notifyAgain(ctx context.Context, now bool) {
	for ; ; now = true {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		if now { // if it fails, the other processes find the commit when they poll
			_ = s.db.send(limited, &pgkit.Statement{Text: notify, Args: []any{s.table()}})
		}
		_ = sleep.Context(limited, wakeInterval)
		cancel()
		if !s.notifier.next() {
			return
		}
	}
}

// makesDue reports whether an event of a caller has made an intent due.
func makesDue(events []durable.Event, results []durable.Result) bool {
	for i := range results {
		r := &results[i]
		if events[i].Kind != durable.EventFinish && r.Err == nil && r.Step != durable.StepKeep &&
			r.Record.State.Claimable() && !r.Record.NextAt.After(r.Record.UpdatedAt) {
			return true
		}
	}
	return false
}
