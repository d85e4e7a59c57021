package resilienthttp

import (
	"context"
	"crypto/rand"
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

// Idempotency attaches idempotency keys to requests. A key lets a server tell a repetition
// from a second order, so it makes POST and PATCH repeatable. All attempts and hedges of a
// call have the same key, and so does the request that follows a 307 or 308 to the same
// origin. A key that the caller has set in the header is never replaced.
//
// The zero value sends a random UUID in Idempotency-Key with each POST and PATCH
// (https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/). A server that
// does not know the header ignores it, and a retry can then be a second write. For such a
// server set Disabled.
type Idempotency struct {
	// Header is the name of the field. "" means Idempotency-Key. Others are
	// PayPal-Request-Id, X-Idempotency-Key and X-Request-Id.
	Header string

	// Methods are the methods for which keys are generated, in upper case. nil means POST and
	// PATCH.
	Methods []string

	// NewKey returns the key of a call; "" means none. nil means a random UUID (version 4), or
	// below an SDK of AWS or Google one derived from the random UUID of all its attempts. A
	// key that is longer than MaxLength, or has characters other than visible ASCII and inner
	// spaces, fails the call before anything is sent. It must be safe for concurrent use.
	NewKey func(*http.Request) string

	// Quoted sends keys of NewKey and of the context as a structured-field string (RFC 9651
	// section 3.3.3), in quotes, as the IETF draft asks. A key that already is one is not
	// quoted again. Most APIs want the bare key, which is the default.
	Quoted bool

	// MaxLength is the maximum length of a key in characters. A longer key of NewKey or the
	// context fails the call. Zero means 255, which is also the maximum. Below 36, the length
	// of a UUID, it needs NewKey or Disabled.
	MaxLength int

	// Hosts are the hosts that honour keys, in lower case: "api.example.com",
	// "localhost:8080", or "*.example.com" for all below example.com. Other hosts get no key,
	// unless the caller has set it in the header. nil means all hosts.
	Hosts []string

	// Disabled generates no keys. A key from the context or the header is still sent.
	Disabled bool
}

// WithIdempotencyKey returns a context whose calls have the caller's own key, for any method.
// A business key such as "invoice:001" works across crashes and processes, which a random key
// cannot. A header that is set on the request wins. An empty key means none: the Transport
// generates one as usual. An invalid key fails the call: see Idempotency.NewKey.
//
// Use the context for one operation only: servers reject two different requests with one key.
// A redirect that http.Client follows has the same context, so it gets the key too.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return withOptions(ctx, func(o *callOptions) { o.key = key })
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

// generatedLength is the length of the keys that are made without NewKey: UUIDs.
const generatedLength = 36

// tooShortForKeys reports whether generated keys would be longer than MaxLength.
func (i *Idempotency) tooShortForKeys() bool {
	generates := !i.Disabled && i.NewKey == nil && (i.Methods == nil || len(i.Methods) > 0)
	return generates && i.MaxLength > 0 && i.MaxLength < generatedLength
}

// chooseKey finds or makes the key of the call. send is false if the request has it already.
func (c *call) chooseKey() (send bool, err error) {
	i, req := &c.idempotency, c.request
	if c.key = i.callersKey(req.Header); c.key != "" {
		c.callerKey = true
		return false, nil
	}
	own := c.options.key != ""
	if i.Hosts != nil && !hostmatch.Match(i.Hosts, req.URL) || !own && (i.Disabled || !slices.Contains(i.Methods, method(req))) {
		return false, nil
	}
	key := c.options.key
	if !own {
		if key = i.redirectedKey(req); key != "" {
			c.key = key
			return true, nil
		}
		if key = i.generate(req); key == "" {
			return false, nil
		}
	}
	if own || i.NewKey != nil {
		if err := i.check(key); err != nil {
			return false, err
		}
	}
	c.key, c.callerKey = i.encode(key), own
	return true, nil
}

func (i *Idempotency) generate(req *http.Request) string {
	if i.NewKey != nil {
		return i.NewKey(req)
	}
	if key := invocationKey(req); key != "" {
		return key
	}
	var id uuid.UUID // uuid.NewString would allocate three times
	_, _ = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, variant of RFC 9562
	return id.String()
}

// callersKey is the key that the caller has set, in any spelling of the field's name: net/http
// sends the name as it is.
func (i *Idempotency) callersKey(h http.Header) string {
	if key := headerValue(h, i.Header); key != "" {
		return key
	}
	for name := range h {
		if len(name) == len(i.Header) && strings.EqualFold(name, i.Header) && headerValue(h, name) != "" {
			return headerValue(h, name)
		}
	}
	return ""
}

// redirectedKey is the key of the request whose 307 or 308 led to this one, if both have the
// same origin. http.Client follows such a redirect with the same method and body: it is the
// same order. Another origin has not seen the key and gets one of its own.
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
	if c := callOf(from); c != nil {
		if c.redirected.Swap(true) {
			return "" // Response.Request is sent again: another order
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

// encode returns the key as it is sent.
func (i *Idempotency) encode(key string) string {
	if _, rest, ok := structured.String(key); !i.Quoted || ok && rest == "" {
		return key
	}
	return structured.Quote(key)
}

// check rejects a key that package idempotency would reject, or that is too long for the API.
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
