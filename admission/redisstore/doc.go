// Package redisstore is a quotastore.Store in Redis. What any number of processes take
// together is as exact as in the memory of one process.
//
//	client := redis.NewClient(&redis.Options{
//		Addr:                  "redis:6379",
//		ContextTimeoutEnabled: true, // let the context's deadline end a command
//		MaxRetries:            -1,   // a retried take may be counted twice
//		DialerRetries:         1,    // do not wait for a server that is down
//		MinIdleConns:          4,    // connect before a request needs it
//	})
//	quota := &admission.Quota{Limit: 100, Key: account, Store: &redisstore.Store{Client: client}}
//
// Take and Block are one script with one key each: one EVALSHA in one round trip, or two
// if the server does not know the script, for example after a restart. In a Redis Cluster
// any two keys may be on different nodes. The time is the server's, so the clocks of the
// processes do not matter. If the server's clock is set back, no key waits for it. If it
// is set forward, a key gets the units of that time, at most its whole quota.
//
// A key expires when its whole quota is available and no block is left. It needs about
// 100 bytes beside those of Redis, and with Rule.Sliding up to 1.5 KB. A rejected take
// and a take that only asks write nothing. If strangers can make up keys, set maxmemory.
// The policy volatile-ttl then evicts the keys that are whole first; with Sliding these
// are the oldest, so give made-up keys and accounts different servers, or use a token
// bucket. With noeviction a full server answers with an error (OOM).
//
// What Redis loses was never taken. A server that restarts without persistence begins
// with whole quotas, and a replica that takes over lacks the last moments. With
// appendonly yes and appendfsync always a killed server loses nothing. With everysec,
// Redis's default, it loses at most two seconds.
//
// It needs Redis 5 or later.
package redisstore
