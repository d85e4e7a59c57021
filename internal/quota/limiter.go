// Package quota paces requests: by a static ceiling, and by what servers say of
// their quotas.
//
// It works by three rules. A quota that a server describes is kept: requests in
// flight count against what remains, and when nothing does, the others wait in
// line for the reset. That nothing remains is a claim until it was seen to be true:
// a call that would be turned away for it goes and sees. A refusal that proves nothing about a quota holds its own
// call alone, until refusals are the rule: then the scope is closed for as long as
// the server asks, twice as long each time that proves too short, and opened by
// the first success of a request sent later.
//
// A Limiter knows scopes, credentials, times and answers, and nothing of HTTP
// calls: Admit gives a Ticket or a Refusal, and the ticket is ended by Done with
// the answer, or by Cancel if no request was sent.
package quota

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Config is how a Limiter works. All of it is set: there are no defaults here.
type Config struct {
	// Limit is the static ceiling of each scope, in requests per second, and
	// Burst the size of its token bucket, at least 1; a Limit of 0 is none.
	Limit rate.Limit
	Burst int
	// MaxWait is the longest wait for a turn; 0 or less: none waits.
	MaxWait time.Duration
	// MaxClosed is the longest that a server's word closes a scope, in (0, Longest].
	MaxClosed time.Duration
	// Shared, if not nil, keeps the quota of many processes: the static ceiling, or where
	// there is none those that servers tell.
	Shared quotastore.Store
	// Follow is false where servers' words do not count, but the ceiling alone.
	Follow bool
}

// Longest bounds how far ahead a turn can be foreseen, and how long a server can
// be waited for.
const Longest = 24 * time.Hour

// Limiter paces the requests to any number of scopes. It is safe for concurrent
// use, has no goroutine of its own, and must not be copied.
type Limiter struct {
	Config

	origin   time.Time // times are kept as distances from it
	seed     maphash.Seed
	statics  scope.Map[string, static] // a ceiling is that of all classes of a scope
	leases   scope.Map[string, lease]  // or that of many processes
	accounts scope.Map[credential, account]
	buckets  scope.Map[bucketKey, bucket] // those that servers name
	routes   scope.Map[uint64, route]     // and who is in them
}

// New returns a Limiter.
func New(c Config) *Limiter {
	l := &Limiter{Config: c, origin: time.Now(), seed: maphash.MakeSeed()}
	l.accounts.Clone = credential.clone
	l.accounts.Keep = (*account).busy
	l.buckets.Clone = func(k bucketKey) bucketKey { return bucketKey{k.credential.clone(), k.name, k.id} }
	l.buckets.Keep = (*bucket).busy
	l.routes.Max = mostRoutes
	l.leases.Keep = (*lease).busy
	return l
}

// Hash is what a Request bears of a credential. It cannot be reversed, and is
// another one in each Limiter; but where processes share a quota it is the same in all.
func (l *Limiter) Hash(secret string) uint64 {
	if l.Shared == nil {
		return maphash.String(l.seed, secret)
	}
	sum := sha256.Sum256([]byte("resilienthttp: a credential\x00" + secret))
	return binary.BigEndian.Uint64(sum[:])
}

// steady is a time by the monotonic clock alone: a step of our wall clock must
// not look like one of the server's.
func (l *Limiter) steady(now time.Time) time.Time { return l.origin.Add(now.Sub(l.origin)) }

// Admit waits for the request's turn and takes it, or refuses it. It returns as
// soon as ctx is done. A token of the static ceiling is taken last, when the
// request can leave: so what a server holds back leaves within the ceiling too.
func (l *Limiter) Admit(ctx context.Context, r Request, now time.Time) (Ticket, *Refusal) {
	q := queueing{
		ctx: ctx, deadline: r.Deadline, maxWait: l.MaxWait, maxClosed: r.MaxClosed, who: r.Waiter, method: r.Method, path: r.Path,
	}
	if r.NoWait {
		q.maxWait = 0
	}
	begun, waited := now, false
	for {
		var t Ticket
		var refusal *Refusal
		if l.Follow {
			b := l.bucketOf(&r)
			if t, refusal = b.enter(now, r.Scope.Class, q); refusal != nil && !r.NoWait {
				var again bool
				if t, again = b.appeal(refusal, r.Scope.Class, q); again {
					waited, now = true, time.Now()
					q.maxWait = l.MaxWait - now.Sub(begun)
					continue
				}
			}
			if t.bucket == nil {
				return Ticket{}, refusal
			}
			t.method, t.path = r.Method, r.Path
			waited = waited || t.Waited
		}
		if l.countHere(&t, r.Scope.Name) {
			if t.Waited {
				now = time.Now()
				q.maxWait = l.MaxWait - now.Sub(begun)
			}
			var stood bool
			if stood, refusal = t.count(now, q); refusal != nil {
				return Ticket{}, refusal
			}
			if stood {
				waited = true
				if now = time.Now(); l.moved(&t, &r) || !t.renew(now) {
					t.Cancel(now) // the server has said no meanwhile, or whose quota it is
					q.maxWait = l.MaxWait - now.Sub(begun)
					continue
				}
			}
		}
		t.Waited = waited
		return t, nil
	}
}

// countHere finds who counts the request beside the server's own words: the static
// ceiling, or the quota of many processes. It reports false if nobody does.
func (l *Limiter) countHere(t *Ticket, name string) bool {
	switch {
	case l.Shared == nil && l.Limit > 0:
		t.static = l.static(name)
	case l.Limit > 0:
		t.lease = l.ceilingLease(name)
	case t.bucket != nil:
		t.lease = t.bucket.lease
	}
	return t.static != nil || t.lease != nil
}

// moved reports whether the server has named another bucket for the request while that
// stood in line for the quota that many processes share: all who wait for the first of a
// process would follow it, past the quota that it was refused by.
func (l *Limiter) moved(t *Ticket, r *Request) bool {
	return t.bucket != nil && t.bucket.lease != nil && l.bucketOf(r) != t.bucket
}

// Closed is until when the request's scope is closed by refusals that asked to
// wait; the zero time if it is open. It is for the question whether a wait is worth
// beginning.
func (l *Limiter) Closed(r Request, now time.Time) time.Time {
	if !l.Follow {
		return time.Time{}
	}
	until, _ := l.bucketOf(&r).closedUntil(r.Scope.Class, l.steady(now))
	return until
}
