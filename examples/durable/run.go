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
	clientTimeout = 2 * time.Second // that a client gives the shop for an answer
	clients       = 16              // that order at the same time
	patience      = 3 * time.Minute // of a client; and of ours for the rest, when all is ordered
	glance        = 20 * time.Millisecond
)

// run lets clients order while everything breaks, waits until nothing is left to be done,
// and audits the bank's ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (_ *result, err error) {
	at, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	b, err := openBooks(ctx, at.Database, at.OwnDSN())
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
	began := time.Now()
	// A stopped process sends at most so long after it was stopped, and the bank takes its time.
	decides := newPerson(b.store(), at.ledger(), 2*s.pause()+settles+time.Second)
	if err := r.order(ctx, at, decides, out); err != nil {
		return nil, err
	}
	r.ordered = time.Since(began)
	if err := decides.end(ctx); err != nil {
		return nil, err
	}
	r.decided, r.stale = decides.decided, decides.stale
	r.took = time.Since(began)
	at.StopServices()
	at.bank.Drain() // what it was asked to do is done
	return r, r.audit.read(ctx, &s, b, at.ledger())
}

// order lets everything be ordered, while the plan happens and a person decides. The last
// third is ordered after the bank's outage, which begins with the second.
func (r *result) order(ctx context.Context, at *site, decides *person, out io.Writer) error {
	c := &client{&http.Client{Timeout: clientTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, "http://" + at.Front.Addr()}
	defer c.http.CloseIdleConnections()
	failed := make([]error, r.payments)
	storm := &chaos.Storm{At: &at.Site, Workers: clients, Items: r.payments}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { decides.work(working) })
	var outage error
	over := make(chan struct{})
	err := storm.Rage(ctx, out, func(ctx context.Context, i int) {
		switch {
		case i == r.payments/3:
			outage = at.outage(ctx, r.scenario.outage)
			close(over)
		case i > 2*r.payments/3:
			<-over
		}
		failed[i] = c.order(ctx, r.scenario.order(i), givenUp(i))
	})
	stop()
	work.Wait()
	r.struck = storm.Struck
	return errors.Join(errors.Join(failed...), err, outage)
}

// client orders.
type client struct {
	http *http.Client
	url  string
}

// order asks until the shop has taken the order, or rolled it back. What was taken is
// not taken again.
func (c *client) order(ctx context.Context, o bank.Order, giveUp bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	want, address := http.StatusCreated, c.url+"/orders"
	if giveUp {
		want, address = http.StatusGone, address+"?give=up"
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
		_ = sleep.Context(ctx, glance+rand.N(2*glance))
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

// outage makes the bank unreachable, and returns when it is over.
func (at *site) outage(ctx context.Context, d time.Duration) error {
	bank := &http.Client{Transport: &http.Transport{DialContext: process.Over(at.bank.Socket)}}
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
		return errors.Join(err, errors.New("the bank has no outage: "+resp.Status))
	}
	return sleep.Context(ctx, d)
}

// waitUntilOver waits until everything is done or dead, or for as long as patience lasts:
// the audit tells what is left then.
func waitUntilOver(ctx context.Context, store durable.Store) error {
	var stats durable.Stats
	var err error
	for began := time.Now(); time.Since(began) < patience && ctx.Err() == nil; _ = sleep.Context(ctx, glance) {
		if stats, err = store.Stats(ctx); err == nil && underWay(stats) == 0 {
			return nil
		}
	}
	return errors.Join(err, ctx.Err())
}

// underWay is how many intents the engines have not ended with.
func underWay(stats durable.Stats) (n int) {
	for state, count := range stats.States {
		if state.Claimable() || state.Held() {
			n += count
		}
	}
	return n
}
