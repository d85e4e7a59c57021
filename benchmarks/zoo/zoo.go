package zoo

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

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
	all, ready := make([]Trial, len(draws)), make([]chan struct{}, len(draws))
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range draws {
		ready[i] = make(chan struct{})
	}
	group.Go(func() {
		for i := range draws {
			<-ready[i]
			done(all[i])
		}
	})
	for i, d := range draws {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { close(ready[i]); <-slots }()
			t.Run(fmt.Sprintf("%d-%d", d.Seed, d.Number), func(t *testing.T) {
				began := time.Now()
				all[i] = d.Try(t, library)
				all[i].Took = time.Since(began)
			})
		})
	}
	group.Wait()
	return all
}
