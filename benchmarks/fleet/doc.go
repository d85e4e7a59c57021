// Package fleet is an experiment in virtual time: a thousand clients and one
// server, through its good and its bad minutes.
//
// The offered load is open-loop: 1000 requests per second on average, at times
// that form a Poisson process and do not depend on what becomes of them, each
// dealt to one of 1000 clients at random. The server is one FIFO queue of at
// most 1000 requests before 12 workers of 10 ms, that is 1200 requests per
// second; a full queue answers 503 at once, and what is in the queue is worked
// on although its client may have left. The base RoundTripper, which is the
// model, gives an attempt up after 500 ms; the caller gives the call up after
// 30 s. The network takes no time.
//
// There are two topologies: one client for all callers, as in a busy service,
// and a thousand clients that know nothing of each other, as in a fleet of small
// ones.
//
// What is random in the model is seeded, so every client meets the same arrivals
// and, call for call, much the same server. What is random in the clients is
// not, and the runtime orders goroutines that wake in the same instant as it
// likes: two runs differ in the last digits.
package fleet
