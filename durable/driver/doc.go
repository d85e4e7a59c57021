// Package driver defines the interface that a store of package durable implements, as
// database/sql/driver does for databases. Programs that send intents do not need it: package
// durable has aliases of the types that they use.
//
// A [Store] reads rows, asks [Decide] for the transition, and writes the [Change]. All
// rules of the state machine are in Decide, which is a pure function. A store passes the
// tests of package storetest.
package driver
