// Package sqlitekit is the common part of the SQLite stores of package idempotency
// and package durable. It opens the database file with separate connections for
// reading, writing and sweeping, migrates the tables, and waits for SQLite's write
// lock. It does not depend on what a store keeps.
//
// Both packages are named sqlitestore, and error texts begin with that name.
package sqlitekit
