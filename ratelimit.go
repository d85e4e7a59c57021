package resilienthttp

import (
	"hash/maphash"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

const (
	defaultMaxWait   = time.Minute
	defaultMaxClosed = time.Hour

	mostBuckets = 256  // named by one server for one credential
	mostRoutes  = 1024 // whose bucket is remembered
)

// RateLimit paces calls before the server has to: by a static ceiling, and by
// what servers say in their rate-limit headers (the dialects of GitHub, GitLab,
// OpenAI, Anthropic, Discord, Shopify, the IETF drafts and others). A call that
// finds the quota used up waits for its turn, first come, first served; one
// whose turn would come too late is refused at once.
//
// What servers say is kept for each scope and credential (a keyed hash of the
// Authorization header), and for each bucket that the server names. Requests in
// flight are counted against what remains; resets are judged by the server's own
// Date; after a reset, those who waited are spread. A 429 or 503 with
// Retry-After closes the scope to all its calls, not only to the one that got it.
//
// The zero value has no static ceiling and follows the headers. A RateLimit is
// safe for concurrent use and may be shared by several Transports; its fields
// are read at its first call and must not change after it.
type RateLimit struct {
	// Limit is a static ceiling for each scope, in requests per second, retries
	// and hedges included: a token bucket (golang.org/x/time/rate). 0, negative,
	// NaN and rate.Inf mean none.
	Limit rate.Limit

	// Burst is the size of that bucket. 0 or negative: the requests of one
	// second, at least 1.
	Burst int

	// MaxWait is the longest wait for a turn. A call whose turn would come later
	// is refused at once with ErrRateLimited and a NotBefore. While a server has
	// closed the scope with Retry-After, Policy.MaxRetryAfter bounds the wait as
	// well. 0 means 60 s; a negative duration means never to wait.
	MaxWait time.Duration

	// MaxClosed is the longest that a server's word may close a scope; longer
	// ones are cut. 0 means 1 h; a negative duration means that servers cannot
	// close a scope, as IgnoreHeaders does.
	MaxClosed time.Duration

	// IgnoreHeaders disregards what servers say: no pacing and no closing, only
	// the static ceiling. A call still waits out the Retry-After of its own
	// response.
	IgnoreHeaders bool

	once     sync.Once
	settings rateSettings
	static   scope.Map[string, staticLimit]
	servers  scope.Map[credential, quotas]
	seed     maphash.Seed
}

type rateSettings struct {
	limit     rate.Limit
	burst     int
	maxWait   time.Duration
	maxClosed time.Duration
	follow    bool // what servers say
}

// credential is whose quota it is: servers count by account, not by client.
type credential struct {
	scope string
	hash  uint64
}

// staticLimit is the token bucket of one scope.
type staticLimit struct {
	once    sync.Once
	limiter *rate.Limiter
}

func (l *RateLimit) settle() {
	s := &l.settings
	s.limit, s.burst = l.Limit, l.Burst
	if !(s.limit > 0) || s.limit == rate.Inf {
		s.limit = 0
	}
	if s.burst <= 0 {
		s.burst = int(min(max(math.Ceil(float64(s.limit)), 1), math.MaxInt32))
	}
	s.maxWait = l.MaxWait
	if s.maxWait == 0 {
		s.maxWait = defaultMaxWait
	}
	s.maxWait = max(s.maxWait, 0)
	s.maxClosed = l.MaxClosed
	if s.maxClosed == 0 {
		s.maxClosed = defaultMaxClosed
	}
	s.follow = !l.IgnoreHeaders && s.maxClosed > 0
	l.seed = maphash.MakeSeed()
	l.servers.Keep = (*quotas).busy
	l.servers.Clone = func(c credential) credential { return credential{strings.Clone(c.scope), c.hash} }
}

// enter waits for the attempt's turn and takes it, or refuses the attempt. A
// hedge never waits.
func (l *RateLimit) enter(a *attempt, now time.Time) (waited bool, refused *Error) {
	l.once.Do(l.settle)
	c := a.call
	line := queueing{call: c, maxWait: l.settings.maxWait, maxClosed: c.perCall.MaxRetryAfter}
	if a.record.Hedge {
		line.maxWait = 0
	}
	var reservation *rate.Reservation
	if l.settings.limit > 0 {
		reservation = l.limiter(c.scope).ReserveN(now, 1)
		delay := reservation.DelayFrom(now)
		if refused = line.accepts(now, now.Add(delay), false); refused == nil && delay > 0 {
			waited = true
			refused = c.sleep(delay)
		}
		if refused != nil {
			reservation.Cancel()
			return false, refused
		}
	}
	if !l.settings.follow {
		return waited, nil
	}
	if waited {
		now = time.Now()
	}
	q := l.quotasOf(c)
	turn, stood, refused := q.bucketOf(c.request).enter(now, line)
	if refused != nil {
		if reservation != nil {
			reservation.Cancel()
		}
		return false, refused
	}
	a.turn = turn
	return waited || stood, nil
}

func (l *RateLimit) limiter(scope string) *rate.Limiter {
	s := l.static.Get(scope)
	s.once.Do(func() { s.limiter = rate.NewLimiter(l.settings.limit, l.settings.burst) })
	return s.limiter
}

func (l *RateLimit) quotasOf(c *call) *quotas {
	who := credential{scope: c.scope}
	if authorization := headerValue(c.request.Header, "Authorization"); authorization != "" {
		who.hash = maphash.String(l.seed, authorization)
	}
	q := l.servers.Get(who)
	q.once.Do(func() { q.init(l) })
	return q
}

// sleep waits for d or until the caller leaves.
func (c *call) sleep(d time.Duration) *Error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ended(c.ctx.Err())
	case <-c.request.Cancel:
		return c.ended(c.callerGone())
	}
}

