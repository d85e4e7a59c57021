package idempotency

// Fingerprint tells requests apart: two with the same are the same request. It
// begins with the version of the rule that made it, "v1:".
type Fingerprint string
