// Package admission protects a server: [Quota] limits the requests of each client (429), and
// [Shedder] limits the requests in flight to what the server can do (503).
//
// Both are middleware of net/http. Their order with other middleware is
//
//	auth → resilienthttp.DeadlineHandler → Shedder → Quota → idempotency → handler
//
// so that expired requests are rejected first, and a shed request uses no quota:
//
//	shedder := &admission.Shedder{Priority: priorityOfAccount}
//	quota := &admission.Quota{Limit: 100, Key: account}
//	if err := errors.Join(shedder.Validate(), quota.Validate()); err != nil {
//		log.Fatal(err)
//	}
//	handler := auth(resilienthttp.DeadlineHandler{Next: shedder.Handler(quota.Handler(api))})
//
// A client with a resilienthttp.Transport understands both. A Quota never rejects it if no
// other client uses the same key. See docs/admission.md.
package admission