// queueing is how long a call is ready to stand in line.
type queueing struct {
	call      *call
	maxWait   time.Duration
	maxClosed time.Duration // while the server has closed the scope; not positive: no matter
}

// accepts reports whether a turn at the given time is soon enough; if not, the
// error says so, before any wait was begun.
func (line queueing) accepts(now, turn time.Time, closed bool) *Error {
	wait := turn.Sub(now)
	if wait <= 0 {
		return nil
	}
	if deadline := line.call.deadline; !deadline.IsZero() && !turn.Before(deadline) {
		return &Error{Reason: ErrDeadline, Err: ErrRateLimited, NotBefore: turn}
	}
	if wait > line.patience(closed) {
		return &Error{Reason: ErrRateLimited, NotBefore: turn}
	}
	return nil
}

func (line queueing) patience(closed bool) time.Duration {
	if closed && line.maxClosed > 0 {
		return min(line.maxWait, line.maxClosed)
	}
	return line.maxWait
}

// quotas is what one server has said to one credential: a bucket for what it
// does not name, and a bounded table of those that it does.
type quotas struct {
	once   sync.Once
	limit  *RateLimit
	closed atomic.Pointer[time.Time] // until then, all buckets are
	shared bucket
	table  atomic.Pointer[bucketTable] // nil until the server names a bucket
}

// bucketTable knows the named buckets, and which one a route has.
type bucketTable struct {
	buckets scope.Map[string, bucket]
	routes  scope.Map[uint64, atomic.Pointer[string]]
}

func (q *quotas) init(l *RateLimit) {
	q.limit = l
	q.shared.init(q)
}

// busy keeps quotas that say something from being forgotten first.
func (q *quotas) busy() bool { return q.closed.Load() != nil || q.shared.armed.Load() }

// bucketOf is the bucket that the request's route was last seen in.
func (q *quotas) bucketOf(req *http.Request) *bucket {
	table := q.table.Load()
	if table == nil {
		return &q.shared
	}
	if known := table.routes.Peek(q.route(req)); known != nil {
		if name := known.Load(); name != nil {
			return q.named(table, *name)
		}
	}
	return &q.shared
}

func (q *quotas) named(table *bucketTable, name string) *bucket {
	b := table.buckets.Get(name)
	b.init(q)
	return b
}

// learnRoute remembers that the route is in the named bucket, and returns it.
func (q *quotas) learnRoute(req *http.Request, name string) *bucket {
	table := q.table.Load()
	if table == nil {
		table = &bucketTable{}
		table.buckets.Max, table.routes.Max = mostBuckets, mostRoutes
		if !q.table.CompareAndSwap(nil, table) {
			table = q.table.Load()
		}
	}
	route := table.routes.Get(q.route(req))
	if known := route.Load(); known == nil || *known != name {
		route.Store(&name)
	}
	return q.named(table, name)
}

// route is a hash, so that long paths are not kept.
func (q *quotas) route(req *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(q.limit.seed)
	_, _ = h.WriteString(req.Method)
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(req.URL.Path)
	return h.Sum64()
}

// close shuts every bucket until the given time, unless they are shut longer.
func (q *quotas) close(until time.Time) {
	for {
		before := q.closed.Load()
		if before != nil && !before.Before(until) {
			return
		}
		if q.closed.CompareAndSwap(before, &until) {
			return
		}
	}
}

// closedUntil is the zero time when the server has not closed the scope.
func (q *quotas) closedUntil(now time.Time) time.Time {
	until := q.closed.Load()
	if until == nil {
		return time.Time{}
	}
	if !now.Before(*until) {
		q.closed.CompareAndSwap(until, nil)
		return time.Time{}
	}
	return *until
}
