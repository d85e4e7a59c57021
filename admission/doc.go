// Package admission holds the gates of a server: [Quota] for whose turn it is (429),
// and [Shedder] for what the machine bears (503).
//
// Both are middleware of net/http. Their order with the others is
//
//	auth → resilienthttp.Deadline → Shedder → Quota → idempotency → handler
//
// so that nothing is refused to somebody unknown, what comes too late is refused
// first, and what is shed costs nobody's quota:
//
//	shedder := &admission.Shedder{Priority: priorityOfAccount}
//	quota := &admission.Quota{Limit: 100, Key: account}
//	if err := errors.Join(shedder.Validate(), quota.Validate()); err != nil {
//		log.Fatal(err)
//	}
//	handler := auth(resilienthttp.Deadline{}.Handler(shedder.Handler(quota.Handler(api))))
//
// What is promised, which to take when, and how it was measured is in
// docs/admission.md. A client with a resilienthttp.Transport understands what both
// say: it is never refused by a Quota that it has to itself.
package admission
