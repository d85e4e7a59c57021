// Package overhead measures what a library adds to a request that succeeds at
// once, which is nearly every request.
//
// The clients are measured interleaved: each round makes a batch of calls with
// each of them, in an order that rotates, and a client's time counts as the ratio
// to the bare client's in the same round. What is noisy about a machine is noisy
// to all of them, and the median over the rounds leaves it out: rounds are many and
// batches short, so that most of them run from end to end while other programs
// wait.
package overhead
