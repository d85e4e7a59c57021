package idempotency

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Options are the options of executions, for Handler and Executor. The zero value
// works.
type Options struct {
	// Lease is the time after which a non-transactional execution without a heartbeat is
	// considered dead. A heartbeat is sent every Lease/3, and the database has that long to
	// answer, so a lease of less than a few seconds is lost in a short outage. For transactional
	// work it is how long the database waits for a silent host. Zero means 30 s. The minimum is 10
	// ms.
	Lease time.Duration

	// TTL is how long a record is kept and its key protects the operation: from the start of the
	// execution, or from its end if it took more than a tenth of the TTL. Zero means 24 h. The
	// minimum is Lease.
	TTL time.Duration

	// Timeout is the maximum duration of an execution. After it, the context is canceled with the
	// cause ErrTimeLimit, and the lease is not renewed any more. Transactional work is rolled
	// back. Zero means 15 min. A negative duration means no limit. In a Handler the request's
	// deadline does not end non-transactional work, so set Timeout near what a client waits.
	Timeout time.Duration

	// DuplicateWait is the maximum time that a duplicate waits for the execution in progress. It
	// holds no connection while it waits. Zero means none.
	DuplicateWait time.Duration

	// Takeover says what happens after a non-transactional execution died, or ended with an
	// unknown effect. Zero means MarkUnknown.
	Takeover Takeover

	// Transactional means that all effects of the work are writes through Tx. The work
	// and its record are then one transaction, so an execution that died left nothing
	// behind and is executed again. The Store must be a Transactor. It is
	// implied by a store within a transaction of the caller.
	Transactional bool
}

const (
	defaultLease   = 30 * time.Second
	defaultTTL     = 24 * time.Hour
	defaultTimeout = 15 * time.Minute

	// minLease leaves a renewal the time of a slow commit.
	minLease = 10 * time.Millisecond
)

// resolved returns the options with their defaults, and all that is wrong with them.
func (o Options) resolved(store Store) (Options, error) {
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Check(store == nil, "Store is nil")
	wrong.Check(o.Lease < minLease || ValidLease(o.Lease) != nil, fmt.Sprintf("Lease is %v, want 10ms to 10 years", o.Lease))
	wrong.Check(o.TTL < o.Lease || ValidLease(o.TTL) != nil, fmt.Sprintf("TTL is %v, want at least Lease (%v)", o.TTL, o.Lease))
	wrong.Duration("Timeout", o.Timeout)
	wrong.Duration("DuplicateWait", o.DuplicateWait)
	wrong.Check(o.Takeover > MarkUnknown, fmt.Sprintf("Takeover is %d, want at most %d", o.Takeover, MarkUnknown))
	_, transactor := store.(Transactor)
	wrong.Check(o.Transactional && store != nil && !transactor, fmt.Sprintf("Transactional needs a store with transactions, and %T has none", store))
	return o, wrong.Err()
}

// claim returns the claim of a new execution.
func (o *Options) claim(id ID, fingerprint Fingerprint) Claim {
	return Claim{
		ID: id, Fingerprint: fingerprint, Owner: rand.Text(),
		Lease: o.Lease, TTL: o.TTL, Takeover: o.Takeover,
	}
}

// ambiguous returns the status of work that ended without a known effect: Unknown,
// unless it may be executed again.
func (x *executor) ambiguous() Status {
	if x.transactor != nil || x.options.Takeover.Repeats() {
		return FailedRetryable
	}
	return Unknown
}
