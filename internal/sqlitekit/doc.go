// Package sqlitekit is what the stores in SQLite have in common, those of package
// idempotency and of package durable: opening a database's file, with connections of
// their own for reading, writing and sweeping; bringing the tables up to date, so that
// older versions can go on; and waiting for SQLite's one write lock. It knows nothing
// of what is stored.
//
// Both stores' packages are named sqlitestore, and so begin the texts of its errors.
package sqlitekit
