package zoo

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Figures are the result of a run.
type Figures struct {
	Calls    int // made
	Served   int // calls with a 2xx; if a limit counts tokens, each by its cost ÷ the mean cost
	Sent     int // requests
	Rejected int // requests that a limit rejected
}

// Trial is a draw with the figures of a bare client, of the oracle and of a library.
type Trial struct {
	Draw
	Bare, Oracle, Ours Figures
	Took               time.Duration // real time
}

// Try runs the draw.
func (d Draw) Try(t *testing.T, library peers.Peer) Trial {
	t.Helper()
	return Trial{Draw: d, Bare: d.bare(t), Oracle: d.oracle(t), Ours: d.Run(t, library.New)}
}

func (d Draw) bare(t *testing.T) Figures {
	t.Helper()
	return d.Run(t, func(s peers.Setting) peers.Client { return &http.Client{Transport: s.Base} })
}

func (d Draw) oracle(t *testing.T) Figures {
	t.Helper()
	return d.run(t, func(s *server) []peers.Client {
		clients, one := make([]peers.Client, d.Load.Processes), newOracle(s)
		for i := range clients {
			clients[i] = one
		}
		return clients
	})
}

// Run runs the draw with one client for each process.
func (d Draw) Run(t *testing.T, newClient func(peers.Setting) peers.Client) Figures {
	t.Helper()
	return d.run(t, func(s *server) []peers.Client {
		clients := make([]peers.Client, d.Load.Processes)
		for i := range clients {
			clients[i] = newClient(peers.Setting{Base: s})
		}
		return clients
	})
}

func (d Draw) run(t *testing.T, clients func(*server) []peers.Client) Figures {
	t.Helper()
	return bubble.Run(t, func() Figures {
		s := newServer(d)
		<-time.After(d.Phase - clock())
		r := &run{Draw: d, clients: clients(s)}
		r.all()
		return Figures{Calls: r.calls, Served: r.served / d.Load.Tokens, Sent: s.sent, Rejected: s.rejected}
	})
}

// run is the state of one run.
type run struct {
	Draw
	clients []peers.Client
	group   sync.WaitGroup

	mu            sync.Mutex
	calls, served int
}

// all makes the calls and waits for the last one.
func (r *run) all() {
	timer := time.NewTimer(0)
	idle := make(chan *call)
	for _, c := range r.schedule() {
		timer.Reset(c.at - r.since())
		<-timer.C
		select {
		case idle <- c:
		default:
			r.group.Go(func() { r.serve(c, idle) })
		}
	}
	close(idle)
	for i := range r.Load.Workers {
		r.group.Go(func() { r.work(i) })
	}
	r.group.Wait()
	synctest.Wait() // for goroutines of clients after a call
	for _, client := range r.clients {
		if closer, ok := client.(io.Closer); ok {
			_ = closer.Close() // the bubble cannot end while its goroutines run
		}
	}
}

// serve makes the call and then others. A new goroutine for each would have to grow its stack again.
func (r *run) serve(c *call, idle <-chan *call) {
	r.call(c)
	for c := range idle {
		r.call(c)
	}
}

// since is the time since the first call.
func (r *run) since() time.Duration { return clock() - r.Phase }

// work makes one call after another. Workers start at different times. A call that fails at once takes its
// worker as long as the shortest response: otherwise workers without a pause make all calls within a hold.
func (r *run) work(worker int) {
	cycle := r.Load.Think + r.Load.Service
	timer := time.NewTimer(cycle*time.Duration(worker)/time.Duration(r.Load.Workers) + time.Duration(r.Load.First+worker)*apart)
	for i := range maxCalls {
		<-timer.C
		if r.since() >= r.Length {
			return
		}
		c := r.newCall(worker*maxCalls+i, r.since())
		c.process = worker % r.Load.Processes
		r.call(c)
		timer.Reset(max(c.at+r.Load.took(0)-r.since(), 0) + r.Load.Think)
	}
}

// request is http.NewRequestWithContext without the time for parsing a URL.
func (r *run) request(ctx context.Context, c *call) *http.Request {
	req := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "server.model", Path: "/path-" + strconv.Itoa(c.path)},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Host: "server.model",
	}
	if r.Load.Models > 1 {
		req.Header.Set("X-Model", strconv.Itoa(c.model))
	}
	return req.WithContext(ctx)
}

// weight is what a served call counts. A server of tokens serves many cheap calls or few expensive
// ones: a client that sends all serves the cheap ones, and one that waits serves them in order.
func (r *run) weight(c *call) int {
	for _, l := range r.Limits {
		if l.Unit == Tokens {
			return c.tokens
		}
	}
	return 1
}

// call makes one call.
func (r *run) call(c *call) {
	ctx := context.WithValue(context.Background(), callKey{}, c)
	if r.Load.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Load.Deadline)
		defer cancel()
	}
	resp, err := r.clients[c.process].Do(r.request(ctx, c))
	success := err == nil && resp.StatusCode < http.StatusMultipleChoices
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if success {
		r.served += r.weight(c)
	}
}
