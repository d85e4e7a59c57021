// Package bubble runs subtests in virtual time.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Run runs test as the subtest name, in a testing/synctest bubble of its own.
func Run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Parallel is Run beside other subtests.
func Parallel(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}
