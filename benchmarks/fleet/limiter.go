package fleet

import (
	"net/http"
	"strconv"
	"time"
)

// Limit is the rate limit of a server. The zero value is unlimited.
type Limit struct {
	Quota  int           // requests per Window of the clock
	Window time.Duration // 0: a second

	Rate  float64 // or: tokens per second of a token bucket
	Burst int     // and its capacity

	Status  int          // of rejections; 0: 429
	Headers HeaderPolicy // which headers the server sends

	API API // the limiter of a modeled API, instead of the above
}

// HeaderPolicy tells which headers a limit sends.
type HeaderPolicy int

// The header policies.
const (
	AllHeaders          HeaderPolicy = iota // quota: GitHub's headers on each response, and Retry-After; bucket: Retry-After: 1
	HeadersOnRejections                     // the same, only on rejections
	RetryAfterOnly                          // only Retry-After
	NoHeaders                               // only a status
)

// perSecond is the mean permitted rate.
func (l Limit) perSecond() float64 {
	if l.Quota > 0 {
		return float64(l.Quota) / l.window().Seconds()
	}
	return l.Rate
}

func (l Limit) window() time.Duration {
	if l.Window == 0 {
		return time.Second
	}
	return l.Window
}

func (l Limit) status() int {
	if l.Status == 0 {
		return http.StatusTooManyRequests
	}
	return l.Status
}

// granted is the maximum number of permitted requests in the time.
func (l Limit) granted(length time.Duration) float64 {
	if l.Quota > 0 {
		return float64(l.Quota) * float64(length/l.window())
	}
	return float64(l.Burst) + l.Rate*length.Seconds()
}

// limiter enforces a Limit. It is not safe for concurrent use.
type limiter struct {
	Limit
	window int64 // number of the current window
	used   int   // requests in it
	tokens float64
	last   time.Time
	api    *apiMeter // nil: none
}

func newLimiter(l Limit, start time.Time) *limiter {
	m := &limiter{Limit: l, tokens: float64(l.Burst), last: start}
	if l.API != "" {
		m.api = newAPIMeter(l, start)
	}
	return m
}

// admit reports whether a request is permitted, and returns the response's headers.
func (l *limiter) admit(now time.Time) (header http.Header, ok bool) {
	switch {
	case l.api != nil:
		return l.api.admit(now)
	case l.Quota > 0:
		return l.admitByQuota(now)
	case l.Rate > 0:
		return l.admitByBucket(now)
	}
	return nil, true
}

// admitByQuota sends GitHub's headers.
func (l *limiter) admitByQuota(now time.Time) (http.Header, bool) {
	width := int64(l.Limit.window() / time.Second)
	if window := now.Unix() / width; window != l.window {
		l.window, l.used = window, 0
	}
	ok := l.used < l.Quota
	if ok {
		l.used++
	}
	reset := (l.window + 1) * width
	header := http.Header{}
	if l.Headers == AllHeaders || l.Headers == HeadersOnRejections && !ok {
		header["Date"] = []string{now.UTC().Format(http.TimeFormat)}
		header["X-Ratelimit-Limit"] = []string{strconv.Itoa(l.Quota)}
		header["X-Ratelimit-Remaining"] = []string{strconv.Itoa(l.Quota - l.used)}
		header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(reset, 10)}
	}
	if !ok && l.Headers != NoHeaders {
		header["Retry-After"] = []string{strconv.FormatInt(reset-now.Unix(), 10)}
	}
	return header, ok
}

// admitByBucket is the limiter of many gateways, which send Retry-After: 1.
func (l *limiter) admitByBucket(now time.Time) (http.Header, bool) {
	l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*l.Rate, float64(l.Burst))
	l.last = now
	if l.tokens > 1-1e-9 { // sums of fractions are not exact
		l.tokens--
		return nil, true
	}
	if l.Headers == NoHeaders {
		return nil, false
	}
	return http.Header{"Retry-After": {"1"}}, false
}
