package resilienthttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outerclient"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// facts is what is known of a call when it begins. None of it changes later.
type facts struct {
	*config

	request *http.Request           // the caller's, never modified
	before  *http.Response          // the redirect that led to the call; nil: none. A program may set another one later
	ctx     context.Context         // the caller's, which also ends with Request.Cancel
	cancel  context.CancelCauseFunc // cancels ctx if it was made for Request.Cancel; else it does nothing
	options *callOptions
	policy  *Policy // the context's, or the Transport's

	start    time.Time
	deadline time.Time // zero: none
	scope    string
	quotas   *quotaNeeds // of RateLimit.Key and Cost; nil: neither is set
	key      idempotencyKey
	header   http.Header // header of every attempt; the caller's map if nothing is added

	outer    *attempt          // of an outer Transport that makes the call; nil: none
	repeated *outerclient.Sent // of the failed call that an outer loop repeats; nil: none is known
	owner    retryOwner
	priority Priority

	repeats    repetition
	hasBody    bool // each attempt needs a new body
	replayable bool // there is no body, or GetBody returns a new one
	away       bool // a redirect led to an origin that the caller has not named
}

// isAway reports whether redirects led to another origin than that of the first request. http.Client copies the header of
// the first request to each one of a chain, except credentials.
func isAway(req *http.Request) bool {
	first := req
	for range maxRedirects {
		if first.Response == nil || first.Response.Request == nil {
			break
		}
		first = askedFor(first.Response)
	}
	return first.URL != nil && !hostmatch.SameOrigin(first.URL, req.URL)
}

// maxRedirects bounds the search for the first request. http.Client follows ten.
const maxRedirects = 100

// repetition is what a second execution of the request would do. Each is less than the one before.
type repetition uint8

const (
	repeatsWork    repetition = iota
	repeatsResult             // the method is idempotent: the result is the same
	repeatsByLeave            // Policy.Idempotent says that the request may be done twice
	repeatsNothing            // the method is safe
)

type retryOwner uint8

const (
	ownerCall     retryOwner = iota // the call itself
	ownerOther                      // another layer
	ownerRepeater                   // an outer layer, which sends the same request again
)

// find finds the facts of a call with a config and a request, and its list of endpoints, or nil. It rejects a request that
// no RoundTripper could send.
func (f *facts) find() (list *route.Route, err error) {
	req := f.request
	switch {
	case req == nil:
		return nil, fmt.Errorf("%w: nil Request", neterr.ErrMalformed)
	case req.URL == nil:
		return nil, fmt.Errorf("%w: nil Request.URL", neterr.ErrMalformed)
	case req.Body == nil && req.ContentLength != 0:
		return nil, fmt.Errorf("%w: ContentLength %d with nil Body", neterr.ErrMalformed, req.ContentLength)
	case f.invalid != nil:
		return nil, f.invalid
	}
	f.before = req.Response
	if list, err = f.findContext(); err != nil {
		return nil, err
	}
	// Without the contexts of this module.
	req = f.request
	f.hasBody = req.Body != nil && req.Body != http.NoBody
	f.replayable = !f.hasBody || req.GetBody != nil
	f.scope = req.URL.Host
	if f.config.scope != nil {
		f.scope = f.config.scope(req)
	}
	f.repeats = f.findRepetition()
	// Other calls take no memory for it.
	if limit := f.rateLimit; limit.Key != nil || limit.Cost != nil {
		f.quotas = limit.needs(req)
	}
	name, empty := field.Find(req.Header, f.idempotency.Header)
	if f.key, err = f.idempotency.chooseKey(req, name, f.options.key); err != nil {
		return nil, err
	}
	if f.before != nil {
		f.findAway()
	}
	f.rewind()
	// After the key of the request, which it may replace, and before the header, which has it.
	f.findOwner()
	f.header = f.sharedHeader(empty)
	// Last, because it starts a goroutine that only the end of the call stops.
	if req.Cancel != nil {
		f.ctx, f.cancel = mergeRequestCancel(req)
	}
	return list, nil
}

// findContext finds what the context of the request says: the list of endpoints, the policy, the priority and the deadline.
func (f *facts) findContext() (list *route.Route, err error) {
	list, routed := f.request.Context().(*route.Route)
	if routed {
		f.request = f.request.WithContext(list.Context)
	}
	if sent, ok := f.request.Context().(*responseContext); ok {
		// The program sends a Response.Request. Its context would keep the previous call in memory.
		f.request = f.request.WithContext(sent.request.Context())
	}
	start := time.Now()
	f.ctx, f.cancel = f.request.Context(), func(error) {}
	f.options, f.policy = optionsOf(f.ctx), f.config.policy.Load()
	if own := f.options.policy; own != nil {
		f.policy = own
		if err := errors.Join(f.options.invalid, f.deadlineHeader.checkMargin(own)); err != nil {
			return nil, err
		}
	}
	f.priority = Priority(f.options.priority)
	// It is set for every call inside another Transport.
	if f.options.single {
		if f.outer, err = outerAttempt(f.ctx); err != nil {
			return nil, err
		}
	}
	if f.outer != nil {
		f.priority = f.outer.call.priority
	}
	// Last, because cleanUp releases a call that has a start.
	f.start = start
	f.deadline, _ = f.ctx.Deadline()
	return list, nil
}

