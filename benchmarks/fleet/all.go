package fleet

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// RunAll makes the runs, as many at a time as there are processors, and calls done
// with each result in the order of the runs. A run's virtual time is its own: what
// is measured does not depend on what goes on beside it. Results that keep has are
// taken from there, and the others are added; it may be nil.
func RunAll(t *testing.T, runs []Config, keep *Kept, done func(Result)) []Result {
	t.Helper()
	results := make([]chan Result, len(runs))
	for i := range runs {
		results[i] = make(chan Result, 1)
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(runs); i = int(next.Add(1)) - 1 {
				result, ok := keep.get(runs[i])
				if !ok {
					t.Run(runs[i].String(), func(t *testing.T) { result = Run(t, runs[i]) })
					keep.put(result)
				}
				results[i] <- result
			}
		})
	}
	defer workers.Wait() // before the test ends
	all := make([]Result, len(runs))
	for i := range results {
		all[i] = <-results[i]
		done(all[i])
	}
	return all
}
