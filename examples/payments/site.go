package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/tcpproxy"
)

// site is all that a scenario needs, from the clients' wire to the disk:
//
//	clients → front → services → back → (bouncer →) server
//	                  services → bank
type site struct {
	scenario
	dir      string
	front    *tcpproxy.Proxy // the services' one address
	services []*process
	bank     *process              // nil: joined
	back     *tcpproxy.Proxy       // nil: SQLite
	server   *postgrestest.Server  // nil: SQLite
	bouncer  *postgrestest.Bouncer // nil: none

	serving   sync.Mutex   // for what is done to server and bouncer
	nextHarm  atomic.Int64 // of the wires
	nextProxy atomic.Int64 // the services take turns
}

// build starts everything.
func (s scenario) build(ctx context.Context) (_ *site, err error) {
	at := &site{scenario: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.close())
		}
	}()
	if at.dir, err = os.MkdirTemp("", "pay"); err != nil {
		return nil, err
	}
	if s.database == postgres {
		if err := at.buildPostgres(ctx); err != nil {
			return nil, err
		}
	}
	// The tables are made once, and past the wires.
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	ledger.close()
	if at.server != nil {
		if err := at.forget(ctx); err != nil {
			return nil, err
		}
	}
	if s.mode == detached {
		at.bank = newProcess(at.path("bank"), s.log, bankCommand, "-ledger", at.bankLedger(),
			"-busy", "0.05", "-lose", "0.05", "-late", "0.05", "-slow", "0.03")
		if err := at.bank.start(ctx); err != nil {
			return nil, err
		}
	}
	for i := range s.processes {
		at.services = append(at.services, at.newService(i))
	}
	if at.front, err = tcpproxy.Listen(ctx, at.dialService); err != nil {
		return nil, err
	}
	if err := at.startServices(ctx); err != nil {
		return nil, err
	}
	return at, nil
}

func (at *site) buildPostgres(ctx context.Context) (err error) {
	if at.server, err = postgrestest.Start(ctx, ""); err != nil {
		return err
	}
	if at.has(bouncerFault{}) {
		if at.bouncer, err = postgrestest.StartBouncer(ctx, at.server); err != nil {
			return err
		}
	}
	at.back, err = tcpproxy.Listen(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at.databaseSocket())
	})
	return err
}

// forget makes the database one that answers before its log is on the disk, and
// forgets what was committed last when it crashes. The store must ask for better.
func (at *site) forget(ctx context.Context) error {
	conn, err := at.administrator(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `ALTER DATABASE postgres SET synchronous_commit = off`)
	return errors.Join(err, conn.Close(ctx))
}

func (at *site) databaseSocket() string {
	if at.bouncer != nil {
		return at.bouncer.Socket()
	}
	return at.server.Socket()
}

func (at *site) newService(i int) *process {
	args := []string{"-db", at.database, "-dsn", at.serviceDSN(), "-lose", "0.05", "-late", "0.05"}
	if at.bank != nil {
		args = append(args, "-bank", at.bank.socket)
	}
	return newProcess(at.path("service"+strconv.Itoa(i)), at.log, serveCommand, args...)
}

// serviceDSN leads the services to the database: to PostgreSQL over the wire.
func (at *site) serviceDSN() string {
	if at.database == sqlite {
		return at.path("payments.db")
	}
	query := url.Values{"sslmode": {"disable"}, "connect_timeout": {"2"}, "pool_max_conns": {"16"}}
	if at.bouncer != nil {
		// The next transaction may have a connection that knows no statement of ours.
		query.Set("default_query_exec_mode", "exec")
	}
	dsn := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: at.back.Addr(), Path: "/postgres", RawQuery: query.Encode()}
	return dsn.String()
}

// ledger opens the database past wires and bouncer.
func (at *site) ledger(ctx context.Context) (ledger, error) {
	dsn := at.path("payments.db")
	if at.server != nil {
		dsn = at.server.DSN()
	}
	return openLedger(ctx, at.database, dsn)
}

// booked is everything that has been booked, as the ledger's own file or table has
// it.
func (at *site) booked(ctx context.Context) ([]charge, error) {
	if at.bank != nil {
		return bookings(at.bankLedger())
	}
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	return ledger.all(ctx)
}

func (at *site) bankLedger() string      { return at.path("bank.jsonl") }
func (at *site) path(name string) string { return filepath.Join(at.dir, name) }

// dialService takes the next service that takes the connection: it may have been
// stopped.
func (at *site) dialService(ctx context.Context) (conn net.Conn, err error) {
	for range at.services {
		next := at.services[int(at.nextProxy.Add(1))%len(at.services)]
		if conn, err = over(next.socket)(ctx, "", ""); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no service is there: %w", err)
}

func (at *site) startServices(ctx context.Context) error {
	for _, p := range at.services {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// quiesce ends the services, and lets the bank do what it was asked to do. After it
// no execution can be at anything any more.
func (at *site) quiesce(ctx context.Context) error {
	for _, p := range at.services {
		p.stop()
	}
	if at.bank == nil {
		return nil
	}
	at.bank.drain()
	return at.bank.start(ctx)
}

// close ends everything.
func (at *site) close() error {
	var errs []error
	for _, p := range at.services {
		p.stop()
	}
	if at.bank != nil {
		at.bank.stop()
	}
	for _, proxy := range []*tcpproxy.Proxy{at.front, at.back} {
		if proxy != nil {
			errs = append(errs, proxy.Close())
		}
	}
	if at.bouncer != nil {
		errs = append(errs, at.bouncer.Stop())
	}
	if at.server != nil {
		errs = append(errs, at.server.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(at.dir))...)
}
