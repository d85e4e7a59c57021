// Package idempotency is the server half of idempotency keys: a durable record of
// each operation, so that a request that comes again takes effect once.
package idempotency
