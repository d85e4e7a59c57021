package durable_test

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) durable.Store { return new(durable.Memory) })
}
