// Package quota limits the rate of requests: by a fixed limit, by the number of requests in flight,
// and by the quotas that servers advertise.
//
// The headings of docs/rate-limits.md and where they are:
//
//   - What is counted apart: bucket.go, the quotas of a credential and Key.
//   - Routes: route.go.
//   - Waiting for the reset: dimension.go, one quota; observation.go, what a response says of it,
//     and the server's clock; learn.go, a bucket learns from a response; cost.go, tokens.
//   - Rejections: rejection.go.
//   - Probes, and counts that are ignored: probe.go.
//   - After a wait: release.go.
//   - Change it: fixed.go, Limit and MaxInFlight.
//
// A Limiter makes no HTTP calls. It has a Set for each scope. While a Set is not Active, a
// request needs no permit, and Observe gets its response. After that, Admit returns a Permit or a
// Rejection. A bucket is a quota with the queue of calls that wait for it.
package quota

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Config is the configuration of a Limiter. There are no defaults: all fields must be set.
type Config struct {
	// Limit is the fixed limit of each scope, in requests per second; 0 means none. Burst is the
	// size of its token bucket, at least 1.
	Limit rate.Limit
	Burst int
	// MaxInFlight is the maximum number of requests in flight of each scope; 0 or less means none.
	MaxInFlight int
	// MaxWait is the longest wait for a permit. If it is 0 or less, calls never wait.
	MaxWait time.Duration
	// MaxBlock is the longest time for which a server may block a scope, in (0, Horizon].
	MaxBlock time.Duration
	// Shared is the store of the quotas that processes share: the fixed limit, or the servers'
	// quotas if there is none. nil means no sharing.
	Shared quotastore.Store
	// Follow is false if servers' headers are ignored.
	Follow bool
}

// Horizon bounds all waits and estimates.
const Horizon = waitqueue.Horizon

// Limiter limits the requests to any number of scopes. It is safe for concurrent use, has
// no goroutine, and must not be copied.
type Limiter struct {
	Config

	origin   time.Time // zero point of the times
	sets     scope.Map[string, Set]
	accounts scope.Map[accountKey, account]
	buckets  scope.Map[bucketKey, bucket] // without the general ones
	routes   scope.Map[uint64, route]
}

// seed is that of all limiters, because Transports of one Breaker must have the same hashes of routes.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // never written to

// New returns a Limiter.
func New(c Config) *Limiter {
	l := &Limiter{Config: c, origin: time.Now()}
	l.sets.Keep = (*Set).Active // others have no information, and are evicted first
	l.sets.Held = (*Set).Held
	l.sets.Init = func(scope string, s *Set) { s.init(l, scope) }
	l.accounts.Keep = func(a *account) bool { return a.known.Load() } // others are evicted first
	l.accounts.Init = func(k accountKey, a *account) {
		a.accountKey, a.limiter = k, l
		a.general.init(bucketKey{account: a})
	}
	l.buckets.Init = func(k bucketKey, b *bucket) { b.init(k) }
	return l
}

// Set returns the Set of a scope.
func (l *Limiter) Set(scope string) *Set { return l.sets.Get(scope) }

// Hash returns the Credential of a Request. It cannot be reversed. It differs between processes,
// except those that share a quota.
func (l *Limiter) Hash(secret string) uint64 {
	if l.Shared == nil {
		return maphash.String(seed, secret)
	}
	sum := sha256.Sum256([]byte("resilienthttp: a credential\x00" + secret))
	return binary.BigEndian.Uint64(sum[:])
}

// sinceOrigin returns the time since the limiter's origin in nanoseconds, at least 1.
func (l *Limiter) sinceOrigin(t time.Time) int64 { return max(int64(t.Sub(l.origin)), 1) }

// steady returns a time of the monotonic clock: a step of the local wall clock must not look like
// a step of the server's clock.
func (l *Limiter) steady(now time.Time) time.Time { return l.origin.Add(now.Sub(l.origin)) }
