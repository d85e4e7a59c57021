package resilienthttp

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/latency"
)

const (
	defaultMaxAttempts   = 6
	defaultMaxRetryAfter = time.Minute

	// maxMaxAttempts bounds Policy.MaxAttempts: each attempt leaves a record in memory.
	maxMaxAttempts = 100
)

// Policy controls the retries and timeouts of a call. The zero value has the defaults. A
// Policy is a plain value: a Transport reads its own at the first call and not again.
type Policy struct {
	// MaxAttempts is the maximum number of attempts of a call, hedges not counted. Zero means
	// 6, of which the default Backoff makes 5 if no deadline is near. A negative number means
	// one: never retry. The maximum is 100. With the default Backoff, n attempts take the
	// first n-2 waits and the last; two take the first wait, and above six the wait of 5 s
	// is repeated.
	MaxAttempts int

	// AttemptTimeout is the maximum time from sending a request until its response headers
	// arrive. A request body above 64 KiB that makes progress extends it. The next attempt
	// follows. Zero means the call's deadline, or 15 minutes, after which the call ends; a
	// slow safe request gets a second attempt beside it (see docs/defaults.md). A negative
	// duration means none, and no second attempt.
	AttemptTimeout time.Duration

	// AdaptiveTimeout ends an attempt, or sends a second one beside it, after a time that
	// follows the latencies of the scope. nil means that nothing does.
	AdaptiveTimeout *AdaptiveTimeout

	// ReadTimeout is the maximum time for which one Read of a response body may block. The
	// time between reads does not count. It does not apply to 101 Switching Protocols. Zero
	// or a negative duration means none.
	ReadTimeout time.Duration

	// MaxRetryAfter is the longest wait that a server may ask for, by Retry-After and similar
	// headers or by the reset of an exhausted quota. If it asks for more, the call ends at
	// once with its response; the last Attempt has the wait and ErrRetryAfter. Zero means
	// 60 s. A negative duration means no limit.
	MaxRetryAfter time.Duration

	// Backoff returns the wait before a retry; the wait that the server asks for is added.
	// nil means up to 100 ms, 500 ms, 2.5 s and 5 s, and then until shortly before the
	// deadline, or within 10 s of the first failure if no deadline is near. After overload
	// and timeouts, and while the scope only fails, early waits are left out; a wait that the
	// server asks for is a minimum. It must be safe for concurrent use. See docs/defaults.md.
	Backoff Backoff

	// Classify overrides the classification of an attempt by its status, header and error.
	// VerdictDefault leaves the decision to the table, as a nil Classify does. It must not
	// read the body nor keep the Attempt. It changes the retries, and not what the circuit
	// breaker counts. It must be safe for concurrent use.
	Classify func(*Attempt) Verdict

	// ClassifyBody is Classify with the first 16 KiB of the body of a 4xx or 5xx response, or
	// what comes of them in 100 ms. The caller still reads the whole body. It is called before
	// Classify, but not for streams (text/event-stream, NDJSON, gRPC). The bytes are as Base
	// returns them, maybe compressed, and must not be kept. nil and VerdictDefault leave the
	// decision to the table. It must be safe for concurrent use.
	ClassifyBody func(*Attempt, []byte) Verdict
}

// withDefaults leaves the defaults of Backoff and AttemptTimeout open: they depend on events.
func (p Policy) withDefaults() Policy {
	switch {
	case p.MaxAttempts == 0:
		p.MaxAttempts = defaultMaxAttempts
	case p.MaxAttempts < 0:
		p.MaxAttempts = 1
	case p.MaxAttempts > maxMaxAttempts:
		p.MaxAttempts = maxMaxAttempts
	}
	if p.MaxRetryAfter == 0 {
		p.MaxRetryAfter = defaultMaxRetryAfter
	}
	p.AdaptiveTimeout = p.AdaptiveTimeout.withDefaults()
	return p
}

// callOptions is what a context says about its calls, in one value.
type callOptions struct {
	policy   *Policy
	key      string
	traces   []*Trace
	priority int8
	single   bool // another layer owns the retries,
	owned    bool // and attempts say so to the server
}

type optionsKey struct{}

// A Transport inside a Transport gets nestedOptions: policy, key and hooks of the context
// belong to the outer call, which also owns the retries.
var (
	noOptions          = &callOptions{}                          //nolint:gochecknoglobals // never written to
	nestedOptions      = &callOptions{single: true}              //nolint:gochecknoglobals // never written to
	nestedOptionsOwned = &callOptions{single: true, owned: true} //nolint:gochecknoglobals // never written to
)

