package zoo

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Figures are the result of a run.
type Figures struct {
	Calls    int // made
	Served   int // calls with a 2xx; if a limit counts tokens, each by its cost ÷ the mean cost
	Rejected int // requests that a limit rejected
}

// Trial is a draw with the figures of a bare client, of the oracle and of a library.
type Trial struct {
	Draw
	Bare, Oracle, Ours Figures
}

// Trials runs n draws of the seed, from the number first on, in parallel, and calls done with each
// in the order of their numbers.
func Trials(t *testing.T, seed uint64, first, n int, library peers.Peer, done func(Trial)) []Trial {
	t.Helper()
	draws := make([]Draw, n)
	for i := range draws {
		draws[i] = New(seed, first+i)
	}
	return Try(t, draws, library, done)
}

// Try runs the draws in parallel, and calls done with each in their order.
func Try(t *testing.T, draws []Draw, library peers.Peer, done func(Trial)) []Trial {
	t.Helper()
	return bubble.All(len(draws), func(i int) (trial Trial) {
		t.Run(fmt.Sprintf("%d-%d", draws[i].Seed, draws[i].Number), func(t *testing.T) { trial = draws[i].Try(t, library) })
		return trial
	}, done)
}

// Try runs the draw.
func (d Draw) Try(t *testing.T, library peers.Peer) Trial {
	t.Helper()
	return Trial{Draw: d, Bare: d.bare(t), Oracle: d.oracle(t), Ours: d.run(t, newServer(d), library.New)}
}

func (d Draw) bare(t *testing.T) Figures {
	t.Helper()
	return d.run(t, newServer(d), func(s peers.Setting) peers.Client { return &http.Client{Transport: s.Base} })
}

func (d Draw) oracle(t *testing.T) Figures {
	t.Helper()
	o := &oracle{server: newServer(d), heads: map[[2]int]chan struct{}{}}
	return d.run(t, o.server, func(s peers.Setting) peers.Client { return client{o, s.Base} })
}

// run runs the draw with one client for each process.
func (d Draw) run(t *testing.T, s *server, newClient func(peers.Setting) peers.Client) (f Figures) {
	t.Helper()
	var mu sync.Mutex
	fleet.Run(t, fleet.Config{
		Scenario: d.scenario(s), Peer: peers.Peer{New: newClient}, Topology: fleet.Own, Seed: d.Seed,
		Watch: func(o fleet.Observation) {
			mu.Lock()
			defer mu.Unlock()
			f.Calls++
			if o.Success {
				f.Served += d.weight(o.ID)
			}
		},
	})
	f.Served /= d.Load.Tokens
	f.Rejected = s.rejected
	return f
}

// weight is what a served call counts. A server of tokens serves many cheap calls or few expensive
// ones: a client that sends all serves the cheap ones, and one that waits serves them in order.
func (d Draw) weight(id int) int {
	for _, l := range d.Limits {
		if l.Unit == limiter.Tokens {
			return d.newCall(id).tokens
		}
	}
	return 1
}
