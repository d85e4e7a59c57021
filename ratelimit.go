package resilienthttp

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/quotastore"
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
// waited are spread. A quota that only refusals have shown is a guess: what is
// served is counted off it, and when that has used it up one request goes and sees.
// If it is served, the quota is forgotten until a refusal shows it again; if it is
// refused, the quota is closed until its reset. All priorities share the quotas.
//
// A 429, or a 403 with Retry-After, that does not prove a quota
// to be used up holds its own call alone. Only when refusals are the rule do they
// close the scope to all its calls of that [Priority], for as long as the last one
// asks: eight or more, as many as are in flight, over the time that they ask for or a
// second, and nothing of that priority served of what was sent since the first. A
// success of a request of it that was sent later opens it, and those who waited follow
// over half of the time. Where
// 429s go on although the waits were kept, others use the quota too: from the third
// closing in a row on, each doubles the time, to 10s at most, or to 30s where the
// quota is proven to be used up, unless the server asks for more. A 503 or 529
// never closes: whether a server can work at all is the Breaker's question.
//
// That nothing remains is believed once it was seen to be true: by a refusal, or by a
// reset that brought what it promised. Until then calls that can wait do, and of those that
// would be turned away the first is, and the next goes and sees, while others wait for it. If it
// is refused, the word is true: that costs a quota one 429, and one for each of three
// further routes (method and path, ids left out), and none where NotBefore is heeded. If it
// is served, more go; and if more are served than a quota could allow
// of which nothing remains, the word is wrong and has no say until a refusal speaks of it.
//
// A route that is served with something left, while another was refused because nothing is,
// has a quota of its own that the server does not name, and is kept by its own words from
// then on. Calls that can wait may have to do so until that is known: for an API that counts
// by endpoint make the Transport's Scope tell endpoints apart.
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
	// is refused at once with ErrRateLimited and a NotBefore. While refusals have
	// closed the scope, Policy.MaxRetryAfter bounds the wait as well. 0 means 60 s; a negative duration means never to wait.
	MaxWait time.Duration

	// MaxClosed is the longest that a server's word may close a scope; longer
	// ones are cut. 0 means 1 h, and the most is 24 h; a negative duration means
	// that servers cannot close a scope, as IgnoreHeaders does.
	MaxClosed time.Duration

	// IgnoreHeaders disregards what servers say: no pacing and no closing, only
	// the static ceiling, and rate-limit headers are not read in answers that are
	// no failures. A call still waits for as long as its own response asks.
	IgnoreHeaders bool

	// Shared makes one quota of a server's that of many processes: each names the same
	// store, of admission/redisstore say, and all together keep within the quota. nil
	// means that each process goes by itself.
	//
	// The quota is Limit and Burst, for each scope, if Limit is set; less of Burst what
	// comes in 0.2 s. Otherwise it is what the server's headers say of limit and window,
	// for each scope, credential and bucket; of several quotas that of the shortest
	// window, and those of tokens stay each process's own. What one process has learned
	// all know; until somebody has, one request of a process goes alone. What was
	// taken may be sent a little later, so that 0.2 s of each window are lost, and of short
	// ones a 64th.
	//
	// A process takes a slice ahead, twice what it used in the last 100 ms, spends it
	// without asking, and gives back what it has not used after another: one trip in
	// 100 ms at most, and none while nobody calls. What a process holds that is killed is
	// lost for one window. If the server says that less remains than the store knows, so
	// much is taken off; a refusal that proves the quota to be used up closes it for
	// all, until its reset.
	//
	// A store that fails, or takes longer than 20 ms (the first time, when it has to connect,
	// 250 ms), holds no call up: each process goes
	// on with the quota divided by how many processes there were (counted over ten
	// seconds), and counts what it spent when the store is back. Then the quota may be
	// exceeded; while the store answers, it is not.
	//
	// The names of its keys have a hash of the credential, and the rest in the clear. All
	// processes must have the same Limit and Burst.
	Shared quotastore.Store

	once    sync.Once
	limiter *quota.Limiter
}

// withDefaults is how the engine is to work.
func (l *RateLimit) withDefaults() quota.Config {
	c := quota.Config{Limit: l.Limit, Burst: l.Burst, MaxWait: l.MaxWait, MaxClosed: l.MaxClosed, Shared: l.Shared}
	if !(c.Limit > 0) || c.Limit == rate.Inf {
		c.Limit = 0
	}
	if c.Burst <= 0 {
		c.Burst = int(min(max(math.Ceil(float64(c.Limit)), 1), math.MaxInt32))
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxClosed == 0 {
		c.MaxClosed = defaultMaxClosed
	}
	c.MaxClosed = min(c.MaxClosed, quota.Longest)
	c.Follow = !l.IgnoreHeaders && c.MaxClosed > 0
	return c
}

func (l *RateLimit) engine() *quota.Limiter {
	l.once.Do(func() { l.limiter = quota.New(l.withDefaults()) })
	return l.limiter
}

// enter waits for the attempt's turn and takes it, or refuses the attempt. One
// beside another never waits.
func (l *RateLimit) enter(a *attempt, now time.Time) *Error {
	c := a.call
	r := l.request(c)
	r.NoWait, r.Waiter = a.beside, (*queuedAttempt)(a)
	ticket, refusal := l.engine().Admit(c.ctx, r, now)
	a.ticket = ticket
	if refusal == nil {
		return nil
	}
	switch refusal.Reason {
	case quota.Gone:
		return c.ended(c.ctx.Err())
	case quota.PastDeadline:
		return &Error{Reason: ErrDeadline, Err: ErrRateLimited, NotBefore: refusal.NotBefore}
	case quota.TooLong:
	}
	return &Error{Reason: ErrRateLimited, NotBefore: refusal.NotBefore}
}

// queuedAttempt is an attempt that stands in line for its turn.
type queuedAttempt attempt

var _ quota.Waiter = (*queuedAttempt)(nil)

// WaitBegins implements quota.Waiter.
func (q *queuedAttempt) WaitBegins(turn time.Time, own bool) {
	c := q.call
	c.seen.waiting.Add(1)
	q.record.OwnLimit = own
	if c.tracing() {
		now := time.Now()
		told := q.record
		told.Request, told.Queued, told.Wait = c.request, now.Sub(c.accounted), max(turn.Sub(now), 0)
		c.traceAttempt(queued, &told)
	}
}

// WaitEnds implements quota.Waiter.
func (q *queuedAttempt) WaitEnds() { q.call.seen.waiting.Add(-1) }

// closedUntil is until when refusals have closed the call's scope; the zero time
// if they have not.
func (l *RateLimit) closedUntil(c *call, now time.Time) time.Time {
	return l.engine().Closed(l.request(c), now)
}

// request is the call as the engine sees it.
func (l *RateLimit) request(c *call) quota.Request {
	r := quota.Request{
		Scope: c.classKey(), Method: c.request.Method, Path: c.request.URL.Path,
		Deadline: c.deadline, MaxClosed: c.perCall().MaxRetryAfter,
	}
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token"} {
		if secret := headerValue(c.request.Header, name); secret != "" {
			r.Credential = l.engine().Hash(secret)
			break
		}
	}
	return r
}

// heard is what the engine is told of an attempt's end.
func (a *attempt) heard(said *answer) quota.Answer {
	h := quota.Answer{Quota: said.quota, AsksToWait: said.asksToWait, RetryAfter: said.retryAfter}
	if resp := a.record.Response; resp != nil {
		h.Status = resp.StatusCode
	} else {
		h.Unsent = a.neverSent()
	}
	return h
}
