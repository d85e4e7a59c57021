//go:build million

package idempotency_test

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/storetest"
)

// TestMemoryMillion is the suite with a million records to sweep, more than a CI
// run needs:
//
//	go test -tags million -run TestMemoryMillion -v ./idempotency
func TestMemoryMillion(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) idempotency.Store { return new(idempotency.Memory) },
		Rows: 1_000_000,
	}.Run(t)
}
