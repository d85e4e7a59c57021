package resilienthttp

import (
	"crypto/sha256"
	"hash/maphash"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/google/uuid"
)

// The fields in which SDKs tell of their own retries, as net/http spells them: AWS's
// ("attempt=1; max=3"), that of SDKs which Stainless generates, OpenAI's and Anthropic's
// among them (a count of repeats), and Google's (words, gccl-attempt-count/1 among them).
const (
	awsAttempts   = "Amz-Sdk-Request"
	awsInvocation = "Amz-Sdk-Invocation-Id"

	stainlessRepeats = "X-Stainless-Retry-Count"

	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// retriedAbove reports whether an SDK above owns the retries of this request: it says
// that it makes more than one attempt, or that this is not the first. One whose retries
// are off sends the fields as well, and owns none.
func retriedAbove(h http.Header) bool {
	if told := headerValue(h, awsAttempts); told != "" && (sdkNumber(told, "; ", "max=") > 1 || sdkNumber(told, "; ", "attempt=") > 1) {
		return true
	}
	if told := headerValue(h, stainlessRepeats); told != "" && sdkNumber(told, " ", "") > 0 {
		return true
	}
	told := headerValue(h, googleClient)
	return told != "" && sdkNumber(told, " ", googleAttempt) > 1
}

// sdkWord is what follows name in the word of told that begins with it.
func sdkWord(told, separator, name string) string {
	for word := range strings.SplitSeq(told, separator) {
		if value, ok := strings.CutPrefix(word, name); ok {
			return value
		}
	}
	return ""
}

// sdkNumber is sdkWord as a number; 0 if it is none.
func sdkNumber(told, separator, name string) int {
	n, err := strconv.Atoi(sdkWord(told, separator, name))
	if err != nil {
		return 0
	}
	return n
}

// invocationKey is the key of a request that an SDK above sends under an identifier which
// stays the same over its retries, and "" for others: a random key would be new for each
// of them. It is as random as that identifier, which must be a random UUID.
func invocationKey(req *http.Request) string {
	id := headerValue(req.Header, awsInvocation)
	if id == "" {
		id = sdkWord(headerValue(req.Header, googleClient), " ", googleInvocation)
	}
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 {
		return ""
	}
	// What belongs to one invocation may be more than one request, to several regions say.
	text := id + " " + method(req) + " " + req.URL.String() + " " + strconv.FormatInt(req.ContentLength, 10)
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(text), 8).String()
}

// The fields by which clients are known that retry by themselves, and do not say how often:
// those of stripe-go, Vault's and azcore ("azsdk-go-azblob/v1.6.0").
const (
	stripeClient = "X-Stripe-Client-User-Agent"
	vaultRequest = "X-Vault-Request"
	azurePrefix  = "azsdk-"
)

// retriesByItself reports whether the client is known to retry by itself. It does not say
// whether its retries are off.
func retriesByItself(h http.Header) bool {
	return headerValue(h, stripeClient) != "" || headerValue(h, vaultRequest) != "" ||
		strings.Contains(headerValue(h, "User-Agent"), azurePrefix)
}

// cautiousAttempts is the most attempts of a call of such a client, unless this Transport
// owns the retries.
const cautiousAttempts = 2

// maxAttempts is the most attempts that the call may make.
func (c *call) maxAttempts() int {
	n := c.perCall().MaxAttempts
	if n > cautiousAttempts && c.cautious() {
		return cautiousAttempts
	}
	return n
}

// cautious reports whether the call is one of a client that may retry by itself.
func (c *call) cautious() bool { return !c.ownsRetries && retriesByItself(c.request.Header) }

// attemptsSpent is why a call may make no further attempt.
func (c *call) attemptsSpent() error {
	if c.number < c.perCall().MaxAttempts && c.cautious() {
		return ErrSingleAttempt
	}
	return ErrMaxAttempts
}

// checkRepeated makes the call a single attempt if a call with the same request has failed
// before: an outer layer retries.
func (c *call) checkRepeated() {
	now := c.start.Sub(c.since)
	if c.single || !c.failed.remembers(now) {
		return
	}
	c.repeated = c.failed.has(c.requestID(), now)
	c.single = c.repeated
}

// noteFailure remembers the request of a call that was sent and has failed, so that it is
// known if it comes again.
func (c *call) noteFailure() {
	if c.single && !c.repeated || c.last == nil {
		return
	}
	if c.failure == nil && !c.last.record.Verdict.retryable() {
		if c.repeated {
			c.failed.remove(c.requestID())
		}
		return
	}
	c.failed.add(c.requestID(), time.Since(c.since))
}

// requestID is what stays the same when an outer layer sends a request again: the caller's
// idempotency key, or what shallow copies of an http.Request have in common, as
// http.Client and go-retryablehttp make them. A client that is known to retry may make
// deep copies; its requests are known by method and URL.
type requestID struct {
	text   uint64 // hash of the key, the scope, the method, the path and the query; or 0
	url    weak.Pointer[url.URL]
	header uintptr
}

func (c *call) requestID() requestID {
	req := c.request
	if c.ownKey || c.cautious() {
		key := ""
		if c.ownKey {
			key = c.key
		}
		return requestID{text: maphash.Comparable(c.failed.seed, [...]string{key, c.scope, method(req), req.URL.Path, req.URL.RawQuery})}
	}
	return requestID{url: weak.Make(req.URL), header: reflect.ValueOf(req.Header).Pointer()}
}

const (
	repeatWindow  = time.Minute // how long after a failure an outer layer may send the request again; azcore waits up to that
	maxRepeats    = 10          // failures in a row of one request, after which it is taken for a new one
	maxFailedHalf = 512         // requests in each half of failedCalls
)

// failedCalls are the requests that have failed lately. It is bounded: when one half is
// full, the older one is forgotten. It is safe for concurrent use.
type failedCalls struct {
	until atomic.Int64 // when the last of them is forgotten; 0: there is none

	seed maphash.Seed

	mu         sync.Mutex
	young, old map[requestID]failedCall
}

func newFailedCalls() *failedCalls { return &failedCalls{seed: maphash.MakeSeed()} }

// failedCall is the last failure of a request.
type failedCall struct {
	at    time.Duration
	times int // in a row
}

// remembers reports whether any request is remembered. It takes no lock.
func (f *failedCalls) remembers(now time.Duration) bool { return int64(now) < f.until.Load() }

// has reports whether the request has failed lately.
func (f *failedCalls) has(id requestID, now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := f.get(id)
	return call.times > 0 && call.times < maxRepeats && now-call.at < repeatWindow
}

// get returns what is known of a request. It is locked.
func (f *failedCalls) get(id requestID) failedCall {
	if call, ok := f.young[id]; ok {
		return call
	}
	return f.old[id]
}

// add notes a failure of the request.
func (f *failedCalls) add(id requestID, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := f.get(id)
	if call.times >= maxRepeats || now-call.at >= repeatWindow {
		call.times = 0
	}
	if f.young == nil || len(f.young) >= maxFailedHalf {
		f.young, f.old = make(map[requestID]failedCall), f.young
	}
	f.young[id] = failedCall{at: now, times: call.times + 1}
	f.until.Store(int64(now + repeatWindow))
}

// remove forgets a request that has succeeded.
func (f *failedCalls) remove(id requestID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.young, id)
	delete(f.old, id)
}
