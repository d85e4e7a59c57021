package storetest

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

func (k *kit) testTransactions(t *testing.T, store idempotency.Transactor) {}
