// Package driver defines the interface that a store of package durable implements. It is internal until
// v0.1.0, because the interface may change until then. Package durable has aliases of the types that
// programs use.
//
// A [Store] reads rows, asks [Decide] for the transition, and writes the [Change]. All
// rules of the state machine are in Decide, which is a pure function. A store passes the
// tests of package storetest.
package driver
