// Package memhttp runs net/http's server and [http.Transport] over in-memory connections. Code
// that waits can then be tested in the virtual time of a [testing/synctest] bubble.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			time.Sleep(time.Hour)
//		}))
//		client := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
//		_, err := client.Get(s.URL) // fails after exactly one virtual minute
//	})
//
// All waits of this package are durable, as synctest calls it. Outside of a bubble the same
// code works in real time. A connection behaves as a TCP connection of Linux, including its
// errors (see [Conn]); TestConn_behavesLikeTCP compares it with a loopback socket.
//
// # Rules for tests in a bubble
//
//   - Make the server inside the bubble, with the bubble's t. Its cleanups run inside the
//     bubble, so [Server.Close] runs at the right time. With the outer t, Close would run
//     outside, and the runtime would end the process.
//   - Virtual time stops at the end of the test's cleanups. Close therefore waits for all
//     handlers and connections of the server. It does not wait for goroutines that a handler
//     starts, as [http.TimeoutHandler] does: these must end with r.Context().
//   - Cleanups run in reverse order. Release a handler before Close: in a defer, in a later
//     cleanup, or by letting the handler also wait for r.Context(), which Close ends.
//   - A response body that is neither closed nor read to its end leaks a goroutine. The
//     bubble then ends with "blocked goroutines remain": look for persistConn.readLoop in
//     the stacks. A request with t.Context() hides such a leak, and
//     so does HTTP/2.
//   - Waiting for a [sync.Mutex] is not durable. net/http holds one while it reads a request
//     body or writes an HTTP/2 frame. A test hangs in real time if a handler answers while
//     another goroutine still reads r.Body, or if an HTTP/2 peer has stopped reading.
//   - Two timers with the same time fire in either order. Do not sleep for exactly the timeout
//     under test.
//   - A bubble starts in the year 2000. Certificates must be valid then, as those of [TLS] are.
package memhttp
