// Package quotastore counts what each key uses of a quota. A Store decides each Take
// atomically. So any number of goroutines, and with a shared store any number of
// processes, never take more than the Rule allows.
//
// Package admission uses it to limit the requests that a server accepts, and
// resilienthttp.RateLimit.Shared to limit the requests that several clients send
// together. The package imports neither of them.
//
//	var store quotastore.Memory
//	rule := quotastore.Rule{Limit: 100, Window: time.Minute}
//	result, err := store.Take(ctx, "tenant-1", 1, 1, rule)
package quotastore
