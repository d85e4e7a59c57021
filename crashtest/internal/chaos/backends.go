package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// endBackends ends PostgreSQL's processes of single connections.
func endBackends(ctx context.Context, at *Stack, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	end := terminate
	if random.IntN(2) == 0 {
		end = killOne
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := at.Administrator(ctx)
		if err != nil {
			return err
		}
		err = end(ctx, conn)
		_ = conn.Close(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		_ = sleep.Context(ctx, 10*time.Millisecond) // the server is still ending connections of the previous strike
	}
}

// others selects all connections except this one.
const others = `FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`

// terminate ends up to five connections with pg_terminate_backend.
func terminate(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (SELECT pid `+others+` ORDER BY random() LIMIT 5) AS victims`)
	return err
}

// killOne sends SIGKILL to one process. PostgreSQL then ends all connections and recovers from its
// log, because the shared memory may be corrupt.
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
