// Package faulttest tests HTTP clients against a server that misbehaves to
// order. A scenario is a line or two, and so is what is asserted of the client:
//
//	srv := faulttest.New(t, faulttest.Sequence(
//		faulttest.Unavailable(2*time.Second, faulttest.Seconds),
//		faulttest.ResetAfterRead,
//		faulttest.OK(`{"id":1}`),
//	))
//	charge, err := sdk.New(srv.URL).Charge(ctx, 100)
//	srv.AssertAttempts(t, 3) // one call, three attempts
//	srv.AssertKeys(t, 1)     // under one idempotency key
//
// It needs nothing but net/http, and works with every client.
//
// # Everything is a handler
//
// A [Reply] is what happens to one request: an answer, slow or broken or
// throttled, or none. [Status], [OK], [Redirect], [Unavailable], [Throttled] and
// [Lose] make the frequent ones, and each [Fault] is one by itself. A [Sequence]
// has a turn for each of them, a [Cycle] begins again; a [Script] is a table of rules by route,
// predicate, time, chance and number. A [Quota] and an [Idempotent] are endpoints
// with a memory. All are http.Handlers, all take any http.Handler in the place
// of another, and so they nest, among themselves and with yours:
//
//	charges := &faulttest.Idempotent{Work: time.Second}
//	srv := faulttest.New(t, faulttest.Script{
//		{From: 10 * time.Second, To: 40 * time.Second, Do: faulttest.Status(503)},
//		{Route: "POST /charges", Do: faulttest.PerKey(faulttest.LoseResponse(charges), charges)},
//		{Do: &faulttest.Quota{Limit: 100, Dialect: faulttest.GitHub}},
//	})
//	...
//	charges.AssertExactlyOnce(t, 1)
//
// # Fronts
//
// [New] starts a server on a loopback socket. [NewInMemory] starts one on an
// in-memory network, which works in a bubble of [testing/synctest], where an hour
// of backoff takes a millisecond and waits can be compared to the nanosecond:
//
//	synctest.Test(t, func(t *testing.T) {
//		srv := faulttest.NewInMemory(t, faulttest.Throttled(faulttest.OpenAI, time.Hour))
//		client := sdk.NewWithHTTP(srv.URL, srv.Client())
//		...
//	})
//
// Make the server inside the bubble, with the bubble's t. A bubble begins in the
// year 2000: see [Log.Skew] for what that means for resets. A response body that the client neither reads to its
// end nor closes makes the bubble end with "deadlock": that is a leak of the
// client's.
//
// On a server of your own, an [net/http/httptest.Server] with TLS or HTTP/2 for
// instance, serve log.Record(handler) with a [Log], or the handler alone.
//
// # Assertions
//
// A Log records what has come, and what came of it: [Log.Requests], [Log.Calls].
// Its assertions print what they wanted and the transcript of what happened:
//
//	faulttest: attempts of each call
//	want: 3
//	got:  2
//
//	#  at     conn      request        key  outcome           took
//	1  0s     1         POST /charges  k-1  503               0s
//	2  1.52s  1 reused  POST /charges  k-1  reset after read  0s
//
// # What net/http does by itself
//
// When a connection that has carried a request before breaks before the first
// byte of the answer, [net/http.Transport] sends the request again, at once and
// untold, if its method is safe or it has an Idempotency-Key, and its body can be
// had again. Such a request is one more in the Log, after no wait. To have them seen
// by the code under test, [ResetBeforeRead] and [ResetAfterRead] send a 102
// Processing first on such a connection; [CloseAfterRead] does not, so that what
// net/http does can be tested too. With DisableKeepAlives on
// [Server.Transport] it never does.
//
// And http.Client follows up to 10 redirects.
package faulttest
