package resilienthttp

import (
	"context"
	"time"
)

const (
	defaultMaxAttempts   = len(earlyWaits) + 2
	defaultMaxRetryAfter = time.Minute

	// mostAttempts bounds Policy.MaxAttempts: each attempt leaves a record in memory.
	mostAttempts = 100
)

// Policy says how often and when one call is retried, and how long an attempt may take.
// The zero value has the defaults. A Policy is a plain value: a Transport reads its own
// at the first call and not again.
type Policy struct {
	// MaxAttempts is the maximum number of attempts of a call, hedges not counted. Zero
	// means 6, of which the default Backoff makes 5 if no deadline is near. A negative
	// number means one: never retry. The maximum is 100. With the default Backoff, n attempts
	// take the first n-2 waits and the last; two attempts take the first wait, and above six
	// the wait of 5 s is repeated.
	MaxAttempts int

	// AttemptTimeout is the maximum time from sending a request until its response headers
	// arrive. A request body above 64 KiB that makes progress extends it. Set, it is a cut:
	// the next attempt follows. Zero means the call's deadline, or 15 minutes, after which
	// the call ends; a slow safe request gets a second attempt beside it (see
	// docs/defaults.md). A negative duration means none, and no second attempt.
	AttemptTimeout time.Duration

	// Adaptive makes the time after which an attempt is cut, or gets a second one beside it,
	// follow the latencies of the scope, below AttemptTimeout. nil means that it does not.
	AdaptiveTimeout *AdaptiveTimeout

	// ReadTimeout is the longest silence while a response body is read: the time
	// that one Read may block. A reader that takes its time between reads is not
	// counted. It does not apply to 101 Switching Protocols. 0 or a negative
	// duration means none.
	ReadTimeout time.Duration

	// MaxRetryAfter is the longest wait that a server may ask for (Retry-After and similar
	// headers, or the reset of an exhausted quota). If it asks for more, the call ends at
	// once with its response; the last Attempt has the wait and ErrRetryAfter. Zero means
	// 60 s. A negative duration means no limit.
	MaxRetryAfter time.Duration

	// Backoff returns the wait before a retry. The wait that the server asks for is added
	// to it. It must be safe for concurrent use. nil means up to 100 ms, 500 ms, 2.5 s and
	// 5 s, and then until shortly before the deadline; without a deadline, or with more than
	// a minute left, within 10 s of the first failure. After overload and timeouts, and
	// while the scope only fails, early waits are left out: see docs/defaults.md. A wait
	// that the server asks for is then a minimum, to which up to half of it is added.
	Backoff Backoff

	// Classify overrides the classification of an attempt. It may look at the
	// status and the headers, and must not read the body or keep the Attempt.
	// Returning VerdictDefault leaves the decision to the table; nil does so
	// always. It changes what is repeated, not what the circuit breaker counts.
	// It must be safe for concurrent use.
	Classify func(*Attempt) Verdict

	// ClassifyBody is Classify for APIs whose body says more than their status: a 429
	// of a quota that no waiting brings back, a 400 for a lock that was taken. It gets
	// the first 16 KiB of a 4xx's or 5xx's body, or what has come of them in 100 ms,
	// which count as the attempt's Latency; the caller still reads the body whole. It
	// must not keep the bytes. It is called before Classify, which sees its verdict in
	// Attempt.Verdict and may overrule it, and not at all for other statuses nor for
	// streams (text/event-stream, NDJSON, gRPC). Bytes are as Base gives them: compressed
	// if the caller has set Accept-Encoding itself. nil, and VerdictDefault, leave the
	// decision to the table. It must be safe for concurrent use.
	ClassifyBody func(*Attempt, []byte) Verdict
}

// withDefaults is the policy with the defaults in their places, save those of Backoff
// and AttemptTimeout, which depend on what happens.
func (p Policy) withDefaults() Policy {
	switch {
	case p.MaxAttempts == 0:
		p.MaxAttempts = defaultMaxAttempts
	case p.MaxAttempts < 0:
		p.MaxAttempts = 1
	case p.MaxAttempts > mostAttempts:
		p.MaxAttempts = mostAttempts
	}
	if p.MaxRetryAfter == 0 {
		p.MaxRetryAfter = defaultMaxRetryAfter
	}
	p.AdaptiveTimeout = p.AdaptiveTimeout.withDefaults()
	return p
}

// WithPolicy returns a context whose calls follow p instead of
// Transport.Policy, all of it: fields left at zero mean the documented defaults,
// not the Transport's, its ClassifyBody and AttemptTimeout among them. To change one
// field, change a copy of the policy that the Transport was given:
//
//	policy := transport.Policy
//	policy.MaxAttempts = 2
//	ctx = resilienthttp.WithPolicy(ctx, policy)
func WithPolicy(ctx context.Context, p Policy) context.Context {
	p = p.withDefaults()
	return withOptions(ctx, func(o *options) { o.policy = &p })
}

// SingleAttempt returns a context whose calls make one attempt each, without
// retry or hedge, because another layer owns the retries: a queue that delivers
// again, a workflow engine, a caller upstream. Keys, gates and deadlines stay in
// force. Three layers of three attempts are 27 calls at the bottom; one owner
// keeps them at three. SDKs that tell of their retries in headers are noticed without
// it (see ErrSingleAttempt); it is for those that do not.
func SingleAttempt(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.single = true })
}

// Verdict is what one attempt's outcome means for the call.
type Verdict int

const (
	// VerdictDefault leaves the decision to the classification table.
	VerdictDefault Verdict = iota
	// VerdictSuccess ends the call with this response.
	VerdictSuccess
	// VerdictPermanent ends the call too: a retry would have the same result.
	VerdictPermanent
	// VerdictTransient means that the failure may pass, and is retried.
	VerdictTransient
	// VerdictThrottled means that the server asks for fewer requests. It is retried.
	VerdictThrottled
)

// String is the verdict's name in lower case, for logs.
func (v Verdict) String() string {
	switch v {
	case VerdictDefault:
		return "default"
	case VerdictSuccess:
		return "success"
	case VerdictPermanent:
		return "permanent"
	case VerdictTransient:
		return "transient"
	case VerdictThrottled:
		return "throttled"
	default:
		return "unknown"
	}
}

// retryable reports whether the verdict calls for another attempt.
func (v Verdict) retryable() bool { return v == VerdictTransient || v == VerdictThrottled }
