// Package memhttp runs real net/http, its server and its [http.Transport], over
// in-memory connections, so that code that waits can be tested in the virtual
// time of a [testing/synctest] bubble. It is for this module's tests alone.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			time.Sleep(time.Hour)
//		}))
//		client := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
//		_, err := client.Get(s.URL) // fails after exactly one virtual minute
//	})
//
// Everything that blocks here does so in [sync.Cond.Wait], in a select on
// channels of the bubble, or in a timer of the bubble: durably, as synctest
// calls it. The same code works outside a bubble, in real time.
//
// A connection behaves as a TCP connection of Linux does, down to the errors
// (see [Conn]). TestConnLikeTCP holds it to that by running the same steps over
// a loopback socket.
//
// # What a test in a bubble must know
//
// Make the server inside the bubble, with the bubble's own t. Cleanups of that
// t run inside the bubble, before its last goroutine is waited for (Go 1.26),
// so [Server.Close] runs by itself at the right moment. With the outer t it
// would run outside, and the runtime ends the process.
//
// Virtual time stands still once the test function and its cleanups are over.
// A goroutine that still sleeps then is reported as a deadlock, which is why
// Close waits for every handler and every connection of the server: in virtual
// time an hour of waiting is free. It cannot wait for goroutines that a handler
// starts, as [http.TimeoutHandler] does: they must heed r.Context().
//
// Cleanups run in reverse order. What a handler waits for must be released
// before Close: by a defer in the test, by a cleanup registered after the
// server's, or, best, by having the handler also wait for r.Context(), which
// Close ends.
//
// A response body that is neither read to its end nor closed leaves a goroutine
// of net/http behind, and the bubble ends with "deadlock: main bubble goroutine
// has exited but blocked goroutines remain". That is a true leak of the code
// under test, not a fault of the test; look for persistConn.readLoop among the
// stacks. Two things hide such a leak: a request made with t.Context(), which
// ends before the cleanups run, and HTTP/2, whose connection ends it.
//
// Waiting for a [sync.Mutex] is not durable. net/http holds one while it reads
// a request body, or writes an HTTP/2 frame, on a connection that is not ready;
// a second goroutine that wants the same lock keeps virtual time from moving.
// A test that hangs in real time usually does one of two things: its handler
// answers while another goroutine of it is still blocked reading r.Body, or its
// HTTP/2 peer has stopped reading.
//
// Two timers of one instant fire in either order. A test that sleeps for exactly
// the timeout it tests is a coin toss.
//
// A bubble starts in the year 2000. Certificates must be valid then, as those
// of the option [TLS] are.
package memhttp
