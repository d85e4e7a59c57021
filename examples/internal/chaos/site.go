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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/tcpproxy"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Site is what a plan befalls, from the clients' wire to the disk:
//
//	clients → Front → Services → back → (bouncer →) Server
type Site struct {
	Plan

	Lease    time.Duration // services are stopped and cut off for longer, up to twice as long
	Dir      string        // the site's own
	Log      io.Writer     // of the processes; nil: nobody reads it
	Front    *tcpproxy.Proxy
	Services []*process.Process
	Server   *postgrestest.Server // nil: SQLite

	// BeforeReadOnly is called before the database is made read-only, WhileReadOnly
	// while it is. nil: nothing is called.
	BeforeReadOnly, WhileReadOnly func(context.Context)

	back      *tcpproxy.Proxy       // nil: SQLite
	bouncer   *postgrestest.Bouncer // nil: none
	serving   sync.Mutex            // for what is done to server and bouncer
	supervise func()                // ends the watch over the bouncer; nil: there is none
	nextHarm  atomic.Int64          // of the wires
	nextProxy atomic.Int64          // the services take turns
}

// Build starts the database. Close ends what there is of the site, also after an error.
func (at *Site) Build(ctx context.Context) (err error) {
	if at.Dir, err = os.MkdirTemp("", "pay"); err != nil || at.Database == SQLite {
		return err
	}
	if at.Server, err = postgrestest.Start(ctx, ""); err != nil {
		return err
	}
	if at.has(bouncerFault{}) {
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

// Forget makes the database one that answers before its log is on the disk, and
// forgets what was committed last when it crashes. The store must ask for better.
func (at *Site) Forget(ctx context.Context) error {
	if at.Server == nil {
		return nil
	}
	conn, err := at.Administrator(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `ALTER DATABASE postgres SET synchronous_commit = off`)
	return errors.Join(err, conn.Close(ctx))
}

// Serve starts so many services, behind one address. args are those of a service.
func (at *Site) Serve(ctx context.Context, services int, command string, args ...string) (err error) {
	for i := range services {
		at.Services = append(at.Services, process.New(at.Path("service"+strconv.Itoa(i)), at.Log, command, args...))
	}
	if at.Front, err = tcpproxy.Listen(ctx, at.dialService); err != nil {
		return err
	}
	return at.StartServices(ctx)
}

// StartServices starts those that Serve has made, and StopServices has ended.
func (at *Site) StartServices(ctx context.Context) error {
	for _, p := range at.Services {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// StopServices kills them.
func (at *Site) StopServices() {
	for _, p := range at.Services {
		p.Stop()
	}
}

// Administrator is a connection past the wires. The server may be recovering.
func (at *Site) Administrator(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, at.Server.DSN())
		if err == nil {
			return conn, nil
		}
		_ = sleep.Context(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
		}
	}
}

func (at *Site) databaseSocket() string {
	if at.bouncer != nil {
		return at.bouncer.Socket()
	}
	return at.Server.Socket()
}

// OwnDSN leads to the database past wires and bouncer.
func (at *Site) OwnDSN() string {
	if at.Server != nil {
		return at.Server.DSN()
	}
	return at.file()
}

// ServiceDSN leads the services to the database: to PostgreSQL over the wire.
func (at *Site) ServiceDSN() string {
	if at.Server == nil {
		return at.file()
	}
	query := url.Values{"sslmode": {"disable"}, "connect_timeout": {"2"}, "pool_max_conns": {"16"}}
	if at.bouncer != nil {
		// The next transaction may have a connection that knows no statement of ours.
		query.Set("default_query_exec_mode", "exec")
	}
	dsn := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: at.back.Addr(), Path: "/postgres", RawQuery: query.Encode()}
	return dsn.String()
}

// Path is that of a file of the site's.
func (at *Site) Path(name string) string { return filepath.Join(at.Dir, name) }

// file is SQLite's.
func (at *Site) file() string { return at.Path("payments.db") }

// dialService takes the next service that takes the connection: it may have been
// stopped.
func (at *Site) dialService(ctx context.Context) (conn net.Conn, err error) {
	for range at.Services {
		next := at.Services[int(at.nextProxy.Add(1))%len(at.Services)]
		if conn, err = process.Over(next.Socket)(ctx, "", ""); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no service is there: %w", err)
}

// Close ends everything.
func (at *Site) Close() error {
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
