package main

import (
	"context"
	"errors"
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
	return r, nil
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

// chargeAll hands out the orders in as many parts as there are kills, and one. In
// each part the service dies at a random moment, in the middle of the work.
func (s scenario) chargeAll(ctx context.Context, out io.Writer, service *process, r *result) error {
	orders := make(chan int, s.charges)
	var done atomic.Int64
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			for i := range orders {
				r.receipts[i], r.failures[i] = r.client.charge(ctx, s.order(i))
				done.Add(1)
			}
		})
	}
	random := rand.New(rand.NewPCG(s.seed, 1)) //nolint:gosec // moments, not secrets
	progress := func(kills int) {
		fmt.Fprintf(out, "%2d of %d kills, %4d of %d charges answered\n", kills, s.kills, done.Load(), s.charges)
	}
	handedOut := 0
	var failed error
	for part := range s.kills + 1 {
		for ; handedOut < s.charges*(part+1)/(s.kills+1); handedOut++ {
			orders <- handedOut
		}
		if part == s.kills || failed != nil {
			continue
		}
		time.Sleep(time.Duration(random.Int64N(int64(longestLife)))) //nolint:forbidigo // the moment of death
		if failed = service.restart(ctx); failed == nil && (part+1)%10 == 0 {
			progress(part + 1)
		}
	}
	close(orders)
	workers.Wait()
	progress(s.kills)
	return errors.Join(failed, ctx.Err())
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
