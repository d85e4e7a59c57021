//go:build million

package driver_test

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
)

// TestMemory_million is the suite with a million records to sweep, more than a CI
// run needs:
//
//	go test -tags million -run TestMemory_million -v ./idempotency/internal/driver
func TestMemory_million(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) driver.Store { return &driver.Memory{MaxKeys: -1} },
		Rows: 1_000_000,
	}.Run(t)
}
