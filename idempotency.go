package resilienthttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outerclient"
)

const defaultKeyHeader = "Idempotency-Key"

// Idempotency adds idempotency keys to requests, so that POST and PATCH can be retried: the
// server recognizes a request with the same key. All attempts of a call have the same key, and so
// does the request that follows a 307 or 308 to the same origin. A key in the request's header is
// never replaced, but a redirect to another origin gets a key that is derived from it.
//
// The zero value sends a random UUID in Idempotency-Key with each POST and PATCH. A server that
// does not know the header ignores it, and a retry can then do the work twice. For such a server
// set Disabled. See docs/idempotency-keys.md.
type Idempotency struct {
	// Header is the name of the field. "" means Idempotency-Key. PayPal wants PayPal-Request-Id.
	Header string

	// Methods are the methods for which keys are generated, in upper case. nil means POST and
	// PATCH.
	Methods []string

	// NewKey returns the key of a call; "" means none. nil means a random UUID (version 4), or
	// one that is derived from the invocation ID of an AWS or Google SDK. A key longer than
	// MaxLength, or with characters other than visible ASCII and inner spaces, fails the call. It
	// must be safe for concurrent use.
	NewKey func(*http.Request) string

	// Quoted sends keys of NewKey and of the context as structured-field strings (RFC 9651), in
	// quotes, as the IETF draft asks. A key that already is such a string is not quoted again.
	// Most APIs want the bare key, the default.
	Quoted bool

	// MaxLength is the maximum length of a key in characters. Zero means 255, which is also the
	// maximum. Below 36, the length of a UUID, it needs NewKey or Disabled. Negative is an error.
	MaxLength int

	// Hosts are the hosts that support keys, in lower case: "api.example.com", "localhost:8080",
	// or "*.example.com" for its subdomains. Other hosts get no key, also none of WithIdempotencyKey,
	// unless the caller has set it in the header. The host is that of the caller's request, also with a
	// list of endpoints. nil means all hosts.
	Hosts []string

	// Disabled means that no keys are generated. A key from the context or the header is still
	// sent.
	Disabled bool
}

// WithIdempotencyKey returns a context with the caller's own key for its calls, for any method. A
// business key such as "invoice:001" works across crashes and processes. A key in the request's
// header takes precedence. "" means that the Transport generates a key as usual. An invalid key
// fails the call. Use the context for one operation only, because servers reject two different
// requests with one key. A request that follows a redirect has the same context and key. At another
// origin it has a key that is derived from it, and that a repetition of the call has too.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return withOptions(ctx, func(o *callOptions) { o.key = key })
}

func (i Idempotency) withDefaults() Idempotency {
	i.Header = textproto.CanonicalMIMEHeaderKey(cmp.Or(i.Header, defaultKeyHeader))
	i.Methods, i.Hosts = slices.Clone(i.Methods), slices.Clone(i.Hosts)
	if i.Methods == nil {
		i.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if i.MaxLength <= 0 || i.MaxLength > idempotencykey.MaxLength {
		i.MaxLength = idempotencykey.MaxLength
	}
	return i
}

// idempotencyKey is the key of a call. The zero value is none.
type idempotencyKey struct {
	value   string
	callers bool // the caller chose it
	added   bool // the request does not have it, so the attempts add it
}

// chooseKey finds or makes the key of a request. ofContext is the key of WithIdempotencyKey, and name that of a field with a key. It
// rejects a key of the context or of NewKey that cannot be sent.
func (i *Idempotency) chooseKey(req *http.Request, name, ofContext string) (idempotencyKey, error) {
	if name != "" {
		return idempotencyKey{value: field.Value(req.Header, name), callers: true}, nil
	}
	own := ofContext != ""
	if !own && (i.Disabled || !slices.Contains(i.Methods, cmp.Or(req.Method, http.MethodGet))) {
		return idempotencyKey{}, nil
	}
	if i.Hosts != nil && !hostmatch.Match(i.Hosts, req.URL) {
		return idempotencyKey{}, nil
	}
	key := ofContext
	if !own {
		if req.Response != nil {
			key = redirectedKey(req)
		}
		if key != "" {
			return idempotencyKey{value: key, added: true}, nil
		}
		if key = i.generate(req); key == "" {
			return idempotencyKey{}, nil
		}
	}
	if own || i.NewKey != nil {
		if err := i.check(key); err != nil {
			return idempotencyKey{}, err
		}
	}
	return idempotencyKey{value: i.quote(key), callers: own, added: true}, nil
}

// foreignKey returns the key for an origin to which a redirect has led. The caller's own key does not go there, but one that
// is derived from it does: a repetition of the call then has the same one. A safe method needs none.
func (i *Idempotency) foreignKey(req *http.Request, key idempotencyKey) idempotencyKey {
	if !key.callers {
		return key // it is generated for this request
	}
	if safeMethod(req.Method) {
		return idempotencyKey{}
	}
	return idempotencyKey{value: i.quote(idempotencykey.ForOrigin(key.value, req.URL)), callers: true, added: true}
}

func (i *Idempotency) quote(key string) string {
	if !i.Quoted {
		return key
	}
	if _, rest, _ := field.String(key); rest == "" {
		return key // it is quoted already
	}
	return field.Quote(key)
}

func (i *Idempotency) generate(req *http.Request) string {
	if i.NewKey != nil {
		return i.NewKey(req)
	}
	// An outer SDK sends one random UUID with all its attempts. A random key would differ between them. One invocation
	// may send several requests, for example to several regions.
	invocation := outerclient.InvocationID(req.Header)
	if parsed, err := uuid.Parse(invocation); err == nil && parsed.Version() == 4 {
		text := invocation + " " + cmp.Or(req.Method, http.MethodGet) + " " + req.URL.String() + " " + strconv.FormatInt(req.ContentLength, 10)
		return uuid.NewHash(sha256.New(), uuid.Nil, []byte(text), 8).String() // version 8 of RFC 9562
	}
	var id uuid.UUID // uuid.NewString would allocate three times
	_, _ = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, variant of RFC 9562
	return id.String()
}

// redirectedKey returns the key of the previous request if its response, a 307 or 308 of the same
// origin, led to this one. http.Client repeats method and body, so it is the same operation.
// Another origin has not received the key, so its request gets a new one.
func redirectedKey(req *http.Request) string {
	code, from := req.Response.StatusCode, callOf(req.Response)
	repeats := code == http.StatusTemporaryRedirect || code == http.StatusPermanentRedirect
	if from == nil || !repeats {
		return ""
	}
	before := &from.responseRequest
	if before.Method != req.Method || !hostmatch.SameOrigin(before.URL, req.URL) {
		return ""
	}
	if from.note(keyRedirected) {
		return "" // the program sends Response.Request again: another operation
	}
	return from.key.value
}

// check rejects a key that is too long for the API, or that package idempotency would reject.
func (i *Idempotency) check(key string) error {
	err := idempotencykey.Check(key)
	if err == nil && len(key) > i.MaxLength {
		err = fmt.Errorf("is longer than %d characters", i.MaxLength)
	}
	if err != nil {
		return fmt.Errorf("%w: idempotency key %w", neterr.ErrMalformed, err)
	}
	return nil
}
