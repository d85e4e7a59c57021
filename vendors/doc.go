// Package vendors has a Transport for each of some well-known APIs, set up as their
// documents ask: where keys are honoured, under which name and how long, which answers
// pass and which never will, and how long an answer may take.
//
//	client := &http.Client{Transport: vendors.Stripe()}
//
// What a function returns is a [resilienthttp.Transport] like any other: change what you
// like before its first use. Each call of it makes a new one, with a budget, a breaker
// and limits of its own. The hosts that it takes are meant beside the vendor's own: a
// proxy, or the address of a mock, "localhost:12111". Each is a host in lower case, with
// a port or for all ports, or "*.example.com".
//
// For other hosts such a Transport is one without keys: redirects and mistakes in a URL
// take none to strangers. And where an API honours no keys, none are sent, so that no
// POST is repeated that could have been done: a profile makes no request repeatable that
// bears no key. X-Request-Deadline is not sent: these APIs do not know it.
//
//	           keys                                      what else
//	Stripe     Idempotency-Key, 255 characters, 24 h     lock_timeout, idempotency_key_in_use: again
//	PayPal     PayPal-Request-Id, 108 characters, 6 h    PREVIOUS_REQUEST_IN_PROGRESS: again
//	Adyen      Idempotency-Key, 64 characters, 7 d       transient-error: true: again; 704 without it: not
//	Square     in the body: see [Square]                 TEMPORARY_ERROR: again
//	GitHub     none                                      403 of a secondary limit: throttled
//	OpenAI     none                                      429 of billing: not again; 10 min, 60 s of silence
//	Azure      none                                      as OpenAI; a scope for each deployment
//	Anthropic  none                                      429 of a spend limit: not again; overloaded: throttled
//	Slack      none                                      a scope for each method
//	Shopify    none                                      a scope for each shop, which is its host
//	Twilio     none                                      429 of a verification: not again
//
// The documents behind each row are named at its function, with the day on which they were
// read. None sets a rate: those that are published depend on the plan, and what the
// servers say in their headers is heeded anyway. Set RateLimit.Limit where you know yours.
//
// AWS is not among them. Its requests are signed, and a signature is of one attempt, so
// the signer goes below, as Transport.Base: see docs/under-your-sdk.md.
package vendors
