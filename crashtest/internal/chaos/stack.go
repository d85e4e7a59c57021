package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/tcpproxy"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Stack has the parts that faults affect, from the clients' connections to the disk:
//
//	clients → Front → Services → back → (bouncer →) Server
type Stack struct {
	Plan

	Lease    time.Duration // services are suspended for 1 to 2 times the lease
	Dir      string        // of the stack
	Log      io.Writer     // for the logs of the processes; nil: none
	Front    *tcpproxy.Proxy
	Services []*process.Process
	Server   *postgrestest.Server // nil: SQLite

	back          *tcpproxy.Proxy       // nil: SQLite
	bouncer       *postgrestest.Bouncer // nil: none
	serving       sync.Mutex            // protects server and bouncer
	supervise     func()                // ends watchBouncer; nil: not running
	nextWireFault atomic.Int64          // index of the next wire fault
	nextProxy     atomic.Int64          // index of the next service
	clockMoves    atomic.Int64
}

// Build starts the database. Close must be called, also after an error.
func (at *Stack) Build(ctx context.Context) (err error) {
	if at.Dir, err = os.MkdirTemp("", "pay"); err != nil || at.Database == SQLite {
		return err
	}
	if at.Server, err = postgrestest.Start(ctx); err != nil {
		return err
	}
	if err := at.makeClock(ctx); err != nil {
		return err
	}
	if slices.Contains(at.Faults, "pgbouncer") {
		if at.bouncer, err = postgrestest.StartBouncer(ctx, at.Server); err != nil {
			return err
		}
		at.watchBouncer(ctx)
	}
	at.back, err = tcpproxy.Listen(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at.databaseSocket())
	})
	return err
}

// DisableDurableCommits sets synchronous_commit off: the database responds before its log is on the
// disk, and loses the last commits in a crash. The store must ask for durable commits.
func (at *Stack) DisableDurableCommits(ctx context.Context) error {
	if at.Server == nil {
		return nil
	}
	return at.administrate(ctx, `ALTER DATABASE postgres SET synchronous_commit = off`)
}

// Serve starts the services behind one address. config is that of a service.
func (at *Stack) Serve(ctx context.Context, services int, command string, config any) (err error) {
	for i := range services {
		at.Services = append(at.Services, process.New(at.Path("service"+strconv.Itoa(i)), at.Log, command, config))
	}
	if at.Front, err = tcpproxy.Listen(ctx, at.dialService); err != nil {
		return err
	}
	return at.StartServices(ctx)
}

// StartServices starts the services again after StopServices.
func (at *Stack) StartServices(ctx context.Context) error {
	for _, p := range at.Services {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// StopServices kills all services.
func (at *Stack) StopServices() {
	for _, p := range at.Services {
		p.Stop()
	}
}

// Administrator connects directly to the server, and waits while it recovers.
func (at *Stack) Administrator(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, at.Server.DSN())
		if err == nil {
			return conn, nil
		}
		_ = sleep.Context(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
		}
	}
}

func (at *Stack) databaseSocket() string {
	if at.bouncer != nil {
		return at.bouncer.Socket()
	}
	return at.Server.Socket()
}

// OwnDSN is the data source name without proxies and PgBouncer.
func (at *Stack) OwnDSN() string {
	if at.Server != nil {
		return at.Server.DSN()
	}
	return at.file()
}

// ServiceDSN is the data source name for the services, with the proxy and PgBouncer.
func (at *Stack) ServiceDSN() string {
	if at.Server == nil {
		return at.file()
	}
	query := url.Values{"sslmode": {"disable"}, "connect_timeout": {"2"}, "pool_max_conns": {"16"}}
	if at.bouncer != nil {
		// The next transaction may have a connection without our prepared statements.
		query.Set("default_query_exec_mode", "exec")
	}
	dsn := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: at.back.Addr(), Path: "/postgres", RawQuery: query.Encode()}
	return dsn.String()
}

// Path returns the path of a file of the stack.
func (at *Stack) Path(name string) string { return filepath.Join(at.Dir, name) }

// file is the path of the SQLite database.
func (at *Stack) file() string { return at.Path("payments.db") }

// dialService connects to the next service that accepts the connection.
func (at *Stack) dialService(ctx context.Context) (conn net.Conn, err error) {
	for range at.Services {
		next := at.Services[int(at.nextProxy.Add(1))%len(at.Services)]
		if conn, err = process.Dial(next.Socket)(ctx, "", ""); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no service accepts connections: %w", err)
}

// Close stops all processes and deletes the files.
func (at *Stack) Close() error {
	at.StopServices()
	var errs []error
	for _, proxy := range []*tcpproxy.Proxy{at.Front, at.back} {
		if proxy != nil {
			errs = append(errs, proxy.Close())
		}
	}
	if at.supervise != nil {
		at.supervise()
	}
	if at.bouncer != nil {
		errs = append(errs, at.bouncer.Stop())
	}
	if at.Server != nil {
		errs = append(errs, at.Server.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(at.Dir))...)
}
