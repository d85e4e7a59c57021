// Package matrix finds out how each library behaves, by asking it: each probe is
// a scripted server, and a look at what reached it and what came back. The probes
// run in virtual time.
package matrix