func optionsOf(ctx context.Context) *callOptions {
	if o, ok := ctx.Value(optionsKey{}).(*callOptions); ok {
		return o
	}
	return noOptions
}

func withOptions(ctx context.Context, change func(*callOptions)) context.Context {
	o := *optionsOf(ctx)
	o.traces = slices.Clip(o.traces)
	change(&o)
	return context.WithValue(ctx, optionsKey{}, &o)
}

// WithPolicy returns a context whose calls use p instead of Transport.Policy, as a whole:
// fields that are zero mean the documented defaults. To change one field, change a copy of
// the Transport's policy:
//
//	policy := transport.Policy
//	policy.MaxAttempts = 2
//	ctx = resilienthttp.WithPolicy(ctx, policy)
func WithPolicy(ctx context.Context, p Policy) context.Context {
	p = p.withDefaults()
	return withOptions(ctx, func(o *callOptions) { o.policy = &p })
}

// SingleAttempt returns a context whose calls make one attempt each, without retry or hedge,
// because another layer owns the retries: a queue, a workflow engine, an outer client. Keys,
// gates and deadlines stay in force. SDKs that report their retries in headers are recognized
// without it: see ErrSingleAttempt.
func SingleAttempt(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *callOptions) { o.single = true })
}

// Verdict is the meaning of an attempt's outcome for the call.
type Verdict int

const (
	// VerdictDefault leaves the decision to the classification table.
	VerdictDefault Verdict = iota
	// VerdictSuccess ends the call with the response.
	VerdictSuccess
	// VerdictPermanent ends the call: a retry would have the same result.
	VerdictPermanent
	// VerdictTransient is a failure that is retried.
	VerdictTransient
	// VerdictThrottled means that the server asks for fewer requests. It is retried.
	VerdictThrottled
)

// String returns the verdict's name in lower case.
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

func (v Verdict) retryable() bool { return v == VerdictTransient || v == VerdictThrottled }

// AdaptiveTimeout derives the time that an attempt may take from the latencies of the scope:
// Multiple times their Quantile in the last minute, and twice as long for each retry. After
// that time a set Policy.AttemptTimeout, which is the maximum, makes it cut the attempt with
// ErrAttemptTimeout, and the retry follows at once, unless Policy.Backoff is set. With an
// AttemptTimeout of zero it sends a second attempt beside a safe one. With a negative one it
// does nothing.
//
// It ends at most 2 % of the attempts, and never the last one of a call. It does not apply to
// upgrades, event streams and uploads that make progress. A client with less than some four
// calls a second has too few samples. The zero value has the defaults. An AdaptiveTimeout is
// read with its Policy, and never written. See docs/defaults.md.
type AdaptiveTimeout struct {
	// Multiple is the factor by which the timeout exceeds the Quantile. Zero means 2.5. A
	// negative number or NaN disables the adaptive timeout.
	Multiple float64

	// Quantile is the quantile of the latencies. Zero means 0.99. More than 1 means 1. A
	// negative number or NaN disables the adaptive timeout.
	Quantile float64

	// Min is the minimum of the timeout. Zero means 250 ms. A negative duration means none.
	Min time.Duration

	// MinSamples is the number of responses in the last minute from which there is a timeout.
	// Zero means 200. A negative number means 1.
	MinSamples int
}

const (
	defaultMultiple        = 2.5
	defaultTimeoutQuantile = 0.99
	defaultMinTimeout      = 250 * time.Millisecond
	defaultMinSamples      = 200
)

// withDefaults returns a copy, or nil if the timeout is disabled.
func (t *AdaptiveTimeout) withDefaults() *AdaptiveTimeout {
	if t == nil || !(t.Multiple >= 0) || !(t.Quantile >= 0) {
		return nil
	}
	made := *t
	if made.Multiple == 0 {
		made.Multiple = defaultMultiple
	}
	if made.Quantile == 0 {
		made.Quantile = defaultTimeoutQuantile
	}
	made.Multiple, made.Quantile = min(made.Multiple, math.MaxInt32), min(made.Quantile, 1)
	if made.Min == 0 {
		made.Min = defaultMinTimeout
	}
	if made.MinSamples == 0 {
		made.MinSamples = defaultMinSamples
	}
	made.Min, made.MinSamples = max(made.Min, 0), max(made.MinSamples, 1)
	return &made
}

// rules are those of the engine.
func (t *AdaptiveTimeout) rules() *latency.Rules { return (*latency.Rules)(t) }
