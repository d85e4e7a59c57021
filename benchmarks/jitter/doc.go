// Package jitter simulates clients with a backoff that contend for one database row. It
// is the experiment of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture
// Blog, 2015 (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
//
// The model is that of its public simulator
// (https://github.com/aws-samples/aws-arch-backoff-simulator). Clients read the version of
// the row and write it under optimistic concurrency control. Of the clients with the same
// version, the first write succeeds; the others start again after a backoff. A message takes
// |normal(10 ms, 2 ms)|. All clients start at the same time, and each needs one successful
// write.
//
// UPDATE_DOCS=1 go test ./benchmarks/jitter writes benchmarks/results/jitter.md.
package jitter
