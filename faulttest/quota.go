package faulttest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"
)

// Quota is a handler that accepts a number of requests per window, rejects the others, and
// advertises the quota on each response in a Dialect. Windows are fixed, and those of a second or
// more start on a whole second. The advertised values are rounded so that a client that follows
// them is never rejected. With the dialect [Shopify] it is a leaky bucket: it holds Limit requests
// and is empty after one Window.
//
// The zero value accepts 60 requests per minute. A Quota is safe for concurrent use and must not
// be modified or copied after its first request. Servers that share it share its count.
type Quota struct {
	// Limit is the number of requests per window. Zero means 60. A negative number means none.
	Limit int
	// Window is the length of a window. Zero means 1 min.
	Window time.Duration
	// Dialect is the dialect of the header. Zero means IETF.
	Dialect Dialect
	// Name is the name of the quota: see RateLimit.Name.
	Name string

	// Status is the status of a rejection. Zero means 429.
	Status int
	// RetryAfterFormat is the format of a rejection's Retry-After. Zero means Seconds.
	RetryAfterFormat RetryAfterFormat

	// KeyFunc returns the key of a request. Each key has its own quota: see Credential. Nil
	// means one quota for all requests.
	KeyFunc func(*http.Request) string

	// Next handles accepted requests. nil means the zero Reply.
	Next http.Handler

	mu                 sync.Mutex
	begin              time.Time
	usage              map[string]*usage // by key
	accepted, rejected int
}

var _ http.Handler = (*Quota)(nil)

// usage is the usage of one key.
type usage struct {
	window int64     // number of the window of used
	used   int       // requests in that window
	level  float64   // level of the leaky bucket
	at     time.Time // time of level
}

// Credential is a [Quota.KeyFunc]. It returns the value of the Authorization field.
func Credential(r *http.Request) string { return r.Header.Get("Authorization") }

// Counts returns the numbers of accepted and of rejected requests.
func (q *Quota) Counts() (accepted, rejected int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accepted, q.rejected
}

// ServeHTTP calls Next or rejects the request.
func (q *Quota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !q.Dialect.valid() {
		misuse(w, r, fmt.Sprintf("Quota.Dialect: %v is not a dialect", q.Dialect))
		return
	}
	if !q.RetryAfterFormat.valid() {
		misuse(w, r, fmt.Sprintf("Quota.RetryAfterFormat: %d is not a format", q.RetryAfterFormat))
		return
	}
	key := ""
	if q.KeyFunc != nil {
		key = q.KeyFunc(r)
	}
	x := exchangeOf(r)
	now := time.Now()
	accepted, state, wait := q.take(key, now)
	x.adjustClock(q.Dialect)
	now = x.clock(now) // the same time in the whole response
	h := w.Header()
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	state.set(h, now)
	if accepted {
		orOK(q.Next).ServeHTTP(w, r)
		return
	}
	x.note("over quota")
	q.RetryAfterFormat.set(h, wait, now)
	Reply{Status: cmp.Or(q.Status, http.StatusTooManyRequests)}.ServeHTTP(w, r)
}

// maxKeys is the number of keys above which old ones are removed.
const maxKeys = 1024

// take counts a request, and returns the time until another one is accepted.
func (q *Quota) take(key string, now time.Time) (accepted bool, state RateLimit, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit, window := max(cmp.Or(q.Limit, 60), 0), q.Window
	if window <= 0 {
		window = time.Minute
	}
	if q.begin.IsZero() {
		q.begin = now
		if window >= time.Second {
			q.begin = now.Add(-time.Duration(now.Nanosecond()))
		}
	}
	state = RateLimit{Dialect: q.Dialect, Limit: limit, Window: window, Name: q.Name}
	number := int64(now.Sub(q.begin) / window)
	u := q.of(key, number, now, window)
	if q.Dialect == Shopify {
		accepted, wait = u.leak(limit, window, now)
		state.Remaining = int(float64(limit) - u.level)
		state.Reset = time.Duration(u.level / float64(max(limit, 1)) * float64(window))
	} else {
		if u.window != number {
			u.window, u.used = number, 0
		}
		wait = q.begin.Add(time.Duration(number+1) * window).Sub(now)
		if accepted = u.used < limit; accepted {
			u.used++
		}
		state.Remaining, state.Reset = limit-u.used, wait
	}
	if accepted {
		q.accepted++
	} else {
		q.rejected++
	}
	return accepted, state, wait
}

// of returns the usage of one key. If there are many keys, it removes those with a reset quota.
func (q *Quota) of(key string, number int64, now time.Time, window time.Duration) *usage {
	if u := q.usage[key]; u != nil {
		return u
	}
	if len(q.usage) >= maxKeys {
		maps.DeleteFunc(q.usage, func(_ string, u *usage) bool { return u.window < number && now.Sub(u.at) >= window })
	}
	if q.usage == nil {
		q.usage = make(map[string]*usage)
	}
	u := &usage{window: number, at: now}
	q.usage[key] = u
	return u
}

// leak updates the level of the leaky bucket and adds one request if it fits.
func (u *usage) leak(limit int, window time.Duration, now time.Time) (accepted bool, wait time.Duration) {
	if limit == 0 {
		return false, window
	}
	u.level = max(u.level-float64(limit)*float64(now.Sub(u.at))/float64(window), 0)
	u.at = now
	over := u.level + 1 - float64(limit)
	if over > 1e-6 {
		return false, time.Duration(over / float64(limit) * float64(window))
	}
	u.level++
	return true, 0
}
