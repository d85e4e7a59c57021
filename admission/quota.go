package admission

import (
	"cmp"
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

// Store keeps the quotas of keys: see quotastore.Store.
type Store = quotastore.Store

// Rule is the quota of a key: see quotastore.Rule.
type Rule = quotastore.Rule

// Result is the result of a Take: see quotastore.Result.
type Result = quotastore.Result

// ErrStore is the error of Quota.Take if the Quota has FailClosed and its Store was
// late, failed, or was not called during the fallback.
var ErrStore = errors.New("admission: the quota's store did not answer")

// Quota limits the number of requests of each client in a time, and answers 429 to
// further ones, with Retry-After and the problem type quota-exceeded. Each response has
// RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11), unless the Store
// did not answer. A client that follows these fields and shares its key with no other client
// is never rejected.
//
// A response with Idempotency-Replayed: true costs nothing: its cost is returned, up to Limit
// units of a key in any Window. So Quota belongs around idempotency.Handler, and inside of a
// Shedder.
//
// Limit must be set; all other zero values are ready for use. A Quota is safe for
// concurrent use, and must not be modified after its first use or copied. Its Handlers
// share its quotas. See docs/admission.md.
type Quota struct {
	// Name identifies the quota to clients and in the Store. Quotas around each other
	// need different names. "" means "default". At most 64 visible ASCII characters and
	// spaces.
	Name string

	// Limit is the number of requests in each Window. It has no default.
	Limit int

	// Window is the time for Limit requests. Zero means 1 minute.
	Window time.Duration

	// Burst is the number of requests that are allowed at once, which is the size of the token
	// bucket. Zero means Limit. Sliding ignores it.
	Burst int

	// Sliding allows at most Limit requests in any Window, instead of using a token
	// bucket.
	Sliding bool

	// Key returns the key of the quota that a request uses; an error is answered with
	// 403. nil means the client's address, of IPv6 its first 64 bits. No header is
	// trusted for it, so all requests through a proxy have the same address: set Key
	// there, for example to an authenticated account.
	Key func(*http.Request) (string, error)

	// Cost returns the units of Limit that a request uses. nil means 1, and 0 or less is
	// free. A cost above Burst is rejected without Retry-After.
	Cost func(*http.Request) int

	// Store keeps the quotas. nil means the memory of this process, with 65,536 keys (a
	// quotastore.Memory). Processes with the same Store share the quotas. Each call of a
	// Store runs in a goroutine of its own, with the request's context; at most 1000
	// calls are in progress.
	Store Store

	// Timeout is the maximum time that a request waits for the Store. Zero means 100 ms. It must
	// not be negative. In the first second, until its first good answer, the Store may be
	// connecting: with FailClosed requests then wait for it, and no fallback begins because of
	// late answers. Choose it shorter than the clients' deadlines.
	Timeout time.Duration

	// Legacy also sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	// (seconds since 1970).
	Legacy bool

	// FailClosed answers 503 to a request if the Store is late or fails. Otherwise a
	// bucket of the same size in this process decides. If more than half of the last 20
	// answers within 10 s (of at least 3) were late or failed, this is done without
	// calling the Store, until it gives a good answer to the probe of each second.
	FailClosed bool

	// Trace has the hooks that are called. nil: none.
	Trace *Trace

	once   sync.Once
	err    error
	rule   Rule
	policy policy
	own    quotastore.Memory
	shared *storeWithFallback // nil without Store
	prefix string             // of the keys in Store, which may hold those of other quotas

	// What was returned for replays has a quota too.
	returns      Rule
	ownReturned  quotastore.Memory
	returnPrefix string
}

// Validate returns all errors of the configuration, joined, or nil. Call it when the
// program starts. A misconfigured Quota answers 500 to all requests. A duration without
// a unit is an error: 60 means 60 nanoseconds.
func (q *Quota) Validate() error {
	wrong := validate.Errors{Of: errAdmission}
	wrong.Check(q.Limit == 0, "Quota.Limit is not set")
	wrong.Duration("Quota.Window", q.Window)
	wrong.Duration("Quota.Timeout", q.Timeout)
	wrong.Check(q.Timeout < 0, fmt.Sprintf("Quota.Timeout is %v, and must not be negative", q.Timeout))
	if rule := q.asRule(); rule.Limit != 0 {
		if err := rule.Validate(); err != nil {
			wrong.Append(fmt.Errorf("admission: Quota: %w", err))
		}
	}
	wrong.Check(len(q.Name) > maxNameLength, fmt.Sprintf("Quota.Name has %d characters, and must have at most %d", len(q.Name), maxNameLength))
	invisible := strings.ContainsFunc(q.Name, func(c rune) bool { return c < ' ' || c > '~' })
	wrong.Check(invisible, fmt.Sprintf("Quota.Name %q has others than visible ASCII characters and spaces", q.Name))
	return wrong.Err()
}

// errAdmission is the beginning of each error of Validate.
var errAdmission = errors.New("admission")

const (
	defaultName   = "default"
	maxNameLength = 64
	defaultWindow = time.Minute
)

// separable keeps the name and the key of a quota apart: "api" with the key "write:x" is not "api:write" with "x".
var separable = strings.NewReplacer("%", "%25", ":", "%3A") //nolint:gochecknoglobals // it does not change

func (q *Quota) asRule() Rule {
	return Rule{Limit: q.Limit, Window: cmp.Or(q.Window, defaultWindow), Burst: q.Burst, Sliding: q.Sliding}
}

func (q *Quota) init() {
	q.once.Do(func() {
		if q.err = q.Validate(); q.err != nil {
			return
		}
		q.rule = q.asRule()
		q.returns = Rule{Limit: q.rule.Limit, Window: q.rule.Window, Sliding: true}
		name := cmp.Or(q.Name, defaultName)
		q.prefix = separable.Replace(name) + ":"
		q.returnPrefix = "%returned:" + q.prefix // no prefix of a name begins like this: its "%" is "%25"
		q.policy = newPolicy(name, q.rule, q.Cost != nil)
		if q.Store != nil {
			q.shared = &storeWithFallback{store: q.Store, timeout: cmp.Or(q.Timeout, defaultStoreTimeout), failClosed: q.FailClosed}
		}
	})
}

// Take takes n units from the key's quota, all or none, without HTTP: for example for
// messages of a queue. n 0 only asks, and a negative n returns units. A rejection is no
// error. Errors are those of Validate, of the context, quotastore.ErrExceedsBurst if n
// is more than the quota ever allows at once, and ErrStore.
func (q *Quota) Take(ctx context.Context, key string, n int) (Result, error) {
	q.init()
	if q.err != nil {
		return Result{}, q.err
	}
	result, _, err := q.take(ctx, key, n)
	return result, err
}

// take does what Take does. shared reports whether the Store decided.
func (q *Quota) take(ctx context.Context, key string, n int) (result Result, shared bool, err error) {
	if q.shared == nil {
		result, err = q.own.Take(ctx, key, n, n, q.rule)
		return result, false, err
	}
	if n > q.rule.Capacity() {
		return Result{}, true, quotastore.ErrExceedsBurst
	}
	result, err = q.shared.take(ctx, q.prefix+key, n, n, q.rule)
	switch {
	case err == nil:
		if !result.OK && !q.FailClosed {
			// The local bucket gets no more than the store has. Otherwise the late
			// answers to a client far above its limit would admit a second limit.
			_, _ = q.own.Take(ctx, key, q.rule.Capacity()-result.Remaining, 0, q.rule)
		}
		return result, true, nil
	case ctx.Err() != nil:
		return Result{}, true, err
	case !errors.Is(err, errStoreNotCalled):
		q.Trace.storeFailed(&Event{Quota: q.policy.name, Key: key, Err: err})
	}
	if q.FailClosed {
		return Result{}, true, fmt.Errorf("%w: %w", ErrStore, err)
	}
	result, err = q.own.Take(ctx, key, n, n, q.rule)
	return result, false, err
}

// giveBack returns the cost of a replay to where it was taken: of each key at most Limit units in any Window, because
// replays would be free without limit otherwise. The request's context may have ended, so it is not used.
func (q *Quota) giveBack(ctx context.Context, key string, n int, shared bool) {
	ctx = context.WithoutCancel(ctx)
	if !shared {
		may, _ := q.ownReturned.Take(ctx, key, n, 0, q.returns)
		_, _ = q.own.Take(ctx, key, -may.Allowed, 0, q.rule)
		return
	}
	may, err := q.shared.take(ctx, q.returnPrefix+key, n, 0, q.returns)
	if err == nil && may.Allowed > 0 {
		_, err = q.shared.take(ctx, q.prefix+key, -may.Allowed, 0, q.rule)
	}
	if err != nil && !errors.Is(err, errStoreNotCalled) {
		q.Trace.storeFailed(&Event{Quota: q.policy.name, Key: key, Err: err})
	}
}
