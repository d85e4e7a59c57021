package faulttest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A Form is a way to say how long the client is to wait.
type RetryAfterFormat int

const (
	// Seconds is Retry-After: 3. It is the zero value.
	Seconds RetryAfterFormat = iota
	// Fraction is Retry-After: 2.500, which is in no RFC, and is sent.
	Fraction
	// HTTPDate is Retry-After: Sun, 06 Nov 1994 08:49:37 GMT.
	HTTPDate
	// RFC850Date is Retry-After: Sunday, 06-Nov-94 08:49:37 GMT, which receivers
	// must still understand.
	RFC850Date
	// ANSICDate is Retry-After: Sun Nov  6 08:49:37 1994, likewise.
	ANSICDate
	// Millis is Retry-After-Ms: 2500, of OpenAI.
	Millis
	// AzureMillis is X-Ms-Retry-After-Ms: 2500, of Azure.
	AzureMillis
	// Unsaid is not a word: for a [Quota] that gives no Retry-After.
	NoRetryAfter
)

// rfc850 is time.RFC850 in the only zone that HTTP has.
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// set says in h that the client is to wait. A wait is rounded up, never down:
// a client that takes it at its word does not come too early.
func (f RetryAfterFormat) set(h http.Header, wait time.Duration, now time.Time) {
	at := seconds(now.Add(wait)).UTC()
	switch f {
	case Fraction:
		h.Set("Retry-After", decimal(wait))
	case HTTPDate:
		h.Set("Retry-After", at.Format(http.TimeFormat))
	case RFC850Date:
		h.Set("Retry-After", at.Format(rfc850))
	case ANSICDate:
		h.Set("Retry-After", at.Format(time.ANSIC))
	case Millis:
		h.Set("Retry-After-Ms", itoa(ceil(wait, time.Millisecond)))
	case AzureMillis:
		h.Set("X-Ms-Retry-After-Ms", itoa(ceil(wait, time.Millisecond)))
	case NoRetryAfter:
	default:
		h.Set("Retry-After", itoa(ceil(wait, time.Second)))
	}
}

// A Dialect is the way in which a server words its rate limits.
type Dialect int

const (
	// IETF is the current draft: RateLimit-Policy: "p";q=100;w=60 and
	// RateLimit: "p";r=50;t=30. It is the zero value.
	IETF Dialect = iota
	// IETF07 is draft -07: RateLimit: limit=100, remaining=50, reset=30.
	IETF07
	// IETF06 is draft -06 and older: RateLimit-Limit, -Remaining, -Reset, in
	// seconds.
	IETF06
	// GitHub is X-RateLimit-Limit, -Remaining, -Used, -Resource, and -Reset in
	// seconds since 1970.
	GitHub
	// GitLab is RateLimit-Limit, -Observed, -Remaining, -Name, and the reset as
	// -Reset in seconds since 1970 and as -ResetTime, an HTTP date.
	GitLab
	// Okta is X-Rate-Limit-Limit, -Remaining, and -Reset in seconds since 1970.
	// The API of X speaks it too.
	Okta
	// OpenAI is X-RateLimit-Limit-Requests, -Remaining-Requests, and
	// -Reset-Requests as a duration: 12ms, 6m0s.
	OpenAI
	// AzureOpenAI has the fields of OpenAI with resets in whole seconds, and says
	// of tokens that it does not know: -1, -1 and 0.
	AzureOpenAI
	// Anthropic is Anthropic-RateLimit-Requests-Limit, -Remaining, and -Reset as
	// an RFC 3339 time.
	Anthropic
	// Discord is X-RateLimit-Limit, -Remaining, -Bucket, and the reset as -Reset,
	// seconds since 1970, and as -Reset-After, both with fractions.
	Discord
	// Reddit is X-Ratelimit-Used, -Remaining with a fraction, and -Reset in
	// seconds to go.
	Reddit
	// Zendesk is X-Rate-Limit, X-Rate-Limit-Remaining, and RateLimit-Reset in
	// seconds to go.
	Zendesk
	// Shopify is X-Shopify-Shop-Api-Call-Limit: 32/40, a leaky bucket that tells
	// no reset.
	Shopify
	// Silent says nothing.
	NoHeaders
)

