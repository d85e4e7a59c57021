package driver_test

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Suite{Open: func(*testing.T) driver.Store { return new(driver.Memory) }}.Run(t)
}
