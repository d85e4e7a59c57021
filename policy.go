package resilienthttp

import (
	"context"
	"time"
)

const (
	defaultMaxAttempts   = 4
	defaultMaxRetryAfter = time.Minute

	// mostAttempts bounds Policy.MaxAttempts: each attempt leaves a record, and
	// who needs more repetitions than this needs a durable queue.
	mostAttempts = 100
)

// Policy says how often, how long and how far apart one call is attempted. The
// zero value holds the defaults. A Policy is a plain value; the Transport that
// got it reads it at its first call and not again.
type Policy struct {
	// MaxAttempts is the number of attempts that a call may make, the first and
	// copies of slow ones included, hedges not. 0 means 4; a negative number means never to retry;
	// more than 100 means 100.
	MaxAttempts int

	// AttemptTimeout is how long one attempt may take, from its sending until the
	// response headers are there; the time that gates and backoff take is not part of
	// it, nor is the reading of the response's body. As long as a request body of more
	// than 64 KiB, or of unknown length, makes progress on its way, the time begins
	// anew. The call's own deadline ends the attempt in any case.
	//
	// Set, it is a cut: the attempt fails then, and the call goes on to the next. A
	// negative duration means that there is none. 0, the default, knows that a slow
	// answer is not a failure. Nothing is cut before the call's deadline, or 2 min
	// without one, after which there is one more attempt at most. Instead, a request
	// that is safe, or bears a key of the caller's own (by WithIdempotencyKey or the
	// header), gets a copy beside it when it has no answer after 30 s, or half of the
	// time that is left of the deadline; the copy in turn when half of the rest has
	// passed; save upgrades (WebSocket) and what accepts text/event-stream, whose answers
	// take their time anyway. For other long polls, and for GETs that are not safe to be
	// sent twice, set a negative duration. The first is left running, and the first answer wins. Such a copy is an
	// attempt as any other: it counts, pays the Budget, and passes the gates, where it
	// does not wait. Copies have to be worth their while: as long as most of a scope's are
	// overtaken by what they were sent beside, there is one at a time, and when one was,
	// none for 10 s or more. A POST under a generated key gets none: not every server
	// honours keys that it is sent unasked.
	AttemptTimeout time.Duration

	// Adaptive makes the time after which an attempt is cut, or gets a copy beside it,
	// follow how long the scope's answers take, below AttemptTimeout. nil means that it
	// does not.
	Adaptive *AdaptiveTimeout

	// ReadTimeout is the longest silence while a response body is read: the time
	// that one Read may block. A reader that takes its time between reads is not
	// counted. It does not apply to 101 Switching Protocols. 0 or a negative
	// duration means none.
	ReadTimeout time.Duration

	// MaxRetryAfter is the longest wait asked by the server (Retry-After and its
	// kin, or the reset of an exhausted quota) that is slept. When the server
	// asks for more, the call stops at once with the response it has, whose last
	// Attempt bears the wait and ErrRetryAfter. 0 means 60 s; a negative duration
	// means no limit.
	MaxRetryAfter time.Duration

	// Backoff gives the wait before a retry; what the server asked for is added
	// to it. It must be safe for concurrent use.
	//
	// nil means FullJitter(100ms, 10s) where the failure is the call's own. One that
	// is everybody's spreads the attempts that are left: a timeout, 503 or 529, a 429
	// that asks for no wait, and from the second retry on any failure while nobody is
	// known to be served (see Budget). Then the wait is drawn from an even part of the
	// time that is left before the deadline (without one, 30 s count as left), and
	// after a first attempt from an eighth of it, 4 s at most; unless the Budget's
	// share covers the retry, which is then the first case. To a wait that the server
	// asks for, up to half of it is added.
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
	p.Adaptive = p.Adaptive.withDefaults()
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
	// VerdictPermanent ends the call too: repeating would not change the outcome.
	VerdictPermanent
	// VerdictTransient means that the failure may pass: worth a retry.
	VerdictTransient
	// VerdictThrottled means that the server asks for less: worth a retry, later.
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
