package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// backendsFault ends single processes of PostgreSQL, those of the services'
// connections.
type backendsFault struct{}

func (backendsFault) Name() string      { return "backends" }
func (backendsFault) Befalls() []string { return []string{Postgres} }

func (backendsFault) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	how := terminate
	if random.IntN(2) == 0 {
		how = killOne
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := at.Administrator(ctx)
		if err != nil {
			return err
		}
		err = how(ctx, conn)
		_ = conn.Close(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		_ = sleep.Context(ctx, 10*time.Millisecond) // The server was still ending connections since the last time.
	}
}

// others are all connections but the administrator's, in no order.
const others = `FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`

// terminate lets PostgreSQL end up to five connections.
func terminate(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (SELECT pid `+others+` ORDER BY random() LIMIT 5) AS victims`)
	return err
}

// killOne is kill -9. PostgreSQL does not trust what the process has left in the
// shared memory: it ends all connections, and recovers from its log.
func killOne(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT pid `+others+` ORDER BY random() LIMIT 1`)
	if err != nil {
		return err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(pids) == 0 {
		return err
	}
	backend, err := os.FindProcess(pids[0])
	if err != nil {
		return err
	}
	return backend.Kill()
}
