// Package bubble lets a command run code in testing/synctest's virtual time.
package bubble

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

// Main calls f with a *testing.T, without which there is no synctest bubble, and
// ends the process. It is for main functions, called after flag.Parse.
//
// A command that asked the user to write `go test -run …` instead would have the
// test cache, the test timeout and the package's other tests in its way.
// testing.Main is what the standard library still offers: newer ways want an
// interface of which the methods are not covered by the Go 1 promise.
func Main(f func(t *testing.T) error) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "bubble", F: func(t *testing.T) {
		if err := f(t); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // before package testing says PASS
	}}}, nil, nil)
}

// Run runs f in virtual time. It returns when f and every goroutine that f
// started have ended.
func Run[T any](t *testing.T, f func() T) (result T) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { result = f() })
	return result
}
