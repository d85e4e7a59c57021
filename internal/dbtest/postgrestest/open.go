package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
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

// database is where the tests of a process make their schemas.
type database struct {
	server *Server // kept, because its cleanup process stops it when it is collected; nil if Variable names one
	dsn    string
	admin  *sql.DB // of all tests, because the server starts a process for each connection
}

// shared starts the one server of this process, unless Variable names one. It is never stopped explicitly: its
// cleanup process stops it when this process exits.
//
//nolint:gochecknoglobals // One server is enough for a process.
var shared = sync.OnceValues(func() (*database, error) {
	db := &database{dsn: os.Getenv(Variable)}
	var err error
	if db.dsn == "" {
		if db.server, err = Start(context.Background()); err != nil {
			return nil, err
		}
		db.dsn = db.server.DSN()
	}
	db.admin, err = sql.Open(driver, db.dsn)
	return db, err
})

// Open returns a DSN for pgx with a new, empty schema as search path. All tests of a process share one server, or the
// database of RESILIENTHTTP_POSTGRES_DSN if it is set. The schema is dropped when the test ends. Its name is also the
// application_name of the connections. Without PostgreSQL on this machine the test is skipped. The caller must import
// github.com/jackc/pgx/v5/stdlib.
func Open(tb testing.TB) string {
	tb.Helper()
	db := procguard.Started(tb, shared, ErrNotInstalled)
	// A schema, not a database: it is made in 1 ms instead of 100 ms.
	schema := "test_" + strings.ToLower(rand.Text()[:16])
	db.execute(tb, "CREATE SCHEMA "+schema)
	tb.Cleanup(func() { db.execute(tb, "DROP SCHEMA "+schema+" CASCADE") })
	return withSchema(tb, db.dsn, schema)
}

// StartTB starts a server for one test, which may crash it, and stops it when the test
// ends. Without PostgreSQL on this machine the test is skipped.
func StartTB(tb testing.TB) *Server {
	tb.Helper()
	return procguard.StartTB(tb, func() (*Server, error) { return Start(tb.Context()) }, ErrNotInstalled)
}

func (d *database) execute(tb testing.TB, statement string) {
	tb.Helper()
	// The test's context has ended when its cleanups run.
	if _, err := d.admin.ExecContext(context.Background(), statement); err != nil {
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
