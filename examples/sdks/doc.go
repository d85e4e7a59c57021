// Package sdks holds tests: well-known SDKs and RoundTrippers over, under and beside a
// resilienthttp.Transport, each as docs/under-your-sdk.md says.
package sdks
