package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// Variable names the environment variable with the DSN of a database for tests: a
// URL, or words such as "host=… user=…". Its user must be allowed to create
// schemas.
const Variable = "RESILIENTHTTP_POSTGRES_DSN"

// driver is the name that pgx/v5/stdlib registers itself by with database/sql.
// Whoever calls Open imports that; this module does without a driver.
const driver = "pgx"

// shared is the server of this process. Nobody stops it: its guard does, when the
// process is gone.
var shared = sync.OnceValues(func() (*Server, error) {
	return Start(context.Background(), "")
})

// Open gives the DSN, for pgx, of an empty database of the test's own: on a server
// that this process starts once, or, where RESILIENTHTTP_POSTGRES_DSN is set, a
// schema of the database that this names. It is dropped when the test ends. Where
// there is no PostgreSQL, the test is skipped.
//
// The caller imports github.com/jackc/pgx/v5/stdlib.
func Open(tb testing.TB) string {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	if dsn := os.Getenv(Variable); dsn != "" {
		execute(tb, dsn, "CREATE SCHEMA "+name)
		tb.Cleanup(func() { execute(tb, dsn, "DROP SCHEMA "+name+" CASCADE") })
		return withSearchPath(tb, dsn, name)
	}
	server, err := shared()
	if errors.Is(err, ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("starting a PostgreSQL server: %v", err)
	}
	execute(tb, server.DSN(), "CREATE DATABASE "+name)
	tb.Cleanup(func() { execute(tb, server.DSN(), "DROP DATABASE "+name+" WITH (FORCE)") })
	return strings.Replace(server.DSN(), "/postgres?", "/"+name+"?", 1)
}

// StartTB starts a server for the test alone, which may crash it. Where there is
// no PostgreSQL, the test is skipped.
func StartTB(tb testing.TB) *Server {
	tb.Helper()
	server, err := Start(tb.Context(), "")
	if errors.Is(err, ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("starting a PostgreSQL server: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

func execute(tb testing.TB, dsn, statement string) {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	// Not the test's context, which is over when it cleans up.
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// withSearchPath makes the schema that of the connections of the DSN.
func withSearchPath(tb testing.TB, dsn, schema string) string {
	tb.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " search_path=" + schema
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatalf("%s: %v", Variable, err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}
