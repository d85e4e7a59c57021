// Package driver defines the interfaces that a store of package idempotency
// implements, as database/sql/driver does for databases. Services use package
// idempotency. A service imports driver only to reconcile records with the status
// Unknown.
//
// A store implements [Store], and [Transactor] if the service's own writes can be
// in one transaction with the record. [Decide] is the state machine of a claim, and
// [Memory] is the shortest complete store. Package storetest tests a store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) driver.Store { return open(t) })
//	}
package driver
