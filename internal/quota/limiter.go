// Package quota limits the rate of requests: by a static limit, and by the quotas that
// servers show.
//
// A quota is a limit, a remaining count and a reset, for each scope, credential, name and
// dimension. A request takes one of what remains; when nothing remains, calls queue until
// the reset and are then released evenly. A rejection that shows an exhausted quota blocks
// it until its reset. Any other delays its own call, and blocks the scope only when
// rejections are all that comes back. What is not plausible is ignored.
//
// A Limiter knows scopes, credentials, times and results, and makes no HTTP call: Admit
// returns a Ticket or a Refusal. The ticket needs Done with the result, or Cancel if no
// request was sent.
package quota

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Config is how a Limiter works. All of it is set: there are no defaults here.
type Config struct {
	// Limit is the static limit of each scope, in requests per second, and Burst the size
	// of its token bucket, at least 1; a Limit of 0 is none.
	Limit rate.Limit
	Burst int
	// MaxWait is the longest wait for a permit; 0 or less: calls never wait.
	MaxWait time.Duration
	// MaxBlock is the longest time for which a server may block a scope, in (0, Longest].
	MaxBlock time.Duration
	// Shared, if not nil, is the store of the quotas that many processes share: the static
	// limit, or the servers' quotas if there is none.
	Shared quotastore.Store
	// Follow is false if servers' headers are ignored.
	Follow bool
}

// Longest bounds all waits and estimates.
const Horizon = waitqueue.Horizon

// Limiter limits the requests to any number of scopes. It is safe for concurrent use, has
// no goroutine, and must not be copied.
type Limiter struct {
	Config

	origin   time.Time // times are kept as distances from it
	seed     maphash.Seed
	statics  scope.Map[string, static]            // the static limit of a scope
	shared   scope.Map[string, sharedquota.Quota] // the same, shared by processes
	accounts scope.Map[credential, quotaSet]
	buckets  scope.Map[bucketKey, bucket] // those that are not the account's default
	routes   scope.Map[uint64, route]
}

// New returns a Limiter.
func New(c Config) *Limiter {
	l := &Limiter{Config: c, origin: time.Now(), seed: maphash.MakeSeed()}
	l.accounts.Clone = credential.clone
	l.accounts.Keep = (*quotaSet).busy
	l.buckets.Clone = func(k bucketKey) bucketKey { return bucketKey{k.credential.clone(), k.name, k.id} }
	l.buckets.Keep = (*bucket).busy
	l.routes.Max = maxRoutes
	l.shared.Keep = (*sharedquota.Quota).Busy
	return l
}

// Hash is what a Request has of a credential. It cannot be reversed, and differs between
// Limiters; but processes that share a quota have the same.
func (l *Limiter) Hash(secret string) uint64 {
	if l.Shared == nil {
		return maphash.String(l.seed, secret)
	}
	sum := sha256.Sum256([]byte("resilienthttp: a credential\x00" + secret))
	return binary.BigEndian.Uint64(sum[:])
}

// steady is a time of the monotonic clock alone: a step of the local wall clock must not
// look like a step of the server's.
func (l *Limiter) steady(now time.Time) time.Time { return l.origin.Add(now.Sub(l.origin)) }

// Admit waits for a permit, or rejects the request. It returns as soon as ctx is done. A
// token of the static limit, or of a shared quota, is taken last, when the server's quota
// admits the request.
func (l *Limiter) Admit(ctx context.Context, r Request, now time.Time) (Permit, *Rejection) {
	limits := waitqueue.Limits{Ctx: ctx, Deadline: r.Deadline, MaxWait: l.MaxWait, MaxBlock: r.MaxBlock, Waiter: r.Waiter}
	if r.NoWait {
		limits.MaxWait = 0
	}
	begun, waited := now, false
	for {
		var t Permit
		if l.Follow {
			var refused *Rejection
			if t, refused = l.bucketOf(&r).enter(now, &r, limits); refused != nil {
				return Permit{}, refused
			}
			waited = waited || t.Waited
		}
		if t.Waited {
			now = time.Now()
			limits.MaxWait = l.MaxWait - now.Sub(begun)
		}
		counted, refused := l.count(&t, &r, now, limits)
		if refused != nil {
			return Permit{}, refused
		}
		if counted {
			waited = true
			if now = time.Now(); l.rerouted(&t, &r) || !t.renew(now) {
				t.Cancel(now) // the server has rejected meanwhile, or named another bucket
				limits.MaxWait = l.MaxWait - now.Sub(begun)
				continue
			}
		}
		t.Waited = waited
		return t, nil
	}
}

// count takes a token of the static limit or of a shared quota, and reports whether the
// request had to wait for it. Without a token, or if a Waiter panics, t is canceled.
func (l *Limiter) count(t *Permit, r *Request, now time.Time, limits waitqueue.Limits) (waited bool, refused *Rejection) {
	admitted := false
	defer func() {
		if !admitted {
			t.static, t.shared = nil, nil
			t.Cancel(time.Now())
		}
	}()
	switch {
	case l.Limit > 0 && l.Shared == nil:
		t.static = l.static(r.Scope.Name)
		waited, refused = t.static.enter(now, limits)
	case l.Limit > 0:
		t.shared = l.shared.Get(r.Scope.Name)
		t.shared.InitStatic(l.Shared, l.origin, r.Scope.Name, float64(l.Limit), l.Burst)
	case t.bucket != nil:
		t.shared = t.bucket.shared
	}
	if t.shared != nil {
		t.permit, waited, refused = t.shared.Enter(now, limits)
	}
	admitted = refused == nil
	return waited, refused
}

// rerouted reports whether the server has named another bucket for the request while it
// waited for a shared quota. All calls that wait for the first response of a process would
// otherwise bypass the quota of that bucket.
func (l *Limiter) rerouted(t *Permit, r *Request) bool {
	return t.bucket != nil && t.bucket.shared != nil && l.bucketOf(r) != t.bucket
}

// Closed is until when rejections have blocked the request's scope; the zero time if they
// have not. The caller asks it before it begins to wait for a retry.
func (l *Limiter) BlockedUntil(r Request, now time.Time) time.Time {
	if !l.Follow {
		return time.Time{}
	}
	until, _ := l.bucketOf(&r).blockedUntil(r.Scope.Class, l.steady(now))
	return until
}
