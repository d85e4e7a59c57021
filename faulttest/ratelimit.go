package faulttest

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// RetryAfterFormat is a format in which a server asks the client to wait.
type RetryAfterFormat int

const (
	// Seconds is "Retry-After: 3". It is the zero value.
	Seconds RetryAfterFormat = iota
	// Fraction is "Retry-After: 2.500". No RFC allows it, but servers send it.
	Fraction
	// HTTPDate is "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT".
	HTTPDate
	// RFC850Date is "Retry-After: Sunday, 06-Nov-94 08:49:37 GMT", which clients must
	// accept (RFC 9110).
	RFC850Date
	// ANSICDate is "Retry-After: Sun Nov  6 08:49:37 1994", which clients must accept.
	ANSICDate
	// Millis is "Retry-After-Ms: 2500" of OpenAI.
	Millis
	// AzureMillis is "X-Ms-Retry-After-Ms: 2500" of Azure.
	AzureMillis
	// NoRetryAfter sends no field. It is for a [Quota] without Retry-After.
	NoRetryAfter
)

// rfc850 is time.RFC850 with GMT, the only zone in HTTP.
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

func (f RetryAfterFormat) valid() bool { return f >= Seconds && f <= NoRetryAfter }

// set sets the field in h. The wait is rounded up, so that a client that follows it is not too
// early.
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

// Dialect is the set of header fields in which a server advertises its rate limits.
type Dialect int

const (
	// IETF is the current draft: RateLimit-Policy: "p";q=100;w=60 and RateLimit:
	// "p";r=50;t=30. It is the zero value.
	IETF Dialect = iota
	// IETF07 is draft -07: RateLimit: limit=100, remaining=50, reset=30.
	IETF07
	// IETF06 is draft -06 and older: RateLimit-Limit, -Remaining and -Reset in seconds.
	IETF06
	// GitHub is X-RateLimit-Limit, -Remaining, -Used, -Resource, and -Reset in epoch
	// seconds.
	GitHub
	// GitLab is RateLimit-Limit, -Observed, -Remaining, -Name, -Reset in epoch seconds, and
	// -ResetTime, an HTTP date.
	GitLab
	// Okta is X-Rate-Limit-Limit, -Remaining, and -Reset in epoch seconds, as also for X.
	Okta
	// OpenAI is X-RateLimit-Limit-Requests, -Remaining-Requests, and
	// -Reset-Requests as a duration: 12ms, 6m0s.
	OpenAI
	// AzureOpenAI has the fields of OpenAI with resets in whole seconds. Its values for
	// tokens are unknown: -1, -1 and 0.
	AzureOpenAI
	// Anthropic is Anthropic-RateLimit-Requests-Limit, -Remaining, and -Reset as
	// an RFC 3339 time.
	Anthropic
	// Discord is X-RateLimit-Limit, -Remaining, -Bucket, -Reset in epoch seconds, and
	// -Reset-After in seconds, both with fractions.
	Discord
	// Reddit is X-Ratelimit-Used, -Remaining with a fraction, and -Reset in seconds.
	Reddit
	// Zendesk is X-Rate-Limit, X-Rate-Limit-Remaining, and RateLimit-Reset in seconds.
	Zendesk
	// Shopify is "X-Shopify-Shop-Api-Call-Limit: 32/40", a leaky bucket without a reset.
	Shopify
	// NoHeaders sends no fields.
	NoHeaders
)

// String returns the name of the constant.
func (d Dialect) String() string {
	names := [...]string{
		"IETF", "IETF07", "IETF06", "GitHub", "GitLab", "Okta", "OpenAI", "AzureOpenAI",
		"Anthropic", "Discord", "Reddit", "Zendesk", "Shopify", "NoHeaders",
	}
	if d < 0 || int(d) >= len(names) {
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
	return names[d]
}

func (d Dialect) valid() bool { return d >= IETF && d <= NoHeaders }

// hasEpochReset reports whether resets are in epoch seconds.
func (d Dialect) hasEpochReset() bool {
	switch d {
	case GitHub, GitLab, Okta, Discord:
		return true
	default:
		return false
	}
}

// RateLimit is one quota that a response advertises. It is a plain value. A [Quota] also enforces
// its quota.
type RateLimit struct {
	// Dialect is the dialect of the header. Zero means IETF. Header sends nothing for a number that
	// is none.
	Dialect Dialect
	// Limit is the number of requests, tokens or the like per window.
	Limit int
	// Remaining is the remaining part of Limit.
	Remaining int
	// Reset is the time until the quota is reset, rounded up to what the dialect can express.
	// Shopify has no reset.
	Reset time.Duration
	// Window is the length of a window. Only IETF sends it. Zero means that it is not sent.
	Window time.Duration

	// Name is the name of the quota or the bucket, if the dialect has one. "" means "requests" for
	// OpenAI, AzureOpenAI and Anthropic, "core" for GitHub, "throttle_authenticated_api" for
	// GitLab, "bucket" for Discord and "default" for IETF.
	Name string
}

// Header returns the header fields of a response that is sent now, for servers of your own. The
// response should have a Date of the same time, because some dialects have absolute resets.
func (l RateLimit) Header(now time.Time) http.Header {
	h := make(http.Header)
	l.set(h, now)
	return h
}

// set sets the fields in h. Several quotas can be added if the dialect allows it.
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
		openAI(h, l.name("requests"), limit, remaining, roundUp(l.Reset, time.Millisecond).String())
	case AzureOpenAI:
		if h["X-Ratelimit-Limit-Tokens"] == nil { // otherwise another RateLimit has set it
			openAI(h, "Tokens", "-1", "-1", "0")
		}
		openAI(h, l.name("requests"), limit, remaining, wait)
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
	default: // NoHeaders
	}
}

func (l RateLimit) name(defaultName string) string { return cmp.Or(l.Name, defaultName) }

// trio sets the three fields that most dialects have.
func trio(h http.Header, prefix, limit, remaining, reset string) {
	h.Set(prefix+"Limit", limit)
	h.Set(prefix+"Remaining", remaining)
	h.Set(prefix+"Reset", reset)
}

// openAI sets the same three fields with OpenAI's names.
func openAI(h http.Header, name, limit, remaining, reset string) {
	h.Set("X-Ratelimit-Limit-"+name, limit)
	h.Set("X-Ratelimit-Remaining-"+name, remaining)
	h.Set("X-Ratelimit-Reset-"+name, reset)
}

// roundUp rounds d up to a multiple of unit.
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

// decimal returns d in seconds with three digits after the point.
func decimal(d time.Duration) string {
	ms := ceil(d, time.Millisecond)
	return fmt.Sprintf("%d.%03d", ms/1000, ms%1000)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
