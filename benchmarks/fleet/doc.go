// Package fleet is an experiment in virtual time: clients and a server, through
// its good and its bad minutes.
//
// The fleet's own load is open-loop: 1000 requests per second on average, at times
// that form a Poisson process and do not depend on what becomes of them, each
// dealt to one of 1000 clients at random. The server is one FIFO queue of at
// most 1000 requests before 12 workers of 10 ms, that is 1200 requests per
// second; a full queue answers 503 at once, and what is in the queue is worked
// on although its client may have left. The base RoundTripper, which is the
// model, gives an attempt up after 500 ms; the caller gives the call up after
// 30 s. The network takes no time. A scenario says where it differs.
//
// There are two topologies: one client for all callers, as in a busy service,
// and clients that know nothing of each other, as in a fleet of small ones.
//
// What is random in the model hangs on the seed, the call and the attempt, so every
// client meets the same arrivals and, attempt for attempt, the same luck. What is
// random in the clients is not seeded, and the runtime orders goroutines that wake
// in the same instant as it likes: two runs differ in the last digits. Timers are
// never late in virtual time: what comes of that is measured on real clocks.
//
// # How to add a trouble
//
// Add a [Scenario] to the function of its kind: [refusals] that ask to come back,
// [errorShares], [backends], [hangs], [paths], [crons], [limits], [crowds], [smallFleets]
// or [blips]; a new kind is a file of its own, and a line in [troubleGroups]. Say
//
//   - in Before, During and After when it is there;
//   - in Server what befalls whom: a [Fault] for each trouble (when, on which path,
//     of which backends, which share, what it answers), a [Limit], [Staff] for
//     stretches with other workers; the first fault that befalls a request decides;
//   - in Load who calls: how often, with which deadline, from how many clients;
//   - in Goals what is to be reached, and in Shows which of them the plot shows, if it
//     is not the success of all calls. That nothing gets worse than with a bare
//     client holds everywhere, and need not be said.
//
// Then `go run ./benchmarks/cmd/fleet -scenario=its-name` runs it, with -group all of
// its kind, and -peer=defaults -remember measures the libraries that it is held beside.
// What no kind of fault can tell becomes a field of [Answer] or [Server], with a row in
// their tests. [Compose] draws from the same parts.
//
// # Gates
//
// A [Scenario] may have a Gate before the server's workers: a real server's handler,
// such as admission.Shedder, in the same virtual time. These scenarios stand beside
// the others, under the name gates, and have a section of their own.
package fleet
