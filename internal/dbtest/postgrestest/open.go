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

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
)

// Variable is the name of the environment variable with the DSN of a database for tests: a URL, or key=value pairs such
// as "host=… user=…". The DSN's user must be allowed to create schemas.
const Variable = "RESILIENTHTTP_POSTGRES_DSN"

// driver is the name under which pgx/v5/stdlib registers itself with database/sql. The
// caller of Open imports that package; this module requires no driver.
const driver = "pgx"

// shared starts the one server of this process. It is never stopped explicitly: its
// cleanup process stops it when this process exits.
//
//nolint:gochecknoglobals // One server is enough for a process.
var shared = sync.OnceValues(func() (*Server, error) {
	return Start(context.Background())
})

// Open returns a DSN for pgx with a new, empty schema as search path. All tests of a process share one server, or the
// database of RESILIENTHTTP_POSTGRES_DSN if it is set. The schema is dropped when the test ends. Its name is also the
// application_name of the connections. Without PostgreSQL on this machine the test is skipped. The caller must import
// github.com/jackc/pgx/v5/stdlib.
func Open(tb testing.TB) string {
	tb.Helper()
	dsn := os.Getenv(Variable)
	if dsn == "" {
		dsn = procguard.Started(tb, shared, ErrNotInstalled).DSN()
	}
	// A schema, not a database: it is made in 1 ms instead of 100 ms.
	schema := "test_" + strings.ToLower(rand.Text()[:16])
	execute(tb, dsn, "CREATE SCHEMA "+schema)
	tb.Cleanup(func() { execute(tb, dsn, "DROP SCHEMA "+schema+" CASCADE") })
	return withSchema(tb, dsn, schema)
}

// StartTB starts a server for one test, which may crash it, and stops it when the test
// ends. Without PostgreSQL on this machine the test is skipped.
func StartTB(tb testing.TB) *Server {
	tb.Helper()
	return procguard.StartTB(tb, func() (*Server, error) { return Start(tb.Context()) }, ErrNotInstalled)
}

func execute(tb testing.TB, dsn, statement string) {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	// The test's context has ended when its cleanups run.
	_, err = db.ExecContext(context.Background(), statement)
	if err := errors.Join(err, db.Close()); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func withSchema(tb testing.TB, dsn, schema string) string {
	tb.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " search_path=" + schema + " application_name=" + schema
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatalf("%s: %v", Variable, err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	query.Set("application_name", schema)
	u.RawQuery = query.Encode()
	return u.String()
}
