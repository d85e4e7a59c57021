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
//	go test -tags million -run TestMemoryMillion -v ./idempotency/driver
func TestMemoryMillion(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) driver.Store { return &driver.Memory{MaxKeys: -1} },
		Rows: 1_000_000,
	}.Run(t)
}
