package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	clientTimeout = 2 * time.Second // of a request to the shop
	clients       = 16              // concurrent clients
	timeLimit     = 3 * time.Minute // of a client, and of the work after the orders
	pollInterval  = 20 * time.Millisecond
)

// run sends the orders during the faults, waits until all intents are done or dead, and audits the
// bank's ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (_ *result, err error) {
	at, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	b, err := openLedger(ctx, at.Database, at.OwnDSN())
	if err != nil {
		return nil, err
	}
	defer b.close()
	if s.page != "" {
		stop, err := showPages(ctx, s.page, b.store(), out)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	r := &result{scenario: s}
	start := time.Now()
	// After this time no send of a suspended process can reach the bank.
	decides := newPerson(b.store(), at.bankLedger(), 2*s.pause()+visibilityDelay+time.Second)
	if err := r.order(ctx, at, decides, out); err != nil {
		return nil, err
	}
	r.ordered = time.Since(start)
	if err := decides.end(ctx); err != nil {
		return nil, err
	}
	r.decided, r.stale = decides.decided, decides.stale
	r.took = time.Since(start)
	at.StopServices()
	at.bank.Drain() // requests in progress are executed
	return r, r.audit.read(ctx, &s, b, at.bankLedger())
}

// order sends the orders during the faults and the decisions of the person. The bank's outage starts
// after the first third of the orders. The last third waits for its end.
func (r *result) order(ctx context.Context, at *stack, decides *person, out io.Writer) error {
	c := &client{&http.Client{Timeout: clientTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, "http://" + at.Front.Addr()}
	defer c.http.CloseIdleConnections()
	failed := make([]error, r.payments)
	storm := &chaos.Storm{At: &at.Stack, Workers: clients, Items: r.payments}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { decides.work(working) })
	var outage error
	outageOver := make(chan struct{})
	err := storm.Run(ctx, out, func(ctx context.Context, i int) {
		switch {
		case i == r.payments/3:
			outage = at.outage(ctx, r.scenario.outage)
			close(outageOver)
		case i > 2*r.payments/3:
			<-outageOver
		}
		failed[i] = c.order(ctx, r.scenario.order(i), canceledOrder(i))
	})
	stop()
	work.Wait()
	r.struck = storm.Struck
	return errors.Join(errors.Join(failed...), err, outage)
}

// client is a client of the shop.
type client struct {
	http *http.Client
	url  string
}

// order repeats the request until the shop has taken the order or rolled it back. An order is taken
// once.
func (c *client) order(ctx context.Context, o bank.Order, cancelOrder bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	want, address := http.StatusCreated, c.url+"/orders"
	if cancelOrder {
		want, address = http.StatusGone, address+"?cancel=true"
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	for {
		got, err := c.post(ctx, address, body)
		if got == want {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		_ = sleep.Context(ctx, pollInterval+rand.N(2*pollInterval))
	}
}

func (c *client) post(ctx context.Context, address string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// outage makes the bank unreachable, and returns after its end.
func (at *stack) outage(ctx context.Context, d time.Duration) error {
	bank := &http.Client{Transport: &http.Transport{DialContext: process.Dial(at.bank.Socket)}}
	defer bank.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://bank/outage?for="+d.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := bank.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, errors.New("start outage of the bank: "+resp.Status))
	}
	return sleep.Context(ctx, d)
}

// waitForEngines waits until all intents are done or dead, at most for timeLimit. The audit counts the
// others.
func waitForEngines(ctx context.Context, store durable.Store) error {
	var stats durable.Stats
	var err error
	for start := time.Now(); time.Since(start) < timeLimit && ctx.Err() == nil; _ = sleep.Context(ctx, pollInterval) {
		if stats, err = store.Stats(ctx); err == nil && inProgress(stats) == 0 {
			return nil
		}
	}
	return errors.Join(err, ctx.Err())
}

// inProgress returns the number of intents that the engines still process.
func inProgress(stats durable.Stats) (n int) {
	for state, count := range stats.States {
		if state.Claimable() || state.Held() {
			n += count
		}
	}
	return n
}
