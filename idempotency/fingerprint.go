package idempotency

import "net/http"

// Fingerprint tells requests apart: two with the same are the same request. It
// begins with the version of the rule that made it, "v1:".
type Fingerprint string

// NewFingerprint makes the fingerprint of a consumer's message from its parts.
func NewFingerprint(parts ...[]byte) Fingerprint { panic("not yet") }

// RequestFingerprint makes the fingerprint of a request whose body has been read.
func RequestFingerprint(r *http.Request, body []byte) Fingerprint { panic("not yet") }
