// Package redisstore keeps the records of package idempotency in Redis.
//
//	client := redis.NewClient(&redis.Options{
//		Addr:                  "redis:6379",
//		ContextTimeoutEnabled: true,        // a context's deadline also bounds the wait for a reply
//		PoolTimeout:           time.Second, // after this time a claim fails with driver.ErrStoreBusy
//		MaxRetries:            -1,          // the executor repeats commands itself
//	})
//	handler := &idempotency.Handler{Store: redisstore.New(client, nil), …}
//
// # Limits
//
// Redis can lose records that it has acknowledged. The next request with the same key is
// then executed a second time:
//
//   - With appendfsync everysec, the default, a crash of the machine loses up to about a
//     second of records. Without appendonly, each restart loses all records since the last
//     snapshot.
//   - A failover to a replica loses the records that were not yet replicated. Replication is
//     asynchronous, and the store does not use WAIT, which would not prevent the loss.
//
// So this store does not replace pgstore or sqlitestore where a second execution costs
// money. Use it with appendonly yes, appendfsync always and without failover, or for
// operations that are safe to repeat. It is not a driver.Transactor.
//
// # Operation
//
// Each operation is one script and one round trip, by the clock of the server. A duplicate
// of a finished request is answered without a write: also by a read-only replica, and while
// Redis rejects writes with OOM, READONLY or MISCONF. A claim then fails with that error.
// When memory is full, executions that were admitted can still be completed.
//
// Records have no expiry in Redis, so the volatile eviction policies do not evict them.
// [Store.Check] fails if the policy is one of allkeys. Sweep deletes expired records: run an
// idempotency.Sweeper. All keys of a store have one hash tag. A Redis Cluster keeps them on
// one node, and several prefixes use several nodes. It needs Redis 7 or Valkey.
package redisstore
