// Package outerclient recognizes a client that makes retries of its own around a Transport. Two
// layers of three attempts are nine requests, so one layer must own the retries.
//
// Some SDKs report their retries in a header field. Others are known to retry, but send no count.
// Of all other clients, [FailedCalls] recognizes a request that failed and is sent again.
package outerclient

import (
	"hash/maphash"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// The fields in which SDKs report their retries: of AWS ("attempt=1; max=3"), of SDKs that
// Stainless generates for OpenAI, Anthropic and others (a count), and of Google (for example
// "gccl-attempt-count/1").
const (
	awsAttempts      = "Amz-Sdk-Request"
	awsInvocation    = "Amz-Sdk-Invocation-Id"
	stainlessRetries = "X-Stainless-Retry-Count"
	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// OwnsRetries reports whether an outer SDK owns the retries of the request: it makes more than one
// attempt, or this attempt is not its first.
func OwnsRetries(h http.Header) bool {
	aws := field.Value(h, awsAttempts)
	return max(fieldNumber(aws, "; ", "max="), fieldNumber(aws, "; ", "attempt=")) > 1 ||
		fieldNumber(field.Value(h, stainlessRetries), " ", "") > 0 ||
		fieldNumber(field.Value(h, googleClient), " ", googleAttempt) > 1
}

// MayRetry reports whether the outer client is known to retry without a count of its retries:
// stripe-go, Vault's client, or azcore ("azsdk-go-azblob/v1.6.0").
func MayRetry(h http.Header) bool {
	return field.Value(h, "X-Stripe-Client-User-Agent") != "" || field.Value(h, "X-Vault-Request") != "" ||
		strings.Contains(field.Value(h, "User-Agent"), "azsdk-")
}

// InvocationID returns the ID that an outer SDK sends with all its attempts, or "".
func InvocationID(h http.Header) string {
	if id := field.Value(h, awsInvocation); id != "" {
		return id
	}
	return fieldValue(field.Value(h, googleClient), " ", googleInvocation)
}

// fieldValue returns the text after the prefix, in the first part of a value that has the prefix.
func fieldValue(value, separator, prefix string) string {
	for part := range strings.SplitSeq(value, separator) {
		if rest, ok := strings.CutPrefix(part, prefix); ok {
			return rest
		}
	}
	return ""
}

// fieldNumber returns fieldValue as a number, or 0.
func fieldNumber(value, separator, prefix string) int {
	if value == "" { // as in nearly all requests: an error of Atoi would be allocated
		return 0
	}
	n, err := strconv.Atoi(fieldValue(value, separator, prefix))
	if err != nil {
		return 0
	}
	return n
}

// repeatWindow is the maximum time from a failure to its repetition by an outer layer; later ones are the caller's.
const repeatWindow = 10 * time.Second

// FailedCalls are the requests that failed in the last 10 s. Times count from an origin that
// the caller chooses. FailedCalls is safe for concurrent use, and must not be copied.
type FailedCalls struct {
	until    atomic.Int64 // when the last of them expires; zero means none
	seed     maphash.Seed
	requests scope.Map[RequestID, failedCall]
}

// RequestID identifies a request that an outer client sends again. See [FailedCalls.Named] and
// [Pointers].
type RequestID struct {
	text   uint64 // hash of texts; or 0
	url    weak.Pointer[url.URL]
	header weak.Pointer[byte] // the map
}

func (id RequestID) known() bool { return id.text != 0 || id.header != weak.Pointer[byte]{} }

type failedCall struct {
	until atomic.Int64         // when its last failure expires; zero means that it has succeeded since
	sent  atomic.Pointer[Sent] // nil: its repetition needs nothing of it, or it has succeeded since
}

// Sent is what the repetition of a failed request needs to be the same request for the server.
type Sent struct {
	Key    string // the generated idempotency key, or ""
	Server string // of a list, which may have done the work; or ""

	request uint64        // hash of what the repetition must be, too: URLs are long, and have secrets
	until   time.Duration // when a repetition is no longer known
}

// NewFailedCalls returns FailedCalls without a failure.
func NewFailedCalls() *FailedCalls {
	return &FailedCalls{seed: maphash.MakeSeed()}
}

// Pointers identifies a request by the pointers that its shallow copies share. http.Client and
// go-retryablehttp make shallow copies. A request without a Header cannot be identified: programs
// use one URL for many requests. Both pointers are weak: an address alone would also be that of the next request's map,
// which the runtime puts where it has freed the map of a failed one.
func Pointers(r *http.Request) RequestID {
	header, _ := reflect.TypeAssert[*byte](reflect.NewAt(reflect.TypeFor[byte](), reflect.ValueOf(r.Header).UnsafePointer()))
	return RequestID{url: weak.Make(r.URL), header: weak.Make(header)}
}

// Named identifies a request by its idempotency key, credential, scope, method and URL, because an outer
// client may make a deep copy. Behind a proxy two strangers may choose the same key, or send the same request, so the credential
// tells them apart. Both may be "".
func (f *FailedCalls) Named(key, credential, scope, method string, u *url.URL) RequestID {
	return RequestID{text: maphash.Comparable(f.seed, [...]string{key, credential, scope, method, u.Path, u.RawQuery})}
}

// Any reports whether a request failed in the 10 s before now. It is quicker than Has.
func (f *FailedCalls) Any(now time.Duration) bool { return int64(now) < f.until.Load() }

// Has reports whether the request failed in the 10 s before now.
func (f *FailedCalls) Has(id RequestID, now time.Duration) bool {
	call := f.requests.Peek(id)
	return call != nil && int64(now) < call.until.Load()
}

// Sent returns what Keep has kept of the request until now, or nil. It is also nil if it is another request now: a program may
// change the URL and the Header of one object for the next request.
func (f *FailedCalls) Sent(id RequestID, r *http.Request, now time.Duration) *Sent {
	call := f.requests.Peek(id)
	if call == nil {
		return nil
	}
	sent := call.sent.Load()
	if sent == nil || now >= sent.until || sent.request != f.hash(r) {
		return nil
	}
	return sent
}

func (f *FailedCalls) hash(r *http.Request) uint64 {
	type content struct {
		method, url string
		length      int64
	}
	return maphash.Comparable(f.seed, content{r.Method, r.URL.String(), r.ContentLength})
}

// Keep keeps the key and the server of a request that failed, for repeatWindow after the wait that the server has asked for, because
// a loop may heed that. Both may be "".
func (f *FailedCalls) Keep(id RequestID, r *http.Request, key, server string, now, wait time.Duration) {
	if !id.known() || key == "" && server == "" {
		return
	}
	sent := &Sent{Key: key, Server: server, request: f.hash(r), until: now + wait + repeatWindow}
	f.requests.Get(id).sent.Store(sent)
	f.lastUntil(sent.until)
}

// lastUntil notes when a failure expires. An earlier one may last longer, because its server has asked for a longer wait.
func (f *FailedCalls) lastUntil(until time.Duration) {
	for last := f.until.Load(); last < int64(until); last = f.until.Load() {
		if f.until.CompareAndSwap(last, int64(until)) {
			return
		}
	}
}

// Add notes that the request has failed.
func (f *FailedCalls) Add(id RequestID, now time.Duration) {
	if id.known() {
		until := now + repeatWindow
		f.requests.Get(id).until.Store(int64(until))
		f.lastUntil(until)
	}
}

// Remove forgets the request, because it has succeeded.
func (f *FailedCalls) Remove(id RequestID) {
	if call := f.requests.Peek(id); call != nil {
		call.until.Store(0)
		call.sent.Store(nil)
	}
}
