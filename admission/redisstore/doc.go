// Package redisstore keeps quotas in Redis: what any number of processes
// take together is as exact as what the goroutines of one do.
//
//	client := redis.NewClient(&redis.Options{
//		Addr:                  "redis:6379",
//		ContextTimeoutEnabled: true, // or a context's deadline does not count on the wire
//		MaxRetries:            -1,   // or a take whose answer was lost is taken twice
//		DialerRetries:         1,    // or a server that is down is waited for
//	})
//	quota := &admission.Quota{Limit: 100, Key: account, Store: &redisstore.Store{Client: client}}
//
// A take is one script of one key, EVALSHA in one round trip, and so is a Close. A server
// that does not know the script is sent it, in a second one: after a restart, say. With
// Redis Cluster any two keys may be on different nodes. The time is the server's, so
// that the processes' clocks do not matter. When the server's clock is set back, nobody
// waits for it to catch up; when it is set forward, there is what would have come by
// then, which is at most all of the quota.
//
// A key lives until it has all of its quota again and is open, and needs 100 bytes
// until then beside Redis's own, with Rule.Sliding up to 1.5 KB. A take that is refused, and
// one that only asks, writes nothing. So memory is bounded by how many keys take
// anything within their windows: where strangers can make up keys, set maxmemory, and a
// policy such as volatile-ttl: then those are forgotten that would be whole again first.
// Without such a policy a full Redis answers with an error (OOM).
//
// What a server forgets was never taken: one that restarts without persistence begins
// with whole quotas, and a replica that takes over does not know of the last moments.
// With appendonly yes and appendfsync always, a server that is killed forgets nothing.
// With everysec, Redis's default, it forgets what it took while its disk was at the
// flush before: of two seconds at most.
//
// It needs Redis 5 or later.
package redisstore
