package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/validate"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Store keeps what each key has taken: see quotastore.Store.
type Store = quotastore.Store

// Rule is how much a key may take: see quotastore.Rule.
type Rule = quotastore.Rule

// Ticket is the answer to a Take: see quotastore.Ticket.
type Result = quotastore.Result

// ErrStore is the error of Quota.Take where the store did not answer in time, or with
// an error, and the Quota has FailClosed.
var ErrStore = errors.New("admission: the quota's store did not answer")

// Quota gives each client its share: so many requests in a time, and 429 for more,
// with a Retry-After and the problem type quota-exceeded. Every answer, a success too,
// says what is left and for how long, in RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-11). What they say is true: who has the key to
// himself, and takes no more than remains until the reset, is never refused. Times of
// less than a second cannot be said in them, and are rounded up.
//
// A replay costs nothing: what an answer with Idempotency-Replayed: true has cost is
// given back. So Quota belongs around idempotency.Handler, and inside of a Shedder.
// Several Quotas around each other each say their own, if their names differ.
//
// Limit must be set, all other zero values are ready for use. Fields are frozen at
// first use. A Quota is safe for concurrent use and must not be copied; its Handlers
// share the quotas of its keys. It has no goroutine, but for a call of a Store that is
// not this process's memory.
type Quota struct {
	// Name tells the quota from others, to clients and in the Store. "" means
	// "default". Up to 64 visible ASCII characters and spaces.
	Name string

	// Limit is how many requests there are in each Window. Window 0 means a minute.
	Limit  int
	Window time.Duration

	// Burst is how many may come at once: the size of the token bucket. 0 means Limit.
	// It has no meaning with Sliding.
	Burst int

	// Sliding allows at most Limit in any Window, instead of filling a token bucket.
	Sliding bool

	// Key is whose quota it is. nil means the peer's address, of IPv6 the first 64
	// bits, which is what one customer has. No header is ever trusted for that: behind
	// a proxy all requests come from the same peer, so there Key is needed, for an
	// account say that has been authenticated. All requests with the same key share a
	// quota, those with "" too. An error is answered with 403.
	Key func(*http.Request) (string, error)

	// Cost is how many units of Limit a request takes. nil means 1 for each. 0 or less
	// is free. What costs more than there ever is, Burst that is, is refused without a
	// Retry-After.
	Cost func(*http.Request) int

	// Store keeps the quotas. nil means the memory of this process, 65,536 keys (a
	// quotastore.Memory). One that is shared makes the quota that of all processes.
	// It is waited for 50 ms at most, and after that not asked again for a second.
	Store Store

	// Legacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	// (seconds since 1970) as well.
	Legacy bool

	// FailClosed rejects with 503 while the Store does not answer. Otherwise each process
	// goes on with quotas of the same size in its own memory.
	FailClosed bool

	// Trace is told what happens; nil: nothing is.
	Trace *Trace

	once   sync.Once
	err    error
	rule   Rule
	policy policy
	own    quotastore.Memory
	shared *storeWithFallback // nil: there is none
}

// Validate is what is wrong with the configuration, all of it, nil if nothing is: call it
// at start. A Quota that is misconfigured answers 500 to all. Wrong is also a Window that
// nobody can mean: 60 is sixty nanoseconds.
func (q *Quota) Validate() error {
	wrong := validate.Errors{Of: errAdmission}
	wrong.Check(q.Limit == 0, "Quota.Limit is not set")
	wrong.Duration("Quota.Window", q.Window)
	if rule := q.asRule(); rule.Limit != 0 {
		if err := rule.Validate(); err != nil {
			wrong.Append(fmt.Errorf("admission: Quota: %w", err))
		}
	}
	wrong.Check(len(q.Name) > longestName, fmt.Sprintf("Quota.Name has %d characters, and must have at most %d", len(q.Name), longestName))
	invisible := strings.ContainsFunc(q.Name, func(c rune) bool { return c < ' ' || c > '~' })
	wrong.Check(invisible, fmt.Sprintf("Quota.Name %q has others than visible ASCII characters and spaces", q.Name))
	return wrong.Err()
}

// errAdmission begins what is wrong with a configuration.
var errAdmission = errors.New("admission")

const (
	defaultName   = "default"
	longestName   = 64
	defaultWindow = time.Minute
)

func (q *Quota) asRule() Rule {
	r := Rule{Limit: q.Limit, Window: q.Window, Burst: q.Burst, Sliding: q.Sliding}
	if r.Window == 0 {
		r.Window = defaultWindow
	}
	return r
}

func (q *Quota) init() {
	q.once.Do(func() {
		if q.err = q.Validate(); q.err != nil {
			return
		}
		q.rule = q.asRule()
		name := q.Name
		if name == "" {
			name = defaultName
		}
		q.policy = newPolicy(name, q.rule, q.Cost != nil)
		if q.Store != nil {
			q.shared = &storeWithFallback{store: q.Store, prefix: name + ":"}
		}
	})
}

// Take takes n units from the key's quota, without HTTP: for a consumer of messages,
// say. It takes all or nothing; n 0 asks how things stand, and a negative n gives so
// much back. A refusal is no error. Errors are those of Validate, of the context,
// quotastore.ErrExceedsBurst if n is more than there ever is, and ErrStore.
func (q *Quota) Take(ctx context.Context, key string, n int) (Result, error) {
	q.init()
	if q.err != nil {
		return Result{}, q.err
	}
	ticket, _, err := q.take(ctx, key, n)
	return ticket, err
}

// take is Take, and says whether it was the shared store that decided.
func (q *Quota) take(ctx context.Context, key string, n int) (t Result, shared bool, err error) {
	if q.shared == nil {
		t, err = q.own.Take(ctx, key, n, n, q.rule)
		return t, false, err
	}
	t, err = q.shared.take(ctx, key, n, q.rule)
	switch {
	case err == nil, errors.Is(err, quotastore.ErrExceedsBurst), ctx.Err() != nil:
		return t, true, err
	case !errors.Is(err, errStoreDown):
		q.Trace.storeFailed(&Event{Quota: q.policy.name, Key: key, Err: err})
	}
	if q.FailClosed {
		return Result{}, true, fmt.Errorf("%w: %w", ErrStore, err)
	}
	t, err = q.own.Take(ctx, key, n, n, q.rule)
	return t, false, err
}

// giveBack returns what a request has cost to where it came from. The request may be
// over, so its context does not count.
func (q *Quota) giveBack(ctx context.Context, key string, n int, shared bool) {
	ctx = context.WithoutCancel(ctx)
	if !shared {
		_, _ = q.own.Take(ctx, key, -n, 0, q.rule)
		return
	}
	if _, err := q.shared.take(ctx, key, -n, q.rule); err != nil && !errors.Is(err, errStoreDown) {
		q.Trace.storeFailed(&Event{Quota: q.policy.name, Key: key, Err: err})
	}
}
