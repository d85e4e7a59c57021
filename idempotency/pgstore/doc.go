// Package pgstore keeps the records of package idempotency in PostgreSQL.
package pgstore