// findRepetition finds what a second execution of the request would do.
func (f *facts) findRepetition() repetition {
	byLeave := f.policy.Idempotent != nil && f.policy.Idempotent(f.request) // asked once for each call
	switch method := f.request.Method; {
	case safeMethod(method):
		return repeatsNothing
	case byLeave:
		// After the safe methods, because those repeat even less.
		return repeatsByLeave
	case method == http.MethodPut, method == http.MethodDelete:
		return repeatsResult
	}
	return repeatsWork
}

// mayBeDoneTwice reports whether the server may get the request a second time, whatever it did with the first.
func (f *facts) mayBeDoneTwice() bool { return f.repeats >= repeatsResult || f.key.value != "" }

// maxDepth is the maximum number of RoundTrippers inside one another: more are a circle. A Transport that fetches a token
// through itself needs two.
const maxDepth = 8

// outerAttempt returns the attempt of an outer Transport that makes the call, or nil.
func outerAttempt(ctx context.Context) (*attempt, error) {
	outer, _ := ctx.Value(attemptKey{}).(*attempt)
	depth := 0
	for a := outer; a != nil; a = a.call.outer {
		depth++
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: the Transport is its own Base", neterr.ErrMisconfigured)
	}
	return outer, nil
}

// findAway finds whether redirects have led to another origin, which gets another key.
func (f *facts) findAway() {
	if f.away = isAway(f.request); f.away {
		f.key = f.idempotency.foreignKey(f.request, f.key)
	}
}

// findOwner finds which layer retries, and the failed call that it repeats.
func (f *facts) findOwner() {
	// A layer above has said that it retries, so a retry here would multiply its own.
	if f.options.single || !f.ownsRetries && outerclient.OwnsRetries(f.request.Header) {
		f.owner = ownerOther
	}
	// Only the request of a call that has failed lately can be a repetition.
	if now := f.start.Sub(f.origin); f.failedCalls.Any(now) {
		f.findRepeated(now)
	}
}

// findRepeated finds the failed call that an outer loop repeats. It takes its key, because with a new one the server would do the
// work a second time if it had done it before the failure.
func (f *facts) findRepeated(now time.Duration) {
	id := f.requestID()
	if f.owner == ownerCall && !f.ownsRetries && f.failedCalls.Has(id, now) {
		f.owner = ownerRepeater
	}
	if f.replayable { // otherwise it is not the same object again
		f.repeated = f.failedCalls.Sent(id, f.request, now)
	}
	if f.repeated != nil && f.generatedKey() != "" {
		f.key.value = cmp.Or(f.repeated.Key, f.key.value)
	}
}

// generatedKey returns the key that the call has made, or "". A client that is known to retry sends a copy, which has no key.
func (f *facts) generatedKey() string {
	if f.key.callers || f.outerMayRetry() {
		return ""
	}
	return f.key.value
}

func (f *facts) traced() bool { return f.trace != nil || len(f.options.traces) > 0 }

// sharedHeader returns the header that all attempts share: the caller's map, or a copy with added
// fields. empty is the name of a field of the key without a value: with a key, a server would find two fields.
func (f *facts) sharedHeader(empty string) http.Header {
	header := f.request.Header
	owned := f.saysOwner()
	prioritized := f.priority != PriorityDefault && f.hasNoPriority()
	if f.key.value == "" {
		empty = "" // it stays as the caller sent it
	}
	changes := f.key.added || empty != "" || owned || prioritized || f.away
	if !changes && header != nil {
		return header
	}
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	delete(header, empty)
	if f.away {
		f.removeOwn(header)
	}
	if f.key.added {
		header[f.idempotency.Header] = []string{f.key.value}
	}
	if owned {
		header[retryOwnerHeader] = []string{retryOwnerCaller}
	}
	if prioritized {
		header[field.PriorityHeader] = []string{f.priority.String()}
	}
	return header
}

// saysOwner reports whether attempts tell the server that a layer here owns the retries.
func (f *facts) saysOwner() bool { return f.ownsRetries || f.options.owned }

// hasNoPriority reports whether the caller has set no field with a priority.
func (f *facts) hasNoPriority() bool {
	name, empty := field.Find(f.request.Header, field.PriorityHeader)
	return name == "" && empty == ""
}

// removeOwn removes what the caller has set for the call at the first origin. It is meant for no other one.
func (f *facts) removeOwn(header http.Header) {
	for name := range header {
		if f.isOwn(name) {
			delete(header, name)
		}
	}
}

// isOwn reports whether a field is one of those that the client adds to requests.
func (f *facts) isOwn(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case f.idempotency.Header, f.deadlineHeader.Name, f.deadlineHeader.Relative, defaultDeadlineHeader, timeoutHeader,
		field.PriorityHeader, retryOwnerHeader:
		return true
	}
	return false
}

// outerMayRetry reports whether the outer client is known to retry without a count of its retries.
func (f *facts) outerMayRetry() bool { return !f.ownsRetries && outerclient.MayRetry(f.request.Header) }

func (f *facts) requestID() outerclient.RequestID {
	req, key := f.request, ""
	switch {
	case f.key.callers:
		key = f.key.value
	case !f.outerMayRetry():
		return outerclient.Pointers(req)
	}
	return f.failedCalls.Named(key, credential(req.Header, req.URL), f.scope, cmp.Or(req.Method, http.MethodGet), req.URL)
}
