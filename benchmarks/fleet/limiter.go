package fleet

import (
	"net/http"
	"strconv"
	"time"
)

// Limit is how many requests a server lets in, and what it tells the others. The
// zero value lets in all of them.
type Limit struct {
	Quota  int           // that many in each Window, which are those of the clock
	Window time.Duration // 0: a second

	Rate  float64 // or: of a token bucket, which is refilled by so many a second
	Burst int     // and holds so many

	Status  int          // of those that are not let in; 0: 429
	Headers HeaderPolicy // how much it tells

	API API // how that is counted and told, if not as above
}

// Saying is how much a limit tells.
type HeaderPolicy int

// What a limit tells.
const (
	AllHeaders          HeaderPolicy = iota // a quota: GitHub's headers on each answer, and Retry-After; a bucket: Retry-After: 1
	HeadersOnRejections                     // the same, on those alone that are not let in
	RetryAfterOnly                          // Retry-After alone
	NoHeaders                               // a status without a word
)

// perSecond is what is granted.
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

// granted is how many are let in at most, in so long a time.
func (l Limit) granted(length time.Duration) float64 {
	if l.Quota > 0 {
		return float64(l.Quota) * float64(length/l.window())
	}
	return float64(l.Burst) + l.Rate*length.Seconds()
}

// limiter keeps count for a Limit. It is not safe for concurrent use.
type limiter struct {
	Limit
	window int64 // of the quota
	used   int   // of it
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

// admit lets a request in or not, and says what its answer tells.
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

// admitByQuota tells it in GitHub's words.
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

// admitByBucket is how gateways do it, which ask to wait for a second.
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
