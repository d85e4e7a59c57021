package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
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
	if err := r.order(ctx, at, out); err != nil {
		return nil, err
	}
	r.ordered = time.Since(began)
	if err := waitUntilOver(ctx, b.store()); err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	at.StopServices()
	at.bank.Drain() // what it was asked to do is done
	return r, r.audit.read(ctx, &s, b, at.ledger())
}

// order lets everything be ordered, while the plan happens.
func (r *result) order(ctx context.Context, at *site, out io.Writer) error {
	c := &client{&http.Client{Timeout: clientTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, "http://" + at.Front.Addr()}
	defer c.http.CloseIdleConnections()
	failed := make([]error, r.payments)
	storm := &chaos.Storm{At: &at.Site, Workers: clients, Items: r.payments}
	err := storm.Rage(ctx, out, func(ctx context.Context, i int) { failed[i] = c.order(ctx, r.scenario.order(i), givenUp(i)) })
	r.struck = storm.Struck
	return errors.Join(errors.Join(failed...), err)
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
