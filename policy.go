package resilienthttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

const (
	defaultMaxAttempts = 6
	defaultMaxWait     = time.Minute // as long as a response asks, for a limit, or until the deadline for the last retry

	// maxMaxAttempts bounds the memory of a call: each attempt leaves a report.
	maxMaxAttempts = 100
)

// Policy controls the retries and timeouts of a call. The zero value has the defaults. A
// Transport reads its field Policy at the first call; SetPolicy changes the policy later, and
// WithPolicy that of one call. See docs/retries.md and docs/deadlines.md.
type Policy struct {
	// MaxAttempts is the maximum number of attempts of a call, without hedges. Zero means 6; the
	// default Backoff makes 5 or 6 of them if no deadline is near. A negative number means 1. The
	// maximum is 100. If a limit has rejected an attempt and asked for a wait of 0.5 s or more, the
	// next attempt does not count, unless the maximum is 1.
	MaxAttempts int

	// AttemptTimeout is the maximum time from sending a request until its response headers
	// arrive, or until the return of a Stream. A request body above 64 KiB that makes progress
	// extends it. Zero means the call's deadline, or 15 minutes; a slow safe request then gets a
	// second, concurrent attempt. Negative means no timeout and no concurrent attempt. See
	// docs/deadlines.md.
	AttemptTimeout time.Duration

	// ReadTimeout is the maximum time for which one Read of a response body may block, except
	// after 101 Switching Protocols. Zero or a negative duration means no limit.
	ReadTimeout time.Duration

	// MaxRetryAfter is the longest wait that a server may ask for, by Retry-After or the reset of
	// an exhausted quota. After a longer one the call returns the response at once; the last
	// Attempt has the wait and ErrRetryAfter. Zero means 60 s. A negative duration means no
	// limit.
	MaxRetryAfter time.Duration

	// Backoff returns the wait before a retry, to which the wait that the server asks for is
	// added. It must be safe for concurrent use. nil means random waits of up to 250 ms, 1.25 s,
	// 3 s and 6 s. A last wait ends before the deadline, or 10 s after the first failure. After
	// timeouts, and while all calls of the route fail, early waits are omitted. After a 500 or a
	// reset, no wait is above 1.25 s while others of the route succeed. The wait that the server
	// asks for is a minimum with these waits. See docs/backoff.md.
	Backoff Backoff `json:"-"`

	// Classify overrides the classification of an attempt by its status, header and error. nil
	// and VerdictDefault leave the decision to the table of docs/retries.md. The circuit breaker
	// counts VerdictSuccess, and ignores the others. Classify may set Attempt.RetryAfter. It must not
	// read the body, and must be safe for concurrent use.
	Classify func(*Attempt) Verdict `json:"-"`

	// ClassifyBody is Classify with the first 16 KiB of the body of a 4xx or 5xx response, or the
	// bytes that arrive within 100 ms. They may be compressed, and must not be kept. The caller
	// still reads the whole body. It is called before Classify, and not for streams
	// (text/event-stream, NDJSON, gRPC). Without it, only problems of a 429 or 503 are read so: see Attempt.Policies.
	ClassifyBody func(*Attempt, []byte) Verdict `json:"-"`

	// Idempotent reports whether a request may be done twice, although its method does not say so and no key is sent,
	// for example a completion of a language model. Such a request is retried and moves between endpoints like a PUT,
	// and is hedged if Hedge is set; a slow one gets no second attempt. nil means by method and key. It is called once
	// a call, must not read Request.Body (GetBody returns a copy), and must be safe for concurrent use.
	Idempotent func(*http.Request) bool `json:"-"`

	// Stream holds an event stream until its first event of content. nil means that a response is an answer when its
	// headers are there.
	Stream *Stream
}

// withDefaults leaves Backoff and AttemptTimeout unset: their defaults depend on events.
func (p Policy) withDefaults() Policy {
	p.MaxAttempts = min(max(cmp.Or(p.MaxAttempts, defaultMaxAttempts), 1), maxMaxAttempts)
	p.MaxRetryAfter = cmp.Or(p.MaxRetryAfter, defaultMaxWait)
	if p.Stream != nil {
		p.Stream = new(*p.Stream) // a program may read a new configuration into its own while calls use this one
	}
	return p
}

type callOptions struct {
	policy   *Policy
	invalid  error // of the policy: every call returns it
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

// SetPolicy replaces the policy of the Transport, for example when a file has changed. Calls that
// have begun keep theirs. Breaker, budget, limits and latencies keep their state. Zero fields of p
// mean the defaults. The field Policy stays as it was: State has the policy in use.
//
// An invalid p changes nothing, and the error names all its invalid fields, as that of Validate. A
// Transport that is invalid itself stays so, and SetPolicy returns its error. SetPolicy is a first
// use of the Transport. It is safe for concurrent use.
func (t *Transport) SetPolicy(p Policy) error {
	c := t.configured()
	if c.invalid != nil {
		return c.invalid
	}
	if err := errors.Join(p.check(), c.deadlineHeader.checkMargin(&p)); err != nil {
		return err
	}
	c.policy.Store(new(p.withDefaults()))
	return nil
}

// WithPolicy returns a context with which calls use p instead of the Transport's policy. Zero
// fields of p mean the defaults, so keep the Transport's policy in a variable and change a copy:
//
//	once := policy // that of &resilienthttp.Transport{Policy: policy}
//	once.MaxAttempts = 2
//	ctx = resilienthttp.WithPolicy(ctx, once)
//
// After a SetPolicy, State has the policy in use. If p is invalid, each call with the context
// fails before it sends anything, with the error that SetPolicy would return.
func WithPolicy(ctx context.Context, p Policy) context.Context {
	err := p.check()
	p = p.withDefaults()
	return withOptions(ctx, func(o *callOptions) { o.policy, o.invalid = &p, err })
}

// WithSingleAttempt returns a context with which each call makes one attempt, without retry or hedge.
// Use it if another layer owns the retries: a queue, a workflow engine, an outer client. Keys,
// breaker, limits and deadlines still apply, but the call does not wait for an open circuit.
func WithSingleAttempt(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *callOptions) { o.single = true })
}

// Verdict is the classification of an attempt. It decides whether the call makes a retry.
type Verdict int

const (
	// VerdictDefault leaves the decision to the classification table.
	VerdictDefault Verdict = iota
	// VerdictSuccess ends the call with the response, and is a success for the circuit breaker.
	VerdictSuccess
	// VerdictPermanent ends the call, because a retry would have the same result.
	VerdictPermanent
	// VerdictTransient is a failure that is retried.
	VerdictTransient
	// VerdictThrottled is a failure that is retried, because the server asks for fewer requests.
	VerdictThrottled
	// VerdictPending is neither content nor failure. Only Stream.Classify may return it: elsewhere
	// it is VerdictDefault.
	VerdictPending
)

// String returns the verdict's name in lower case.
func (v Verdict) String() string {
	names := [...]string{"default", "success", "permanent", "transient", "throttled", "pending"}
	if v < 0 || int(v) >= len(names) {
		return "unknown"
	}
	return names[v]
}

func (v Verdict) retryable() bool { return v == VerdictTransient || v == VerdictThrottled }
