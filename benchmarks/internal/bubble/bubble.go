// Package bubble runs the code of a command in virtual time, with testing/synctest.
package bubble

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Main calls f with a *testing.T and ends the process. A synctest bubble needs a
// *testing.T. Call Main in a main function after flag.Parse.
//
// `go test -run` is no alternative, because of its cache and timeout. Main uses testing.Main,
// because testing.MainStart needs an interface without the Go 1 compatibility promise.
func Main(f func(t *testing.T) error) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "bubble", F: func(t *testing.T) {
		if err := f(t); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // before package testing prints PASS
	}}}, nil, nil)
}

// Run runs f in virtual time. It returns after f and all its goroutines have ended.
func Run[T any](t *testing.T, f func() T) (result T) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { result = f() })
	return result
}

// All runs n tests in parallel, and calls done with each result in the order of their numbers.
func All[R any](n int, run func(i int) R, done func(R)) []R {
	results := make([]chan R, n)
	for i := range results {
		results[i] = make(chan R, 1)
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				results[i] <- run(i)
			}
		})
	}
	defer workers.Wait() // a subtest must not outlive the test
	all := make([]R, n)
	for i := range results {
		all[i] = <-results[i]
		done(all[i])
	}
	return all
}
