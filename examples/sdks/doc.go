// Package sdks has tests of well-known SDKs and RoundTrippers with a resilienthttp.Transport, as
// docs/sdks.md describes them.
package sdks
