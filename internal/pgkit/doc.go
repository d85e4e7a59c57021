// Package pgkit is what stores in PostgreSQL have in common: bringing the tables up to
// date, so that older versions can go on; statements that share a round trip, through pgx
// or database/sql; and transactions that are flushed to disk and tried again where
// PostgreSQL asks for it. It knows nothing of what is stored.
//
// The stores' packages are named pgstore, and so begin the texts of its errors.
package pgkit
