package faulttest

import (
	"net/http"
	"sync"
	"time"
)

// A Quota lets so many requests through per window of time, refuses the others,
// and says on each response how matters stand, in the words of a Dialect and by
// the server's clock. Windows are fixed, one after the other, and those of a
// second or more begin on a whole second. What a Quota says is true and rounded
// to the safe side: a client that believes it is never refused.
//
// With the dialect [Shopify] it is a leaky bucket, as theirs is: Limit requests
// fit in, and it empties evenly in one Window.
//
// The zero value lets 60 requests a minute through. A Quota may be used by many
// goroutines, and its fields must be left alone once it has seen a request. It
// counts for itself, also where several servers share it. It must not be copied.
type Quota struct {
	Limit   int           // requests per window; 0: 60; negative: none
	Window  time.Duration // 0: a minute
	Dialect Dialect       // 0: IETF
	Name    string        // see RateLimit.Name

	Status           int              // of a refusal; 0: 429
	RetryAfterFormat RetryAfterFormat // of a refusal's Retry-After; 0: Seconds

	// By sorts requests: those for which it returns the same have a quota of
	// their own. See Credential. Nil: all share one.
	KeyFunc func(*http.Request) string

	Next http.Handler // serves what is let through; nil: the zero Reply

	mu               sync.Mutex
	begin            time.Time
	use              map[string]*use
	granted, refused int
}

var _ http.Handler = (*Quota)(nil)

// use is what one credential has used.
type use struct {
	window int64     // number of the window that used is about
	used   int       // in that
	level  float64   // of the leaky bucket
	at     time.Time // of level
}

// Credential is for [Quota.By]: the value of the Authorization field.
func Credential(r *http.Request) string { return r.Header.Get("Authorization") }

// Counts returns how many requests were let through, and how many were not.
func (q *Quota) Counts() (granted, refused int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.granted, q.refused
}

// ServeHTTP lets the request through, or refuses it.
func (q *Quota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by := ""
	if q.KeyFunc != nil {
		by = q.KeyFunc(r)
	}
	x := exchangeOf(r)
	now := time.Now()
	granted, standing, again := q.take(by, now)
	x.tells(q.Dialect)
	now = x.clock(now) // one reading of it for the whole answer, or it would not be honest
	h := w.Header()
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	standing.set(h, now)
	if granted {
		orOK(q.Next).ServeHTTP(w, r)
		return
	}
	x.note("over quota")
	status := q.Status
	if status == 0 {
		status = http.StatusTooManyRequests
	}
	q.RetryAfterFormat.set(h, again, now)
	Reply{Status: status}.ServeHTTP(w, r)
}

// maxUses is how many credentials are looked through for old ones.
const maxUses = 1024

// take counts a request, and says when another would get through.
func (q *Quota) take(by string, now time.Time) (granted bool, standing RateLimit, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit, window := q.Limit, q.Window
	if limit == 0 {
		limit = 60
	}
	limit = max(limit, 0)
	if window <= 0 {
		window = time.Minute
	}
	if q.begin.IsZero() {
		q.begin = now
		if window >= time.Second {
			q.begin = now.Add(-time.Duration(now.Nanosecond()))
		}
	}
	standing = RateLimit{Dialect: q.Dialect, Limit: limit, Window: window, Name: q.Name}
	number := int64(now.Sub(q.begin) / window)
	u := q.of(by, number, now, window)
	if q.Dialect == Shopify {
		granted, again = u.leak(limit, window, now)
		standing.Remaining = int(float64(limit) - u.level)
		standing.Reset = time.Duration(u.level / float64(max(limit, 1)) * float64(window))
	} else {
		if u.window != number {
			u.window, u.used = number, 0
		}
		again = q.begin.Add(time.Duration(number+1) * window).Sub(now)
		if granted = u.used < limit; granted {
			u.used++
		}
		standing.Remaining, standing.Reset = limit-u.used, again
	}
	if granted {
		q.granted++
	} else {
		q.refused++
	}
	return granted, standing, again
}

// of returns the use of one credential, and forgets those whose quota is whole
// again when there are many.
func (q *Quota) of(by string, number int64, now time.Time, window time.Duration) *use {
	if u := q.use[by]; u != nil {
		return u
	}
	if len(q.use) >= maxUses {
		for name, u := range q.use {
			if u.window < number && now.Sub(u.at) >= window {
				delete(q.use, name)
			}
		}
	}
	if q.use == nil {
		q.use = make(map[string]*use)
	}
	u := &use{window: number, at: now}
	q.use[by] = u
	return u
}

// leak lets out what has leaked since, and puts one request in if there is room.
func (u *use) leak(limit int, window time.Duration, now time.Time) (granted bool, again time.Duration) {
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
