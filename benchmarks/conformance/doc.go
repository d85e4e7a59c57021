// Package conformance runs faulttest.TestTransport with each library, as its users would.
//
// UPDATE_DOCS=1 go test ./benchmarks/conformance writes the table of docs/testing.md.
package conformance
