package idempotency

import (
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Terms say how long an execution counts as alive, how long its record is kept,
// and what is done when it dies. The zero value works.
type Options struct {
	// Lease is how long a detached execution counts as alive after its last sign of
	// life; it gives one every third of that. 0 means 30 s. Shorter means that others
	// learn sooner of a crash, and that a pause of the process or the database loses
	// the lease sooner: the database is given a third of it for an answer, so below
	// a few seconds a hiccup of it is an outage. Joined work has none; there it is how long the database waits
	// for a host that has fallen silent.
	Lease time.Duration

	// TTL is how long a record is kept, and a key protects, from the start of the
	// execution; from its end, if that took more than a tenth of it. 0 means 24 h,
	// as with Stripe; Week is the other common choice. It must not be shorter than
	// the Lease.
	TTL time.Duration

	// Limit is the longest that an execution may take. Then its context is
	// cancelled and its lease is not renewed any more: once that is over, Takeover
	// says what becomes of the operation, and what the execution may still do to the
	// record has no effect. Joined work is rolled back. It may be less than the Lease,
	// which then only says how soon others learn of a crash. 0 means 15 minutes;
	// negative: no limit.
	Timeout time.Duration

	// Wait is the longest that a duplicate waits for the execution that is going
	// on. 0 or less: it is told at once. It holds no connection of the database
	// meanwhile.
	DuplicateWait time.Duration

	// Takeover says what becomes of detached work that died, or that ended without
	// telling whether it took effect.
	Takeover driver.Takeover

	// Joined promises that the work has no effects but those that it writes
	// through Tx. The store must be a Transactor. The work and its record are one
	// transaction, open while the work runs: what died left nothing behind, and is
	// begun again. A store within a transaction of the caller's is joined by itself.
	Transactional bool
}

const day = 24 * time.Hour

const (
	defaultLease = 30 * time.Second
	defaultLimit = 15 * time.Minute

	// shortestLease leaves a renewal the time of a slow commit.
	shortestLease = 10 * time.Millisecond
)

// resolved is the terms with their defaults, or what is wrong with them.
func (t Options) resolved(store Store) (Options, error) {
	if t.Lease == 0 {
		t.Lease = defaultLease
	}
	if t.TTL == 0 {
		t.TTL = day
	}
	if t.Timeout == 0 {
		t.Timeout = defaultLimit
	}
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Check(store == nil, "there is no Store")
	wrong.Check(t.Lease < shortestLease || driver.ValidLease(t.Lease) != nil, fmt.Sprintf("a Lease of %v", t.Lease))
	wrong.Check(t.TTL < t.Lease || driver.ValidLease(t.TTL) != nil, fmt.Sprintf("a TTL of %v, with a Lease of %v", t.TTL, t.Lease))
	wrong.Duration("Limit", t.Timeout)
	wrong.Duration("Wait", t.DuplicateWait)
	wrong.Check(t.Takeover > MarkUnknown, fmt.Sprintf("no takeover policy has number %d", t.Takeover))
	_, joins := store.(driver.Transactor)
	wrong.Check(t.Transactional && store != nil && !joins, fmt.Sprintf("the terms are Joined, and %T has no transactions", store))
	return t, wrong.Err()
}

// claim asks for id on these terms, for a new execution.
func (t *Options) claim(id ID, fingerprint Fingerprint) driver.Claim {
	return driver.Claim{
		ID: id, Fingerprint: fingerprint, Owner: driver.NewOwner(),
		Lease: t.Lease, TTL: t.TTL, Takeover: t.Takeover,
	}
}

// ambiguous is the status of work that ended without telling whether it took
// effect, or whose word on that does not count: Unknown, unless it may be repeated.
func (r *executor) ambiguous() Status {
	if r.transactor != nil || r.terms.Takeover.Repeats() {
		return FailedRetryable
	}
	return Unknown
}
