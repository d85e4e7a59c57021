// Package benchmarks compares this library with other libraries. README.md in this directory
// lists the packages, the commands and the results:
//
//	go run ./benchmarks/cmd/fleet     # packages fleet and zoo: failures and limits of a server, in virtual time
//	go run ./benchmarks/cmd/overhead  # package overhead: costs of a successful request
//
// The commands write benchmarks/results; fleet does so only with -write.
// -h lists the flags. With UPDATE_DOCS=1, tests write tables. The tests of this
// module are short versions of the same experiments.
package benchmarks
