// Package zoo draws rate limiters and the calls that meet them, and compares a library with a bare
// client and with an oracle, which knows the server's counters, in virtual time.
//
// A [Draw] has one or two limits of a kind (windows, buckets, requests at once), headers of a
// dialect that tell all, a part or something wrong, rejections with a status and a Retry-After, a
// load, and at times other failures. [New] draws it from a seed and a number. [Draw.Try] runs it,
// and [Trial.Judge] compares the figures with each [Criterion].
//
// Two runs of a bare client or of the oracle have the same figures: no two events of the model have
// the same time. A library's jitter is not seeded, so its figures differ by chance.
package zoo
