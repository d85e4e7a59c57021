package fleet

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Topology says who shares a client.
type Topology string

// The two topologies.
const (
	Shared Topology = "shared" // one client for all callers
	Own    Topology = "own"    // 1000 clients, each with a share of the callers
)

// Config is one run.
type Config struct {
	Scenario Scenario
	Peer     peers.Peer
	Topology Topology
	Seed     uint64
}

// String names the run.
func (c Config) String() string {
	return c.Scenario.Name + "/" + string(c.Topology) + "/" + c.Peer.Name
}

// Run makes the run, in virtual time.
func Run(t *testing.T, c Config) Result {
	t.Helper()
	began := time.Now()
	r := bubble.Run(t, func() Result { return newRun(c).run() })
	r.Took = time.Since(began)
	return r
}

// epoch is when the runs begin. A bubble begins in the year 2000, when seconds
// since 1970 had nine digits, and are taken for something else.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// run is one run while it is made.
type run struct {
	Config
	start   time.Time
	server  *server
	clients []peers.Client
	calls   sync.WaitGroup

	mu        sync.Mutex
	offered   series
	served    series // when the success came
	arrivals  series // in tenths of a second, as served below
	good      series
	succeeded []time.Duration // latencies
	failed    []time.Duration
}

// warmUp is the time before a run in which its clients are made, each at a moment
// of its own. Limiters and windows that count from there would otherwise beat in
// time, as those of no real fleet do.
const warmUp = 30 * time.Second

func newRun(c Config) *run {
	r := &run{Config: c, start: epoch()}
	r.arrivals.width, r.good.width = fine, fine
	r.server = newServer(c.Scenario, r.start, c.Seed)
	n := 1
	if c.Topology == Own {
		n = Clients
	}
	random := rand.New(rand.NewPCG(r.Seed, 3))
	moments := make([]time.Duration, n)
	for i := range moments {
		moments[i] = time.Duration(random.Int64N(int64(warmUp)))
	}
	for _, moment := range sorted(moments) {
		<-time.After(time.Until(r.start.Add(moment - warmUp)))
		setting := peers.Setting{Base: r.server, Quota: float64(c.Scenario.quota) / float64(n)}
		r.clients = append(r.clients, c.Peer.New(setting))
	}
	<-time.After(time.Until(r.start))
	return r
}

// run lets the calls arrive and waits for the last.
func (r *run) run() Result {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	gap := func() time.Duration {
		return time.Duration(random.ExpFloat64() / r.Scenario.Rate * float64(time.Second))
	}
	for at := gap(); at < r.Scenario.Length(); at += gap() {
		<-time.After(at - time.Since(r.start))
		client := r.clients[random.IntN(Clients)%len(r.clients)]
		r.calls.Go(func() { r.call(client, at) })
	}
	r.calls.Wait()
	synctest.Wait() // for what clients do when a call has ended
	for _, client := range r.clients {
		if closer, ok := client.(io.Closer); ok {
			_ = closer.Close() // of goroutines that would keep the bubble from its end
		}
	}
	return r.result()
}

// call is one logical request.
func (r *run) call(client peers.Client, at time.Duration) {
	r.arrived(at)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server.model/", http.NoBody)
	if err != nil {
		panic(err) // the arguments are constants
	}
	resp, err := client.Do(req)
	success := err == nil && resp.StatusCode < http.StatusBadRequest
	if resp != nil && resp.Body != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	r.ended(at, time.Since(r.start)-at, success)
}

func (r *run) arrived(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offered.add(at)
	r.arrivals.add(at)
}

func (r *run) ended(at, latency time.Duration, success bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !success {
		r.failed = append(r.failed, latency)
		return
	}
	r.succeeded = append(r.succeeded, latency)
	r.served.add(at + latency)
	r.good.add(at + latency)
}