// String returns the name.
func (d Dialect) String() string {
	names := [...]string{
		"IETF", "IETF07", "IETF06", "GitHub", "GitLab", "Okta", "OpenAI", "AzureOpenAI",
		"Anthropic", "Discord", "Reddit", "Zendesk", "Shopify", "Silent",
	}
	if d < 0 || int(d) >= len(names) {
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
	return names[d]
}

// sinceEpoch reports whether resets are told in seconds since 1970.
func (d Dialect) sinceEpoch() bool {
	switch d {
	case GitHub, GitLab, Okta, Discord:
		return true
	default:
		return false
	}
}

// A RateLimit is what a response tells of one quota. It is a plain value. To
// have a quota enforced as well, use a [Quota].
type RateLimit struct {
	Dialect   Dialect
	Limit     int           // requests, or what else is counted, per window
	Remaining int           // of them
	Reset     time.Duration // until the quota is whole again; rounded up to what the dialect can say. Not told by Shopify
	Window    time.Duration // told by IETF alone; 0: not told

	// Name is that of the quota or the bucket, where the dialect has one. "" is
	// "requests" for OpenAI, AzureOpenAI and Anthropic, "core" for GitHub,
	// "throttle_authenticated_api" for GitLab, "bucket" for Discord and
	// "default" for IETF.
	Name string
}

// Header returns the fields of a response that is sent now, by the server's
// clock, for servers of your own. The absolute resets of some dialects are
// meant to be read beside a Date field of the same moment.
func (l RateLimit) Header(now time.Time) http.Header {
	h := make(http.Header)
	l.set(h, now)
	return h
}

// set adds to h. Dialects that can tell of several quotas add up.
func (l RateLimit) set(h http.Header, now time.Time) {
	at := now.Add(l.Reset)
	limit, remaining, used := strconv.Itoa(l.Limit), strconv.Itoa(l.Remaining), strconv.Itoa(max(l.Limit-l.Remaining, 0))
	wait, epoch := itoa(ceil(l.Reset, time.Second)), itoa(seconds(at).Unix())
	switch l.Dialect {
	case IETF:
		name := strconv.Quote(l.name("default"))
		window := ""
		if l.Window > 0 {
			window = ";w=" + itoa(ceil(l.Window, time.Second))
		}
		h.Add("Ratelimit-Policy", name+";q="+limit+window)
		h.Add("Ratelimit", name+";r="+remaining+";t="+wait)
	case IETF07:
		h.Set("Ratelimit", "limit="+limit+", remaining="+remaining+", reset="+wait)
	case IETF06:
		trio(h, "Ratelimit-", limit, remaining, wait)
	case GitHub:
		trio(h, "X-Ratelimit-", limit, remaining, epoch)
		h.Set("X-Ratelimit-Used", used)
		h.Set("X-Ratelimit-Resource", l.name("core"))
	case GitLab:
		trio(h, "Ratelimit-", limit, remaining, epoch)
		h.Set("Ratelimit-Observed", used)
		h.Set("Ratelimit-Resettime", seconds(at).UTC().Format(http.TimeFormat))
		h.Set("Ratelimit-Name", l.name("throttle_authenticated_api"))
	case Okta:
		trio(h, "X-Rate-Limit-", limit, remaining, epoch)
	case OpenAI:
		axis(h, l.name("requests"), limit, remaining, roundUp(l.Reset, time.Millisecond).String())
	case AzureOpenAI:
		if h["X-Ratelimit-Limit-Tokens"] == nil { // else another RateLimit has told
			axis(h, "Tokens", "-1", "-1", "0")
		}
		axis(h, l.name("requests"), limit, remaining, wait)
	case Anthropic:
		trio(h, "Anthropic-Ratelimit-"+l.name("requests")+"-", limit, remaining, seconds(at).UTC().Format(time.RFC3339))
	case Discord:
		trio(h, "X-Ratelimit-", limit, remaining, decimal(at.Sub(time.Unix(0, 0))))
		h.Set("X-Ratelimit-Reset-After", decimal(l.Reset))
		h.Set("X-Ratelimit-Bucket", l.name("bucket"))
	case Reddit:
		h.Set("X-Ratelimit-Used", used)
		h.Set("X-Ratelimit-Remaining", remaining+".0")
		h.Set("X-Ratelimit-Reset", wait)
	case Zendesk:
		h.Set("X-Rate-Limit", limit)
		h.Set("X-Rate-Limit-Remaining", remaining)
		h.Set("Ratelimit-Reset", wait)
	case Shopify:
		h.Set("X-Shopify-Shop-Api-Call-Limit", used+"/"+limit)
	default: // Silent
	}
}

func (l RateLimit) name(otherwise string) string {
	if l.Name == "" {
		return otherwise
	}
	return l.Name
}

// trio sets the three fields of which most dialects are made.
func trio(h http.Header, prefix, limit, remaining, reset string) {
	h.Set(prefix+"Limit", limit)
	h.Set(prefix+"Remaining", remaining)
	h.Set(prefix+"Reset", reset)
}

// axis sets the same three as OpenAI spells them.
func axis(h http.Header, name, limit, remaining, reset string) {
	h.Set("X-Ratelimit-Limit-"+name, limit)
	h.Set("X-Ratelimit-Remaining-"+name, remaining)
	h.Set("X-Ratelimit-Reset-"+name, reset)
}

// roundUp returns the least multiple of unit that is not below d.
func roundUp(d, unit time.Duration) time.Duration { return time.Duration(ceil(d, unit)) * unit }

func ceil(d, unit time.Duration) int64 {
	d = max(d, 0)
	n := int64(d / unit)
	if d%unit != 0 {
		n++
	}
	return n
}

// seconds rounds t up to a whole second.
func seconds(t time.Time) time.Time {
	if t.Nanosecond() == 0 {
		return t
	}
	return t.Truncate(time.Second).Add(time.Second)
}

// decimal is d in seconds with three digits after the point.
func decimal(d time.Duration) string {
	ms := ceil(d, time.Millisecond)
	return fmt.Sprintf("%d.%03d", ms/1000, ms%1000)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
