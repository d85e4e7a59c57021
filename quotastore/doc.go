// Package quotastore keeps quotas: how much of something each key may take in a
// time. A Store decides in one atomic step, so that any number of goroutines, and
// with a shared store any number of processes, never take more than the Rule says.
//
// Package admission limits the requests that a server takes by it, and
// resilienthttp.RateLimit.Shared those that several clients send together. The
// package imports nothing of either.
//
//	var store quotastore.Memory
//	rule := quotastore.Rule{Limit: 100, Window: time.Minute}
//	ticket, err := store.Take(ctx, "tenant-1", 1, 1, rule)
package quotastore
