package resilienthttp

import (
	"hash/maphash"
	"math"
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
)

// RateLimit paces calls before the server has to: by a static ceiling, and by
// what servers say in their rate-limit headers (the dialects of GitHub, GitLab,
// OpenAI, Anthropic, Discord, Shopify, the IETF drafts and others). A call that
// finds the quota used up waits for its turn, first come, first served; one
// whose turn would come too late is refused at once.
//
// What servers say is kept for each scope and credential (a keyed hash of the
// Authorization header, or else of X-Api-Key, Api-Key or Private-Token), and for
// each bucket that the server names. Requests in flight are counted against what
// remains; resets are judged by the server's own Date; after a reset, those who
// waited are spread. A 429, 503, 529 or 403 with Retry-After closes the scope to
// all its calls, not only to the one that got it. Where 429s go on although their
// waits were kept, others use the quota too: from the third in a row on, each
// doubles the time, to 30s at most unless the server asks for more.
//
// The zero value has no static ceiling and follows the headers. A RateLimit is
// safe for concurrent use and may be shared by several Transports; its fields
// are read at its first call and must not change after it.
type RateLimit struct {
	// Limit is a static ceiling for each scope, in requests per second, retries
	// and hedges included: a token bucket (golang.org/x/time/rate), with a line
	// of those who wait for a token. 0, negative, NaN and rate.Inf mean none.
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
	// ones are cut. 0 means 1 h, and the most is 24 h; a negative duration means
	// that servers cannot close a scope, as IgnoreHeaders does.
	MaxClosed time.Duration

	// IgnoreHeaders disregards what servers say: no pacing and no closing, only
	// the static ceiling. A call still waits out the Retry-After of its own
	// response.
	IgnoreHeaders bool

	once     sync.Once
	settings rateSettings
	seed     maphash.Seed
	statics  scope.Map[string, staticLimit]
	accounts scope.Map[credential, account]
	buckets  scope.Map[bucketKey, bucket] // those that servers name
	routes   scope.Map[uint64, route]     // and who is in them
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

// account is what a server has said to one credential.
type account struct {
	once   sync.Once
	who    credential
	closed atomic.Pointer[time.Time] // until then, all its buckets are
	naming atomic.Bool               // the server names buckets
	shared bucket                    // of what it does not name
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
	s.maxClosed = min(s.maxClosed, maxForesight)
	s.follow = !l.IgnoreHeaders && s.maxClosed > 0
	l.seed = maphash.MakeSeed()
	l.accounts.Clone = credential.clone
	l.accounts.Keep = (*account).busy
	l.buckets.Clone = func(k bucketKey) bucketKey { return bucketKey{k.credential.clone(), k.name, k.id} }
	l.buckets.Keep = (*bucket).busy
	l.routes.Max = mostRoutes
}

func (c credential) clone() credential { return credential{strings.Clone(c.scope), c.hash} }

// enter waits for the attempt's turn and takes it, or refuses the attempt. A
// hedge never waits.
func (l *RateLimit) enter(a *attempt, now time.Time) (waited bool, refused *Error) {
	l.once.Do(l.settle)
	c := a.call
	q := queueing{call: c, maxWait: l.settings.maxWait, maxClosed: c.perCall().MaxRetryAfter}
	if a.beside {
		q.maxWait = 0
	}
	var static *staticLimit
	if l.settings.limit > 0 {
		static = l.static(c.scope)
		if waited, refused = static.enter(now, q); refused != nil {
			return waited, refused
		}
		if waited {
			now = time.Now()
		}
	}
	if l.settings.follow {
		var stood bool
		if a.turn, stood, refused = l.bucketOf(c).enter(now, q); refused != nil {
			static.giveBack(now)
			return waited || stood, refused
		}
		waited = waited || stood
	}
	a.turn.static = static
	return waited, nil
}

// closedUntil is until when the server has closed the call's scope by a
// Retry-After; the zero time if it has not. It is for the question whether a wait
// is worth beginning.
func (l *RateLimit) closedUntil(c *call, now time.Time) time.Time {
	if !l.settings.follow {
		return time.Time{}
	}
	b := l.bucketOf(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	return later(b.closed, b.account.Load().closedUntil(b.steady(now)))
}

// account is whose quota the call uses.
func (l *RateLimit) account(c *call) *account {
	who := credential{scope: c.scope}
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token"} {
		if secret := headerValue(c.request.Header, name); secret != "" {
			who.hash = maphash.String(l.seed, secret)
			break
		}
	}
	account := l.accounts.Get(who)
	account.once.Do(func() {
		account.who = who.clone()
		account.shared.init(l, account)
	})
	return account
}

// busy keeps what says something from being forgotten first.
func (who *account) busy() bool { return who.closed.Load() != nil || who.shared.busy() }

// close shuts all buckets until the given time, unless they are shut longer.
func (who *account) close(until time.Time) {
	for {
		before := who.closed.Load()
		if before != nil && !before.Before(until) {
			return
		}
		if who.closed.CompareAndSwap(before, &until) {
			return
		}
	}
}

// closedUntil is the zero time when the server has not closed the account.
func (who *account) closedUntil(now time.Time) time.Time {
	until := who.closed.Load()
	if until == nil {
		return time.Time{}
	}
	if !now.Before(*until) {
		who.closed.CompareAndSwap(until, nil)
		return time.Time{}
	}
	return *until
}
