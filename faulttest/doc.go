// Package faulttest is a scriptable fault-injection server for tests of HTTP clients. A
// scenario is one or two lines, and so are the assertions:
//
//	srv := faulttest.New(t, faulttest.Sequence(
//		faulttest.Unavailable(2*time.Second, faulttest.Seconds),
//		faulttest.ResetAfterRead,
//		faulttest.OK(`{"id":1}`),
//	))
//	charge, err := sdk.New(srv.URL).Charge(ctx, 100)
//	srv.AssertAttempts(t, 3) // one call with three attempts
//	srv.AssertKeys(t, 1)     // under one idempotency key
//
// It depends only on net/http and works with every client.
//
// # Handlers
//
// A [Reply] describes the response to one request, with its delays and faults. [Status], [OK],
// [Redirect], [Unavailable], [Throttled] and [LoseResponse] return frequent ones, and each
// [Fault] is a handler too. [Sequence], [Cycle] and [PerKey] use one handler after the other. A
// [Script] is a table of rules with conditions: route, predicate, time, probability, number of
// requests. [Quota] and [Idempotent] are endpoints with state. All are http.Handlers and accept
// any http.Handler, so they can be nested:
//
//	charges := &faulttest.Idempotent{Latency: time.Second}
//	srv := faulttest.New(t, faulttest.Script{
//		{After: 10 * time.Second, Until: 40 * time.Second, Handler: faulttest.Status(503)},
//		{Route: "POST /charges", Handler: faulttest.PerKey(faulttest.LoseResponse(charges), charges)},
//		{Handler: &faulttest.Quota{Limit: 100, Dialect: faulttest.GitHub}},
//	})
//
// # Servers
//
// [New] starts a server on a loopback socket. [NewInMemory] starts one on an in-memory network,
// which also works in a bubble of [testing/synctest]: an hour of backoff takes a millisecond,
// and waits are exact to the nanosecond. Make the server inside the bubble, with the bubble's t.
// A bubble starts in the year 2000; see [Log.Skew] for the effect on resets. If the client
// neither closes a response body nor reads it to its end, the bubble ends with "deadlock".
//
// On a server of your own, such as [net/http/httptest.Server] with TLS, serve
// log.Record(handler) with a [Log]. A Log records requests ([Log.Requests], [Log.Calls]); its
// assertions print the wanted and the actual value, and a transcript of all requests.
//
// # Retries by net/http
//
// If a reused connection breaks before the first byte of the response, [net/http.Transport]
// retries without the caller's knowledge. The method must be safe, or the request must have an
// Idempotency-Key. The Log records the retry too. [ResetBeforeRead] and [ResetAfterRead] send
// a 102 Processing first on such a connection, which prevents it; [CloseAfterRead] does not.
// DisableKeepAlives on [Server.Transport] prevents it too. http.Client follows up to 10
// redirects.
package faulttest
