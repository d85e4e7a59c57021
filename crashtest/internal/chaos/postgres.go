package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// restartPostmaster stops or kills the whole PostgreSQL server, and restarts it.
func restartPostmaster(ctx context.Context, at *Stack, random *rand.Rand) error {
	return at.restart(ctx, random, func() error { return stopServer(ctx, at.Server, random.IntN(3) == 0) }, at.Server.Restart)
}

// restart ends a process and starts it again after a moment. No other fault is about it meanwhile.
func (at *Stack) restart(ctx context.Context, random *rand.Rand, end func() error, start func(context.Context) error) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := end(); err != nil {
		return err
	}
	_ = sleep.Context(ctx, upTo(random, 100*time.Millisecond))
	return start(ctx)
}

// stopServer shuts the server down, or kills it. A shutdown waits for connections, which may be
// halted, so it has a time limit.
func stopServer(ctx context.Context, server *postgrestest.Server, orderly bool) error {
	if orderly {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) == nil {
			return nil
		}
	}
	if err := server.Crash(); !errors.Is(err, os.ErrNotExist) { // it may have exited meanwhile
		return err
	}
	return nil
}

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

// movableClock is a clock that moveClock can set. PostgreSQL finds a function of its own after it if the search path names
// pg_catalog behind the schema.
const movableClock = `CREATE SCHEMA clock;
	CREATE TABLE clock.moved (by interval NOT NULL);
	CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT pg_catalog.clock_timestamp() + coalesce((SELECT sum(by) FROM clock.moved), '0') $$;
	ALTER DATABASE postgres SET search_path = public, clock, pg_catalog`

// makeClock makes the clock of the database movable, if a fault moves it.
func (at *Stack) makeClock(ctx context.Context) error {
	if !slices.Contains(at.Faults, Clock) {
		return nil
	}
	return at.administrate(ctx, movableClock)
}

// administrate executes statements without arguments.
func (at *Stack) administrate(ctx context.Context, text string, args ...any) error {
	conn, err := at.Administrator(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, text, args...)
	return errors.Join(err, conn.Close(ctx))
}

// moveClock sets the clock forward and back in turn, by ten to twenty minutes.
func moveClock(ctx context.Context, at *Stack, random *rand.Rand) error {
	by := 10*time.Minute + upTo(random, 10*time.Minute)
	if at.clockMoves.Add(1)%2 == 0 {
		by = -by
	}
	err := at.administrate(ctx, `INSERT INTO clock.moved VALUES ($1)`, by)
	_ = sleep.Context(ctx, 3*maxPause) // some intents are sent with each clock
	return err
}

// restartBouncer kills PgBouncer, which is between the services and PostgreSQL.
func restartBouncer(ctx context.Context, at *Stack, random *rand.Rand) error {
	return at.restart(ctx, random, at.bouncer.Crash, at.bouncer.Restart)
}

// watchBouncer restarts PgBouncer if it has exited, as a supervisor does.
func (at *Stack) watchBouncer(ctx context.Context) {
	at.supervise = Repeat(ctx, 50*time.Millisecond, func(ctx context.Context) {
		at.serving.Lock()
		defer at.serving.Unlock()
		if !at.bouncer.Runs() {
			_ = at.bouncer.Restart(ctx) // retried in the next round
		}
	})
}
