// Package matrix tests the behavior of each library in virtual time. A probe is a scripted
// server, with a check of the requests that it received and of the result.
//
// UPDATE_DOCS=1 go test ./benchmarks/matrix writes benchmarks/results/behavior.md.
package matrix
