// Package driver defines the interfaces that a store of package idempotency implements. It is
// internal until v0.1.0, because they may change until then. Package idempotency has aliases of the
// types that services use.
//
// A store implements [Store], and [Transactor] if the service's own writes can be
// in one transaction with the record. [Decide] is the state machine of a claim, and
// [Memory] is the shortest complete store. Package storetest tests a store:
//
//	func TestStore(t *testing.T) {
//		storetest.Suite{Open: func(t *testing.T) driver.Store { return open(t) }}.Run(t)
//	}
package driver
