// Package fleet simulates clients of one server in virtual time, with faults, limits and
// overload. [Run] makes one run of a [Scenario] with one library.
//
// The default load is open: 1000 calls per second in a Poisson process, from 1000 clients.
// The default server has a FIFO queue of at most 1000 requests and 12 workers of 10 ms, which
// is 1200 requests per second. A full queue returns 503 at once. The server finishes a request
// even if its client has left. An attempt has a timeout of 500 ms, and a call a deadline of
// 30 s. The network has no latency. A scenario sets what differs.
//
// There are two topologies: one Transport for all callers, as in a busy service, and one
// Transport for each client, without shared state, as in a fleet of small processes.
//
// Random values of the model depend on the seed, the call and the attempt, so every library
// gets the same arrivals and the same faults. The clients' jitter is not seeded, and the
// runtime orders goroutines that wake at the same instant at random. Therefore two runs differ
// in the last digits. Timers are exact in virtual time.
//
// benchmarks/README.md describes how to add a scenario.
//
// # Gates
//
// A Scenario may have a Gate in front of the server's workers: the handler of a real server,
// for example admission.Shedder, in the same virtual time.
package fleet
