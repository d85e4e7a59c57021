// Package benchmarks sets this library beside its peers, by experiments that
// anybody can repeat. From the root of the repository,
//
//	go run ./benchmarks/cmd/fleet -write # package fleet: servers in trouble, and their clients
//	go run ./benchmarks/cmd/overhead   # package overhead: what a request that succeeds costs
//	go run ./benchmarks/cmd/matrix     # package matrix: how each library behaves
//	go run ./benchmarks/cmd/jitter     # package jitter: calls by backoff strategy
//
// make one experiment each with all that is in package peers, and rewrite its
// section of docs/performance.md and its plots, docs/*.svg; fleet runs this library
// and a bare client, and with -all the others. Each says with -h how
// to ask for less; then it prints what it measures, and writes nothing:
//
//	go run ./benchmarks/cmd/fleet                           # a scoreboard: one seed, all targets
//	go run ./benchmarks/cmd/fleet -group=small,blips        # a part of it
//	go run ./benchmarks/cmd/fleet -scenario=outage,7 -topology=own -peer=ours,bare -series
//	go run ./benchmarks/cmd/fleet -scenario=fleet -peer=ours -seconds=20
//	go run ./benchmarks/cmd/fleet -random=300               # random compositions of troubles
//	go run ./benchmarks/cmd/fleet -random-only=17 -series   # one of them
//	go run ./benchmarks/cmd/fleet -all -write -keep=/tmp/fleet.json # all libraries; can be broken off, and goes on where it was
//	go run ./benchmarks/cmd/fleet -docs=/tmp -plots=png     # writes there, whatever runs are made
//	go run ./benchmarks/cmd/overhead -peer=resilienthttp -rounds=5
//	go run ./benchmarks/cmd/matrix -write=false
//	go run ./benchmarks/cmd/jitter -seeds=5 -write=false
//
// The tests of this module are short forms of the same: a few virtual seconds of
// the fleet, each peer's answers to the matrix, and the paper's ratios.
package benchmarks
