//go:build million

package driver_test

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/storetest"
)

// TestMemoryMillion is the suite with a million records to sweep, more than a CI
// run needs:
//
//	go test -tags million -run TestMemoryMillion -v ./idempotency
func TestMemoryMillion(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) driver.Store { return new(driver.Memory) },
		Rows: 1_000_000,
	}.Run(t)
}
