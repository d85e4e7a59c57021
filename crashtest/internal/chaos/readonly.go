package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// makeReadOnly makes the database read-only for a short time, as after a failover. It calls
// Stack.WhileReadOnly.
//
// In PostgreSQL it sets default_transaction_read_only for the server. In SQLite a connection of
// another process takes the write lock. Permissions of files would not apply to root, and PRAGMA
// query_only not to other processes.
func makeReadOnly(ctx context.Context, at *Stack, random *rand.Rand) error {
	if at.BeforeReadOnly != nil {
		at.BeforeReadOnly(ctx)
	}
	at.serving.Lock() // no other fault restarts the server
	defer at.serving.Unlock()
	if at.Server != nil {
		if err := at.setReadOnly(ctx, true); err != nil {
			return err
		}
		at.readOnly(ctx, random)
		return at.setReadOnly(context.WithoutCancel(ctx), false)
	}
	db, err := sql.Open("sqlite", sqlitekit.DataSource(at.file(), "rw", "busy_timeout(60000)"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("take SQLite's write lock: %w", err)
	}
	at.readOnly(ctx, random)
	if err := tx.Rollback(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (at *Stack) readOnly(ctx context.Context, random *rand.Rand) {
	start := time.Now()
	if at.WhileReadOnly != nil {
		at.WhileReadOnly(ctx)
	}
	_ = sleep.Context(ctx, 200*time.Millisecond+upTo(random, 300*time.Millisecond)-time.Since(start))
}

// setReadOnly returns when new transactions follow the setting.
func (at *Stack) setReadOnly(ctx context.Context, on bool) error {
	value := map[bool]string{true: "on", false: "off"}[on]
	conn, err := at.Administrator(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range []string{
		"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeExec); err != nil {
			return err
		}
	}
	for range 1000 {
		var is string
		if err := conn.QueryRow(ctx, "SHOW default_transaction_read_only").Scan(&is); err != nil {
			return err
		}
		if is == value {
			return sleep.Context(ctx, 50*time.Millisecond) // the other sessions have the signal too
		}
		_ = sleep.Context(ctx, 5*time.Millisecond)
	}
	return errors.New("PostgreSQL does not follow default_transaction_read_only")
}
