// Package driver is what a store of package durable implements, as database/sql/driver is
// for databases. Programs that send intents do not need it: package durable has aliases of
// the types that they meet.
//
// A [Store] reads rows, asks [Decide] for the transition, and writes the [Change]. All
// rules of the state machine are in Decide, which is a pure function. A store passes the
// tests of package storetest.
package driver
