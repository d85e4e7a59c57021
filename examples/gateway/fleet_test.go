package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// timeout is the time limit of a call.
const timeout = 2 * time.Second

// fleet has the clients.
type fleet struct {
	server         *faulttest.Server
	shop, partner  *resilienthttp.Transport
	throughShop    *http.Client
	throughPartner *http.Client
	scraper, bulk  *http.Client
	connections    []*http.Transport
	counters       *counters
	number         atomic.Int64
	calls          sync.WaitGroup
}

func newFleet(server *faulttest.Server, t *counters) *fleet {
	f := &fleet{server: server, counters: t}
	f.shop = &resilienthttp.Transport{Base: f.base("shop-token", shopCaller)}
	f.partner = &resilienthttp.Transport{Base: f.base("partner-token", func(http.Header) caller { return partner })}
	f.throughShop, f.throughPartner = &http.Client{Transport: f.shop}, &http.Client{Transport: f.partner}
	f.scraper = &http.Client{Transport: f.base("scraper-token", func(http.Header) caller { return scraper })}
	f.bulk = &http.Client{Transport: f.base("bulk-token", func(http.Header) caller { return bulk })}
	return f
}

func (f *fleet) base(token string, callerOf func(http.Header) caller) http.RoundTripper {
	connections := f.server.Transport().Clone()
	f.connections = append(f.connections, connections)
	return &counted{Transport: connections, token: token, callerOf: callerOf, counters: f.counters}
}

func (f *fleet) close() {
	for _, c := range f.connections {
		c.CloseIdleConnections()
	}
}

// send makes calls until ctx ends: the rates are calls per second. The partner makes four at a
// time. send returns when all calls have ended.
func (f *fleet) send(ctx context.Context, shopRate, scraperRate, bulkRate float64) {
	for range 4 {
		f.calls.Go(func() {
			for ctx.Err() == nil {
				f.charge(ctx, f.throughPartner, partner)
			}
		})
	}
	f.calls.Go(func() {
		atRate(ctx, scraperRate, func() { f.calls.Go(func() { f.charge(ctx, f.scraper, scraper) }) })
	})
	f.calls.Go(func() {
		atRate(ctx, bulkRate, func() { f.calls.Go(func() { f.charge(ctx, f.bulk, bulk) }) })
	})
	n := 0
	atRate(ctx, shopRate, func() {
		c := shopCallerOf(n)
		n++
		f.calls.Go(func() { f.charge(ctx, f.throughShop, c) })
	})
	f.calls.Wait()
}

// atRate calls do at a rate per second, until ctx ends.
func atRate(ctx context.Context, rate float64, do func()) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	start, done := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for ; done < rate*time.Since(start).Seconds(); done++ {
				do()
			}
		}
	}
}

// shopCallerOf returns the priority of the shop's call with a number: of ten calls one is critical and three are batch.
func shopCallerOf(n int) caller {
	switch n %= 10; {
	case n < 1:
		return critical
	case n < 7:
		return standard
	}
	return batch
}

// charge makes one call. The end of ctx does not cancel it.
func (f *fleet) charge(ctx context.Context, client *http.Client, c caller) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	ctx = resilienthttp.WithPriority(ctx, c.priority())
	key := "invoice-" + strconv.FormatInt(f.number.Add(1), 10)
	req, err := http.NewRequestWithContext(resilienthttp.WithIdempotencyKey(ctx, key), http.MethodPost, f.server.URL, http.NoBody)
	if err != nil {
		f.counters.call(c, 0, err)
		return
	}
	if c == scraper || c == bulk { // their clients have no Transport
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("X-Request-Priority", "critical") // the edge ignores it
	}
	resp, err := client.Do(req)
	if err != nil {
		f.counters.call(c, 0, err)
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	f.counters.call(c, resp.StatusCode, errors.Join(err, resp.Body.Close()))
}

// counted is a RoundTripper that counts the responses per caller.
type counted struct {
	*http.Transport

	token    string
	callerOf func(http.Header) caller
	counters *counters
}

// Unwrap returns the http.Transport, so that the resilienthttp.Transport knows it.
func (c *counted) Unwrap() http.RoundTripper { return c.Transport }

// RoundTrip sends a request with the token.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.Transport.RoundTrip(r)
	if err == nil {
		c.counters.response(c.callerOf(r.Header), resp.StatusCode)
	}
	return resp, err
}

// shopCaller returns the caller of a request of the shop.
func shopCaller(h http.Header) caller {
	switch h.Get("X-Request-Priority") {
	case "critical":
		return critical
	case "batch":
		return batch
	}
	return standard
}
