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

// readOnlyFault makes the database read-only for a while, as after a failover: it
// can be read, and each write fails. It calls Site.WhileReadOnly.
//
// In PostgreSQL it sets default_transaction_read_only for the server. In SQLite a
// connection of another process takes the write lock: unlike permissions of files
// that holds for root too, and unlike PRAGMA query_only for all processes.
type readOnlyFault struct{}

func (readOnlyFault) Name() string      { return "readonly" }
func (readOnlyFault) Befalls() []string { return []string{SQLite, Postgres} }

func (readOnlyFault) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
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

func (at *Site) readOnly(ctx context.Context, random *rand.Rand) {
	began := time.Now()
	if at.WhileReadOnly != nil {
		at.WhileReadOnly(ctx)
	}
	_ = sleep.Context(ctx, 200*time.Millisecond+upTo(random, 300*time.Millisecond)-time.Since(began))
}

// setReadOnly returns when new transactions follow the setting.
func (at *Site) setReadOnly(ctx context.Context, on bool) error {
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
