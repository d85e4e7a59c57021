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
//
//nolint:gochecknoglobals // One server is enough for a process.
var shared = sync.OnceValues(func() (*Server, error) {
	return Start(context.Background(), "")
})

// Open gives the DSN, for pgx, of an empty schema of the test's own, which is all of
// the search path: on a server that this process starts once, or on that of
// RESILIENTHTTP_POSTGRES_DSN where this is set. (A schema is made in a millisecond, a
// database in a hundred.) It is dropped when the test ends. Where there is no
// PostgreSQL, the test is skipped. The connections' application_name is the schema's,
// so that a test can tell its own from others.
//
// The caller imports github.com/jackc/pgx/v5/stdlib.
func Open(tb testing.TB) string {
	tb.Helper()
	dsn := os.Getenv(Variable)
	if dsn == "" {
		server, err := shared()
		if errors.Is(err, ErrNotInstalled) {
			tb.Skip(err)
		}
		if err != nil {
			tb.Fatalf("starting a PostgreSQL server: %v", err)
		}
		dsn = server.DSN()
	}
	schema := "test_" + strings.ToLower(rand.Text()[:16])
	execute(tb, dsn, "CREATE SCHEMA "+schema)
	tb.Cleanup(func() { execute(tb, dsn, "DROP SCHEMA "+schema+" CASCADE") })
	return withParameter(tb, withParameter(tb, dsn, "search_path", schema), "application_name", schema)
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
	// Not the test's context, which is over when it cleans up.
	_, err = db.ExecContext(context.Background(), statement)
	if err := errors.Join(err, db.Close()); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// withParameter sets a parameter of the DSN's connections.
func withParameter(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " " + name + "=" + value
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatalf("%s: %v", Variable, err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}
