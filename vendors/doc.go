// Package vendors has Transports for well-known APIs, configured as the API documents: which
// hosts honour idempotency keys, in which header, of which length, which error codes are
// transient or permanent, and how long a response may take.
//
//	client := &http.Client{Transport: vendors.Stripe()}
//
// Each call of a function returns a new [resilienthttp.Transport] with its own budget, breaker
// and limits. The caller may modify it before its first use. The hosts parameter adds hosts to
// the vendor's own, for example a proxy or a mock: a host in lower case, with a port or for
// all ports, such as "localhost:12111" or "*.example.com".
//
// Requests to other hosts get no idempotency key and no vendor rules, for example after a
// redirect. If an API does not honour keys, none is sent: a POST is then retried only if it was
// not executed, or if it is a completion of a model, which may be done and billed twice. Some APIs say in words of their own
// that a limit has rejected a request: then the profile sets Attempt.NotExecuted. X-Request-Deadline is not sent, because
// these APIs do not know it.
//
//	           keys                                      error codes and limits
//	Stripe     Idempotency-Key, 255 characters, 24 h     lock_timeout, idempotency_key_in_use: retried
//	PayPal     PayPal-Request-Id, 108 characters, 6 h    PREVIOUS_REQUEST_IN_PROGRESS: retried
//	Adyen      Idempotency-Key, 64 characters, 7 d       transient-error: true: retried; 704 without it: not
//	Square     in the body: see [Square]                 TEMPORARY_ERROR: retried
//	GitHub     none                                      403 of a secondary limit: not executed; all calls wait a minute
//	OpenAI     none; completions are retried             429 of billing: not retried; streams: see [OpenAI]
//	Azure      none                                      as OpenAI; one scope for each deployment
//	Anthropic  none; completions are retried             429 of a spend limit: not retried; overloaded: not executed
//	Google     none                                      wait of the body; 403 of a rate: not executed; quota of a day: not retried
//	Slack      none                                      one scope for each method
//	Atlassian  none                                      one scope for each site
//	Shopify    in the body: see [Shopify]                one scope for each shop, which is its host
//	Twilio     none                                      429 of a verification: not retried
//
// Each function names its sources and the day on which they were read. None sets a rate limit,
// because published rates depend on the plan. The Transport follows rate-limit headers. If you
// know your rate, set RateLimit.Limit.
//
// AWS has no profile. Its requests are signed for one attempt, so the signer must be the
// Transport's Base: see docs/sdks.md.
package vendors
