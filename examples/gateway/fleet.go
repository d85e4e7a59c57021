package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// patience is the deadline of a call.
const patience = 2 * time.Second

// fleet is the clients.
type fleet struct {
	url            string
	shop, partner  *resilienthttp.Transport
	throughShop    *http.Client
	throughPartner *http.Client
	scraper, bulk  *http.Client
	connections    []*http.Transport
	tally          *tally
	number         atomic.Int64
	calls          sync.WaitGroup
}

func newFleet(url string, t *tally) *fleet {
	f := &fleet{url: url, tally: t}
	f.shop = &resilienthttp.Transport{Base: f.base("shop-token", shopCaller)}
	f.partner = &resilienthttp.Transport{Base: f.base("partner-token", func(http.Header) caller { return partner })}
	f.throughShop, f.throughPartner = &http.Client{Transport: f.shop}, &http.Client{Transport: f.partner}
	f.scraper = &http.Client{Transport: f.base("scraper-token", func(http.Header) caller { return scraper })}
	f.bulk = &http.Client{Transport: f.base("bulk-token", func(http.Header) caller { return bulk })}
	return f
}

func (f *fleet) base(token string, whose func(http.Header) caller) http.RoundTripper {
	connections := resilienthttp.NewBase()
	f.connections = append(f.connections, connections)
	return &counted{Transport: connections, token: token, whose: whose, tally: f.tally}
}

func (f *fleet) close() {
	for _, c := range f.connections {
		c.CloseIdleConnections()
	}
}

// ask sends calls until ctx ends: the rates are calls per second. The partner makes four at a
// time. It returns when all calls have ended.
func (f *fleet) ask(ctx context.Context, shopRate, scraperRate, bulkRate float64) {
	for range 4 {
		f.calls.Go(func() {
			for ctx.Err() == nil {
				f.charge(ctx, f.throughPartner, partner)
			}
		})
	}
	f.calls.Go(func() {
		at(ctx, scraperRate, func() { f.calls.Go(func() { f.charge(ctx, f.scraper, scraper) }) })
	})
	f.calls.Go(func() {
		at(ctx, bulkRate, func() { f.calls.Go(func() { f.charge(ctx, f.bulk, bulk) }) })
	})
	at(ctx, shopRate, func() {
		who := draw()
		f.calls.Go(func() { f.charge(ctx, f.throughShop, who) })
	})
	f.calls.Wait()
}

// at calls do at a rate per second.
func at(ctx context.Context, rate float64, do func()) {
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	begun, done := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			for ; done < rate*time.Since(begun).Seconds(); done++ {
				do()
			}
		}
	}
}

// draw returns the priority of the shop's next call.
func draw() caller {
	switch n := rand.IntN(10); {
	case n < 1:
		return critical
	case n < 7:
		return standard
	}
	return batch
}

// charge makes one call. The end of ctx does not cancel it.
func (f *fleet) charge(ctx context.Context, client *http.Client, who caller) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	ctx = resilienthttp.WithPriority(ctx, who.priority())
	key := "invoice-" + strconv.FormatInt(f.number.Add(1), 10)
	req, err := http.NewRequestWithContext(resilienthttp.WithIdempotencyKey(ctx, key), http.MethodPost, f.url, http.NoBody)
	if err != nil {
		f.tally.called(who, 0, err)
		return
	}
	if who == scraper || who == bulk { // their clients have no Transport
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("X-Request-Priority", "critical") // the edge ignores it
	}
	resp, err := client.Do(req)
	if err != nil {
		f.tally.called(who, 0, err)
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	f.tally.called(who, resp.StatusCode, errors.Join(err, resp.Body.Close()))
}

// counted counts the responses per caller.
type counted struct {
	*http.Transport

	token string
	whose func(http.Header) caller
	tally *tally
}

// Unwrap lets the Transport see what is below.
func (c *counted) Unwrap() http.RoundTripper { return c.Transport }

// RoundTrip sends it.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.Transport.RoundTrip(r)
	if err == nil {
		c.tally.answered(c.whose(r.Header), resp.StatusCode)
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
