// Llm talks to three APIs of language models: Responses, Chat Completions and Messages, with two keys and a region for each. Their
// streams fail after the status 200, and their quotas count tokens.
//
// Run it from the root of the repository. It takes about 70 s:
//
//	go run ./examples/llm
//
// It starts a server on a loopback socket for each of three clients, and prints what became of their turns. client.go is the
// client. server.go is the server: one of four turns first meets a fault: an event overloaded or server error, an empty
// stream, a break, silence, or a 429.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/resilienthttp/resilienthttp/endpoints"
)

var apis = []api{openAI, openAIChat, anthropic}

const (
	turns    = 48 // of each API
	every    = time.Second
	deadline = 20 * time.Second
)

func main() {
	err := run(os.Stdout, func(handler http.Handler) (*url.URL, http.RoundTripper, error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		go func() { _ = server.Serve(listener) }()
		return &url.URL{Scheme: "http", Host: listener.Addr().String()}, http.DefaultTransport, nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

// column are the figures of a client.
type column struct {
	name      string
	newClient func(a api, base *url.URL, below http.RoundTripper) *http.Client

	mu        sync.Mutex
	succeeded int
	first     []time.Duration // until the first text of turns that succeeded
	model     *model
}

// run prints the figures of three clients. open starts a server.
func run(out io.Writer, open func(http.Handler) (*url.URL, http.RoundTripper, error)) error {
	columns := []*column{
		{name: "http.Client", newClient: func(a api, base *url.URL, below http.RoundTripper) *http.Client {
			return &http.Client{Transport: &inTurn{below: below, pool: a.pool(base)}}
		}},
		{name: "go-retryablehttp", newClient: func(a api, base *url.URL, below http.RoundTripper) *http.Client {
			c := retryablehttp.NewClient()
			c.Logger, c.HTTPClient = nil, &http.Client{Transport: &inTurn{below: below, pool: a.pool(base)}}
			return c.StandardClient()
		}},
		{name: "Transport", newClient: api.newClient},
	}
	var all sync.WaitGroup
	for _, c := range columns {
		c.model = newModel()
		base, below, err := open(c.model)
		if err != nil {
			return err
		}
		for _, a := range apis {
			client := c.newClient(a, base, below)
			for n := 1; n <= turns; n++ {
				all.Go(func() {
					time.Sleep(time.Duration(n) * every)
					c.turn(a, client, base, n)
				})
			}
		}
	}
	all.Wait()
	fmt.Fprintf(out, "%-18s%11s%14s%12s%9s\n", "client", "succeeded", "billed twice", "first text", "slowest")
	for _, c := range columns {
		slices.Sort(c.first)
		twice := 0
		for _, n := range c.model.billed {
			twice += n / 2
		}
		fmt.Fprintf(out, "%-18s%4d of %3d%14d%12s%9s\n", c.name, c.succeeded, len(apis)*turns, twice, c.quantile(50), c.quantile(100))
	}
	return nil
}

// quantile is a time until the first text, of those that are sorted.
func (c *column) quantile(percent int) string {
	if len(c.first) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", c.first[(len(c.first)*percent-1)/100].Seconds())
}

func (c *column) turn(a api, client *http.Client, base *url.URL, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	began, first := time.Now(), time.Duration(0)
	err := a.turn(ctx, client, base, fmt.Sprint("turn ", n), func(string) { first = cmp.Or(first, time.Since(began)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.succeeded++
		c.first = append(c.first, first)
	}
}

// inTurn gives the requests of the other clients the keys one after the other.
type inTurn struct {
	below http.RoundTripper
	pool  []endpoints.Endpoint
	next  atomic.Uint32
}

func (t *inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	e := t.pool[int(t.next.Add(1))%len(t.pool)]
	req = req.Clone(req.Context())
	req.URL = e.URL.JoinPath(req.URL.Path)
	maps.Copy(req.Header, e.Header)
	return t.below.RoundTrip(req)
}
