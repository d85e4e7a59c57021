// Package idempotency implements the server side of idempotency keys. It executes each request
// with a key, or each message of a queue, once. Duplicates get the first result.
//
// [Handler] protects an http.Handler, and [Do], [DoJSON] and [Executor] any function. A
// [Store] keeps a durable record of each operation: sqlitestore, pgstore, redisstore, or
// [Memory] for tests. If the store is the service's own database, the work and its record
// can be one transaction (Options.Transactional, [Tx]). The guarantees of each mode are in
// docs/server-idempotency.md.
//
// Only stores need [Claim], [Reservation], [Decide], [Step] and [Transactor]. They may change with each minor release.
package idempotency
