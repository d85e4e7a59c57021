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
// It depends only on net/http and works with every client. See docs/testing.md.
//
// # Handlers
//
// A [Reply] describes the response to one request, with its delays and faults. Each [Fault] is a
// handler too. [Sequence], [Cycle] and [PerKey] use one handler after the other. A [Script] is a
// table of rules by route, predicate, time, probability and number. [Quota] and [Idempotent] are
// endpoints with state. All are http.Handlers and accept any http.Handler, so they can be nested.
//
// # Servers
//
// [New] starts a server on a loopback socket. [NewInMemory] starts one on an in-memory network,
// which also works in a bubble of [testing/synctest]: make it inside the bubble, with the bubble's
// t. A bubble starts in the year 2000; see [Log.Skew] for the effect on resets. If the client
// neither closes a response body nor reads it to its end, the bubble ends with "deadlock".
//
// A Server speaks HTTP/1.1, or HTTP/2 with [Server.HTTP2]. [Server.Silence] makes its connections
// silent, as a machine that has died.
//
// On a server of your own, serve log.Record(handler) with a [Log]. A Log records requests
// ([Log.Requests], [Log.Calls]). Its assertions print the wanted and the actual value, and a
// transcript of all requests.
//
// # Conformance
//
// [TestTransport] tests any client that repeats requests, row by row: what is sent twice, what is
// waited for, what is left open.
//
// # Retries by net/http
//
// If a reused connection breaks before the first byte of the response, [net/http.Transport]
// retries a safe or keyed request without the caller's knowledge. [ResetBeforeRead] and
// [ResetAfterRead] prevent it with a 102 Processing; [CloseAfterRead] does not. DisableKeepAlives
// on [Server.Transport] prevents it too. http.Client follows up to 10 redirects.
package faulttest
