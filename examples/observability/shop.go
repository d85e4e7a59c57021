package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// shop is the application.
type shop struct {
	transport *resilienthttp.Transport
	client    *http.Client
	servers   *servers
	charged   atomic.Int64
}

func newShop(w *watch, o *servers) *shop {
	s := &shop{servers: o}
	s.transport = &resilienthttp.Transport{
		Base: o.bank.Transport(), // it reaches both servers
		Breaker: &resilienthttp.Breaker{
			// With the default, probes every second or two would change the page while you
			// read it.
			Cooldown: 30 * time.Second, MaxCooldown: 30 * time.Second,
		},
		Trace: resilienthttp.LogTrace(w.logger),
	}
	s.client = &http.Client{Transport: w.instrumentation.Wrap(s.transport)}
	return s
}

// trade sends letters that fail, and charges one customer more than the quota allows. It
// returns the duration of that charge.
func (s *shop) trade(ctx context.Context) (took time.Duration, err error) {
	for range customers {
		s.write(ctx)
	}
	failures := make([]error, customers)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() { failures[i] = s.charge(ctx) })
	}
	all.Wait()
	start := time.Now()
	err = s.charge(ctx)
	return time.Since(start), errors.Join(errors.Join(failures...), err)
}

// keepTrading trades more slowly than the quota allows, until ctx ends.
func (s *shop) keepTrading(ctx context.Context, window time.Duration) {
	ticker := time.NewTicker(window / (customers - customers/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.write(ctx)
			_ = s.charge(ctx) // the page shows errors
		}
	}
}

func (s *shop) charge(ctx context.Context) error {
	reference := fmt.Sprintf("shop:invoice:%05d", s.charged.Add(1))
	status, err := s.post(resilienthttp.WithIdempotencyKey(ctx, reference), s.servers.bank.URL+"/v1/charges", fmt.Sprintf(`{"reference":%q}`, reference))
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("bank: status %d", status)
	}
	return err
}

// write sends a letter in a single attempt.
func (s *shop) write(ctx context.Context) {
	_, _ = s.post(resilienthttp.WithSingleAttempt(ctx), s.servers.mail.URL+"/letters", "Thank you!")
}

func (s *shop) post(ctx context.Context, url, body string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
