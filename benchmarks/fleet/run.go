package fleet

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/config"
)

// Topology tells whether callers share a client.
type Topology string

// The two topologies.
const (
	Shared Topology = "shared" // one Transport for all callers
	Own    Topology = "own"    // one Transport for each client
)

// Config is one run.
type Config struct {
	Scenario Scenario
	Peer     peers.Peer
	Topology Topology
	Seed     uint64

	// Watch is called with each measured call after its end, in virtual time. It must be safe for
	// concurrent use. nil: none.
	Watch func(Observation)
}

// Observation is a call that has ended. The body of its Response is closed.
type Observation struct {
	ID          int
	At, Latency time.Duration // At is since the start
	Success     bool
	Response    *http.Response
	Err         error
}

// String names the run.
func (c Config) String() string {
	return c.Scenario.Name + "/" + string(c.Topology) + "/" + c.Peer.Name
}

// Run makes the run in virtual time.
func Run(t *testing.T, c Config) Result {
	t.Helper()
	return bubble.Run(t, func() Result { return newRun(c).run() })
}

// RunAll makes the runs in parallel, and calls done with each result in the order of runs. Runs have
// separate virtual times and do not affect each other.
func RunAll(t *testing.T, runs []Config, done func(Result)) []Result {
	t.Helper()
	return bubble.All(len(runs), func(i int) (result Result) {
		t.Run(runs[i].String(), func(t *testing.T) { result = Run(t, runs[i]) })
		return result
	}, done)
}

// Epoch is the start of the runs without a Phase. A bubble starts in the year 2000, in which Unix seconds
// have nine digits; clients do not recognize these as a timestamp.
func Epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// run is the state of one run.
type run struct {
	Config
	start   time.Time
	server  *server
	base    http.RoundTripper // of the clients: the server, or the tiers in front of it
	clients []peers.Client
	bare    peers.Client // for calls that are not measured
	group   sync.WaitGroup

	mu    sync.Mutex
	calls []*Call
}

// warmUp is the time before a run during which the clients are created, each at a random
// time. Otherwise limiters and windows of all clients would be in phase, unlike in a real
// fleet.
const warmUp = 30 * time.Second

func newRun(c Config) *run {
	r := &run{Config: c, start: Epoch().Add(c.Scenario.Phase)}
	r.server = newServer(c.Scenario, r.start, c.Seed)
	r.base = r.server
	for range c.Scenario.Tiers - 1 {
		r.base = newTier(c.Peer.New(peers.Setting{Base: r.base}))
	}
	n := c.Scenario.clientsIn(c.Topology)
	random := rand.New(rand.NewPCG(r.Seed, 3))
	moments := make([]time.Duration, n)
	for i := range moments {
		moments[i] = time.Duration(random.Int64N(int64(warmUp)))
	}
	for _, moment := range sorted(moments) {
		<-time.After(time.Until(r.start.Add(moment - warmUp)))
		r.clients = append(r.clients, r.client(n))
	}
	r.bare = &http.Client{Transport: r.server}
	<-time.After(time.Until(r.start))
	r.server.open()
	return r
}

// client creates one of n clients.
func (r *run) client(n int) peers.Client {
	setting := peers.Setting{Base: r.base, Configure: r.Scenario.Configure, Endpoints: r.Scenario.Server.Hosts}
	if limit := r.Scenario.Server.Limit; limit.Headers != NoHeaders {
		setting.Quota = limit.perSecond() / float64(n)
	}
	return r.Peer.New(setting)
}

// run starts the calls and waits for the last one.
func (r *run) run() Result {
	r.calls = r.Scenario.schedule(r.Seed, len(r.clients))
	timer := time.NewTimer(0)
	idle := make(chan *Call)
	for _, c := range r.calls {
		timer.Reset(c.at - time.Since(r.start))
		<-timer.C
		select {
		case idle <- c:
		default:
			r.group.Go(func() {
				r.call(c)
				for c := range idle { // a new goroutine for each would have to grow its stack again
					r.call(c)
				}
			})
		}
	}
	close(idle)
	for i := range r.Scenario.Load.Workers {
		r.group.Go(func() { r.work(i) })
	}
	r.group.Wait()
	synctest.Wait() // for goroutines of clients after a call
	if gate := r.server.gate; gate != nil {
		gate.close()
	}
	return r.result()
}

// work makes one call after another.
func (r *run) work(worker int) {
	const most = 1 << 20 // calls of a worker
	load, timer := r.Scenario.Load, time.NewTimer(0)
	if load.Starts != nil {
		timer.Reset(load.Starts[worker])
	}
	for n := range most {
		<-timer.C
		at := time.Since(r.start)
		if at >= r.Scenario.Length() {
			return
		}
		c := r.next(worker, worker*most+n, n, at)
		r.mu.Lock()
		r.calls = append(r.calls, c)
		r.mu.Unlock()
		r.call(c)
		timer.Reset(max(at+load.Least-time.Since(r.start), 0) + load.Think)
	}
}

// next returns the n-th call of a worker.
func (r *run) next(worker, id, n int, at time.Duration) *Call {
	if m := r.Scenario.Model; m != nil {
		return m.Work(worker, n, at)
	}
	c := &Call{at: at, client: worker % len(r.clients)}
	r.Scenario.assign(c, id, r.Seed)
	return c
}

// call makes one call.
func (r *run) call(c *Call) {
	ctx := withCall(context.Background(), c)
	if deadline := r.Scenario.Load.deadline(); deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	client := r.bare
	if c.client >= 0 {
		client = r.clients[c.client]
	}
	req := request(ctx, r.Scenario.Load.method(), c.path)
	if c.model != "" {
		req.Header.Set("X-Model", c.model)
	}
	resp, err := client.Do(prioritized(req, r.Peer.Name))
	c.success = err == nil && resp.StatusCode < http.StatusBadRequest
	if err == nil {
		c.status = resp.StatusCode
	}
	if resp != nil && resp.Body != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	c.latency = time.Since(r.start) - c.at
	if r.Watch != nil && c.client >= 0 {
		r.Watch(Observation{ID: c.id, At: c.at, Latency: c.latency, Success: c.success, Response: resp, Err: err})
	}
}

// payload is the body of requests other than GET.
const payload = `{"amount": 1}`

func request(ctx context.Context, method, path string) *http.Request {
	var body io.Reader = http.NoBody
	if method != http.MethodGet {
		body = strings.NewReader(payload)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://server.model"+path, body)
	if err != nil {
		panic(err) // the arguments are constants
	}
	return req
}

// measured returns the calls of measured clients, by id.
func (r *run) measured() []*Call {
	calls := slices.DeleteFunc(slices.Clone(r.calls), func(c *Call) bool { return c.client < 0 })
	slices.SortFunc(calls, func(a, b *Call) int { return a.id - b.id })
	return calls
}

// Configured returns a Scenario.Configure that reads a configuration as package config does. It
// panics if the configuration is invalid, because scenarios are written in Go.
func Configured(json string) func(*resilienthttp.Transport) {
	configure := func(t *resilienthttp.Transport) {
		if err := config.Read(strings.NewReader(json), t); err != nil {
			panic(fmt.Sprintf("fleet: configuration of a scenario: %v", err))
		}
	}
	configure(&resilienthttp.Transport{})
	return configure
}

// With returns the scenario with one more configuration of this library, after its own.
func (s Scenario) With(configure func(*resilienthttp.Transport)) Scenario {
	own := s.Configure
	s.Configure = func(t *resilienthttp.Transport) {
		if own != nil {
			own(t)
		}
		configure(t)
	}
	return s
}
