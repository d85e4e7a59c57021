// Package lab is a page that answers the question which values to set, before an outage does. A
// user chooses clients, a server, a failure, libraries and a configuration. The lab runs them in
// virtual time with package fleet, and compares them with a bare client.
//
// The page is served on a loopback address by benchmarks/cmd/lab. Each run is a child process of
// the same binary, because a bubble that panics or deadlocks ends its process. The child reads
// the [Spec.Query] from its standard input, and writes its progress and its [Report] to its standard
// output.
package lab
