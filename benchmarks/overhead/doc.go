// Package overhead measures what a library adds to a request that succeeds at once.
//
// The clients take turns: each round makes a batch of calls with each client, in a rotating
// order. A client's result is the ratio of its time to the bare client's time in the same
// round, and the median over the rounds. Noise of the machine affects all clients of a round.
// Rounds are many and short, so that most of them are not interrupted.
//
// The tables of MemoryCPU, LoopbackCPU and Hosts have the lower quartile of CPU times instead, without the garbage collector.
package overhead
