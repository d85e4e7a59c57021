package resilienthttp

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/structured"
)

const defaultKeyHeader = "Idempotency-Key"

// Idempotency says which requests bear an idempotency key, and how it is sent.
// A key lets a server tell a repetition from a second order, so it makes POST
// and PATCH repeatable. The zero value sends a random UUID in Idempotency-Key
// with each POST and PATCH
// (https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/).
//
// There is one key for each call: all its attempts and hedges bear it, and so
// does the request that follows a 307 or 308 to the same origin. A header that
// the caller has set is never replaced and counts as the call's key.
//
// A server that does not know the header ignores it, and then a retry can be a
// second write. For such a server set Off.
type Idempotency struct {
	// Header is the field that carries the key. "" means Idempotency-Key; others
	// are PayPal-Request-Id, X-Idempotency-Key or X-Request-Id.
	Header string

	// Methods are the methods for which keys are generated, in upper case. nil
	// means POST and PATCH.
	Methods []string

	// NewKey makes the key of a call. nil means a random UUID (version 4: 122
	// random bits), or under an SDK of AWS's or Google's one made from the random
	// UUID that the SDK gives to all its attempts. Returning "" sends none. It must be safe for concurrent use.
	// A key longer than 255 characters, or with others than visible ASCII and
	// inner spaces, makes the call fail before anything is sent.
	NewKey func(*http.Request) string

	// Quoted sends keys from NewKey and from the context as a structured-field
	// string (RFC 8941 section 3.3.3), "like this" with the quotes, as the IETF
	// draft asks; a key that is one already goes out as it is. Most APIs of today
	// want the bare key, which is the default.
	Quoted bool

	// MaxLength is how many characters the API takes, where those are fewer than 255: a
	// longer key from NewKey or the context makes the call fail before anything is sent.
	// Below the 36 of a UUID it needs a NewKey, or Off. 0 means 255.
	MaxLength int

	// Hosts are those that honour keys, in lower case: "api.example.com",
	// "localhost:8080", or "*.example.com" for all below example.com. To others goes no
	// key that the caller has not set in the header: no generated one, and none from the
	// context, so a redirect takes none to strangers. nil means all hosts.
	Hosts []string

	// Off generates no keys. A key from the context or the header still goes out.
	Disabled bool
}

// WithIdempotencyKey returns a context whose calls bear the caller's own key,
// for any method: a business key such as "comp1:invoice:001" protects beyond the
// call, through crashes and across processes, as a random one cannot. A header
// that is set on the request wins. An empty key means none: the Transport
// generates one as usual. A key longer than 255 characters, or with others than
// visible ASCII and inner spaces, makes calls fail before anything is sent.
//
// Use the context for one operation only: two different requests under one key
// are a mistake that servers answer with 422. When http.Client follows a redirect
// it uses the same context, so the key goes along, to another origin too.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return withOptions(ctx, func(o *options) { o.key = key })
}

func (i Idempotency) withDefaults() Idempotency {
	if i.Header == "" {
		i.Header = defaultKeyHeader
	}
	i.Header = textproto.CanonicalMIMEHeaderKey(i.Header)
	if i.Methods == nil {
		i.Methods = []string{http.MethodPost, http.MethodPatch}
	} else {
		i.Methods = slices.Clone(i.Methods)
	}
	if i.MaxLength <= 0 || i.MaxLength > idempotencykey.MaxLength {
		i.MaxLength = idempotencykey.MaxLength
	}
	i.Hosts = slices.Clone(i.Hosts)
	return i
}

// generatedLength is how long the keys are that are made without NewKey: UUIDs.
const generatedLength = 36

// tooShortForKeys reports whether an API that takes no more than MaxLength would be sent
// keys that are longer.
func (i *Idempotency) tooShortForKeys() bool {
	generates := !i.Disabled && i.NewKey == nil && (i.Methods == nil || len(i.Methods) > 0)
	return generates && i.MaxLength > 0 && i.MaxLength < generatedLength
}

// keyFor finds or makes the key of a call. send is false when the request bears
// the key already; own is true when the caller chose it, for an API that is known to
// honour it.
func (i *Idempotency) keyFor(req *http.Request, o *options) (key string, send, own bool, err error) {
	if key := i.callersKey(req.Header); key != "" {
		return key, false, true, nil
	}
	switch {
	case i.Hosts != nil && !hostmatch.Match(i.Hosts, req.URL):
		return "", false, false, nil
	case o.key != "":
		key, own = o.key, true
	case i.Disabled || !slices.Contains(i.Methods, method(req)):
		return "", false, false, nil
	default:
		if key = i.redirectedKey(req); key != "" {
			return key, true, false, nil
		}
		if i.NewKey == nil {
			if key = invocationKey(req); key == "" {
				key = uuid.NewString()
			}
			return i.encode(key), true, false, nil
		}
		if key = i.NewKey(req); key == "" {
			return "", false, false, nil
		}
	}
	if err := i.check(key); err != nil {
		return "", false, false, err
	}
	return i.encode(key), true, own, nil
}

// callersKey is the key that the caller has set, also where that was done past
// Header.Set and the name is spelled in another case: net/http sends it as it is.
func (i *Idempotency) callersKey(h http.Header) string {
	if own := headerValue(h, i.Header); own != "" {
		return own
	}
	for name := range h {
		if len(name) == len(i.Header) && strings.EqualFold(name, i.Header) && headerValue(h, name) != "" {
			return headerValue(h, name)
		}
	}
	return ""
}

// redirectedKey is the key of the request that was answered with the 307 or 308
// which led to this one, if both go to the same origin. http.Client follows such
// a redirect with the same method and body: it is the same order. Another origin
// never saw the key and gets one of its own.
func (i *Idempotency) redirectedKey(req *http.Request) string {
	from := req.Response
	if from == nil || from.Request == nil || from.Request.URL == nil ||
		from.StatusCode != http.StatusTemporaryRedirect && from.StatusCode != http.StatusPermanentRedirect {
		return ""
	}
	before := from.Request
	if before.Method != req.Method || !sameOrigin(before.URL, req.URL) {
		return ""
	}
	if c := callBehind(from); c != nil {
		if c.followed.Swap(true) {
			return "" // it is the answer's Request that is sent again: another order
		}
		return c.key
	}
	return headerValue(before.Header, i.Header)
}

// sameOrigin compares as RFC 6454 section 5 does.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch explicit := u.Port(); {
	case explicit != "":
		return explicit
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	case strings.EqualFold(u.Scheme, "http"):
		return "80"
	}
	return ""
}

// encode is the key as it is sent.
func (i *Idempotency) encode(key string) string {
	if _, rest, ok := structured.String(key); !i.Quoted || ok && rest == "" {
		return key
	}
	return structured.Quote(key)
}

// check refuses what this package's own server half would refuse, and what is too long
// for the API.
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

// headerValue is the first value of a field whose name is canonical already:
// Header.Get would canonicalize it for each call.
func headerValue(h http.Header, canonical string) string {
	if values := h[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}
