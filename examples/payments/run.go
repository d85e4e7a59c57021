package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// scenario is how much is charged, and how often the service dies over it.
type scenario struct {
	charges, kills, workers int
	database                string
	page                    string // the address of the state page; "": there is none
	seed                    uint64
}

// run lets the workers charge while the service dies, and audits the ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (*result, error) {
	dsn, remove, err := s.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	service, err := startService(ctx, s.database, dsn)
	if err != nil {
		return nil, err
	}
	defer service.kill()

	began := time.Now()
	r := &result{scenario: s, receipts: make([]charge, s.charges), failures: make([]error, s.charges)}
	r.client = newClient(service.url())
	defer r.client.http.CloseIdleConnections()
	if s.page != "" {
		stop, err := r.client.showPage(ctx, s.page, out)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	if err := s.chargeAll(ctx, out, service, r); err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	service.kill()
	ledger, err := openLedger(ctx, s.database, dsn)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	booked, err := ledger.all(ctx)
	if err != nil {
		return nil, err
	}
	r.audit(booked)
	err = r.countTakeovers(ctx, ledger.records())
	return r, err
}

// newDatabase is a SQLite file, or an empty PostgreSQL database.
func (s scenario) newDatabase(ctx context.Context) (dsn string, remove func(), err error) {
	if s.database == sqlite {
		dir, err := os.MkdirTemp("", "payments-")
		return filepath.Join(dir, "payments.db"), func() { _ = os.RemoveAll(dir) }, err
	}
	if dsn := os.Getenv(postgrestest.Variable); dsn != "" {
		return dsn, func() {}, nil
	}
	server, err := postgrestest.Start(ctx, "")
	if err != nil {
		return "", nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return server.DSN(), func() { _ = server.Stop() }, nil
}

// chargeAll lets the workers charge, and the service die meanwhile.
func (s scenario) chargeAll(ctx context.Context, out io.Writer, service *process, r *result) error {
	orders := make(chan int, s.charges)
	var answered atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait()
	defer close(orders)
	for range s.workers {
		workers.Go(func() {
			for i := range orders {
				r.receipts[i], r.failures[i] = r.client.charge(ctx, s.order(i))
				answered.Add(1)
			}
		})
	}
	if err := s.killAll(ctx, out, service, orders, &answered); err != nil {
		return err
	}
	return wait(ctx, &answered, s.charges)
}

// killAll hands out the orders in as many parts as there are kills, and one. The
// service dies at a random moment after a part was handed out, and most of what
// went before it answered: in the middle of the work.
func (s scenario) killAll(ctx context.Context, out io.Writer, service *process, orders chan<- int, answered *atomic.Int64) error {
	random := rand.New(rand.NewPCG(s.seed, 1))
	before := 0
	for part := 1; part <= s.kills+1; part++ {
		share := s.charges * part / (s.kills + 1)
		for i := before; i < share; i++ {
			orders <- i
		}
		if part > s.kills {
			break
		}
		if err := wait(ctx, answered, before-s.workers); err != nil {
			return err
		}
		before = share
		time.Sleep(time.Duration(random.Int64N(int64(longestLife))))
		if err := service.restart(ctx); err != nil {
			return err
		}
		if part%10 == 0 {
			fmt.Fprintf(out, "%2d of %d kills, %4d of %d charges answered\n", part, s.kills, answered.Load(), s.charges)
		}
	}
	return nil
}

// wait is until so many charges have been answered.
func wait(ctx context.Context, answered *atomic.Int64, n int) error {
	for answered.Load() < int64(n) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// longestLife is that of the service, from when it answers again.
const longestLife = 100 * time.Millisecond

func (s scenario) order(i int) order {
	return order{Reference: fmt.Sprintf("comp1:invoice:%06d", i), Amount: int64(100 + i)}
}

// healthy waits until the service answers.
func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ticker := time.NewTicker(5 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return fmt.Errorf("the service does not come up: %w", ctx.Err())
		}
	}
}
