package durable

import (
	"fmt"
	"strconv"
	"time"
)

// Step is what a store writes of a Record.
type Step uint8

// The steps.
const (
	// StepKeep writes nothing.
	StepKeep Step = iota

	// StepInsert inserts a row.
	StepInsert

	// StepUpdate updates the row of the ID.
	StepUpdate
)

// Change is the effect of an event. A store writes all of it in one commit, or nothing.
type Change struct {
	// Step says what is written of Record, the intent after the event. Intent and Fingerprint
	// change only with StepInsert and Revised, except that a redrive may clear the Deadline.
	// Result changes only when the intent is done. A store need not read Payload and Result
	// where they do not change: the Changes of Apply and Reap then lack them.
	Step   Step
	Record Record

	// Before is the state before the event.
	Before State

	// StartedAttempt is a new entry of the journal. FinishedAttempt has the outcome of the
	// entry of its Generation: FinishedAt, Class, Code, Status, Reference and Error. nil: none.
	StartedAttempt, FinishedAttempt *Attempt

	// DeadLettered is a new dead letter. Resolved has the end of the dead letter of its Number:
	// RedrivenAt, By and Note. nil: none.
	DeadLettered, Resolved *DeadLetter

	// Err is the error of the outcome of FinishedAttempt. The Engine sets it for its Trace; stores
	// do not. nil: there was none, or another process made the change.
	Err error

	// DeclineCountsFrom is the time from which a decline counts, if the provider declined an intent
	// that is in doubt. Before it, an earlier send may still take effect. Zero: no such decline.
	DeclineCountsFrom time.Time

	// Revised means that the intent was enqueued again with another payload.
	Revised bool

	// Erased means that the store also removes the error texts of all attempts of the intent,
	// and the notes of its dead letters except NoteErased. Payload and Result of Record are
	// empty then.
	Erased bool
}

// NoteErased is the note of a dead letter that was open when its intent was erased.
const NoteErased = "erased"

// Decide is the state machine of all stores. From the record (nil: there is none), an event and
// the database's time, it returns what a store writes. After an error it writes nothing:
// ErrInvalid, ErrNotFound, ErrInvalidState, ErrStale, ErrFenced or ErrMismatch. Before and
// Record are set then, too.
//
// Decide is a pure function. The Change shares Payload with the arguments.
func Decide(r *Record, e *Event, now time.Time) (Change, error) {
	if r == nil {
		r = &Record{}
	}
	m := transition{Change: Change{Record: *r, Before: r.State}, e: e, now: stamp(now)}
	if err := e.Validate(); err != nil {
		return m.Change, err
	}
	m.back = m.Record.followClock(m.now)
	err := m.decide(r.CreatedAt.IsZero())
	if err != nil || m.Step == StepKeep {
		return Change{Record: *r, Before: r.State}, err
	}
	m.Record.UpdatedAt = m.now
	return m.Change, nil
}

// transition is a Change in progress.
type transition struct {
	Change

	e    *Event
	now  time.Time
	back time.Duration // how far the clock was set back since the record was changed
}

func (m *transition) decide(absent bool) error {
	if m.e.Kind == EventEnqueue {
		return m.enqueue(absent)
	}
	if absent {
		return ErrNotFound
	}
	switch r := &m.Record; m.e.Kind {
	case EventClaim:
		if !r.State.Claimable() || !r.Due(m.now) {
			return m.illegal()
		}
		m.claim()
	case EventFinish:
		if !r.State.Held() || r.Worker != m.e.Worker || r.Generation != m.e.Generation {
			return ErrFenced
		}
		m.finish()
	case EventLeaseExpired:
		if !r.State.Held() || r.Worker != m.e.Worker {
			return ErrFenced
		}
		m.onLeaseExpired()
	case EventRedrive:
		if m.stale() {
			return ErrStale
		}
		if r.State != StateDead {
			return m.illegal()
		}
		m.redrive()
	case EventResolve:
		if m.stale() {
			return ErrStale
		}
		if r.State != StateDead && r.State != StateUnknown {
			return m.illegal()
		}
		m.resolve()
	case EventErase:
		if !r.State.Final() && (r.State != StateDead || r.InDoubt) {
			return m.illegal()
		}
		m.erase()
	default: // EventCancel, by Validate
		if r.State == StateCanceled {
			return nil
		}
		if r.State != StatePending && r.State != StateWaiting {
			return m.illegal()
		}
		m.Step = StepUpdate
		r.State = StateCanceled
	}
	return nil
}

// stale reports whether a person decided about an earlier state of the record. A redrive
// does not raise the generation, so the letter is compared too.
func (m *transition) stale() bool {
	return m.e.Generation != 0 && (m.e.Generation != m.Record.Generation || m.e.DeadLetterID != m.Record.DeadLetterID)
}

func (m *transition) illegal() error {
	return fmt.Errorf("%w: %v: the intent is %v", ErrInvalidState, m.e.Kind, m.Record.State)
}

// enqueue inserts a new intent, finds an existing one, or revises one that was declined.
func (m *transition) enqueue(absent bool) error {
	r, in := &m.Record, &m.e.Intent
	fingerprint := FingerprintOf(in)
	if !absent && r.Fingerprint == fingerprint {
		return nil
	}
	if !absent && !r.mendable() {
		return ErrMismatch
	}
	if !in.Deadline.IsZero() && !m.now.Before(in.Deadline) {
		return invalidf("Intent.Deadline has passed")
	}
	if absent {
		m.Step = StepInsert
		*r = Record{State: StatePending, Epoch: 1, CreatedAt: m.now}
	} else {
		m.Step = StepUpdate
		m.Revised = true
		m.close("", "revised")
		r.State = StateWaiting
		r.LostLeases = 0 // with the payload before
	}
	r.Intent = *in
	r.NotBefore, r.Intent.Fingerprint = time.Time{}, ""
	r.Deadline = stamp(in.Deadline)
	r.Fingerprint = fingerprint
	r.begin(m.due(in.NotBefore))
	return nil
}

// mendable reports whether the provider declined the intent, so that another payload can be
// sent in its place.
func (r *Record) mendable() bool {
	return r.State == StateDead && !r.InDoubt && r.Class == ClassDeclined
}

// begin starts the retry window anew.
func (r *Record) begin(at time.Time) {
	r.Attempts, r.Claims, r.Declines = 0, 0, 0
	r.RetryWindowStart = at
	r.NextAt = at
	r.QueryNext = false
	r.LostLeases = min(r.LostLeases, suspectAfter) // a suspect stays one until a send of it ends
}

// claim gives the intent to a worker, or buries it if nothing can be done.
func (m *transition) claim() {
	r, terms := &m.Record, m.e.Terms
	m.Step = StepUpdate
	r.Generation++
	r.ClaimedAt = m.now
	if late := m.now.Sub(r.NextAt); late > r.NextAt.Sub(r.RetryWindowStart) {
		r.RetryWindowStart = r.RetryWindowStart.Add(late) // a person's hold, or no Engine: it was not tried
	}
	switch {
	case terms == nil:
		m.bury(ReasonNoGateway)
	case !r.InDoubt && r.expired(m.now):
		m.bury(ReasonDeadline)
	case !r.InDoubt:
		if terms.KeyTTL > 0 && !r.FirstSentAt.IsZero() && !r.protects(terms, m.now) {
			r.newKey() // the old one would not protect this send, and is not needed
		}
		m.take(KindSend)
	case r.protects(terms, m.now) && !r.expired(m.now) && (!r.QueryNext || !terms.CanQuery):
		m.take(KindSend)
	case terms.CanQuery:
		m.take(KindQuery)
	default:
		m.bury(ReasonUnresolved)
	}
}

// take journals the begin of an attempt.
func (m *transition) take(kind Kind) {
	r := &m.Record
	r.Worker = m.e.Worker
	r.Claims++
	r.State = StateQuerying
	if kind == KindSend {
		r.State = StateSending
		r.Attempts++
		if r.FirstSentAt.IsZero() {
			r.FirstSentAt = m.now
		}
	}
	m.StartedAttempt = &Attempt{
		Generation: r.Generation, Kind: kind, Epoch: r.Epoch, Key: IdempotencyKey(r.ID, r.Epoch), Worker: r.Worker, SentAt: m.now,
	}
}

// finish ends a send or a status query.
func (m *transition) finish() {
	r := &m.Record
	outcome := m.e.Outcome.Fitted()
	sent := r.State == StateSending
	means := meaning(&outcome, r, m.Before, m.e.Terms)
	m.release(&outcome)
	if sent {
		if !r.InDoubt || !outcome.undone() {
			r.LastSentAt = m.now
		}
		if outcome.Unsent() {
			r.Attempts--
		} else {
			r.LostLeases = 0 // the process has survived the send
		}
	}
	if m.e.Interrupted && outcome.Unsent() {
		r.Claims--
	}
	r.Class, r.Code = outcome.Class, outcome.Code
	switch means {
	case ClassSucceeded:
		m.done(&outcome)
	case ClassDeclined:
		r.Declines++
		r.newKey()
		m.next(false)
	case ClassFailed:
		if m.e.Decision.NewKey {
			r.newKey()
		}
		m.next(false)
	default:
		m.next(true)
	}
}

// release writes the outcome into the journal.
func (m *transition) release(outcome *Outcome) {
	r := &m.Record
	m.Step = StepUpdate
	r.Worker = ""
	m.FinishedAttempt = &Attempt{
		Generation: r.Generation, Epoch: r.Epoch, FinishedAt: m.now,
		Class: outcome.Class, Code: outcome.Code, Status: outcome.Status, Reference: outcome.Reference, Error: outcome.Text(),
	}
}

// meaning returns what the outcome says about the work, and not only about this attempt:
// succeeded, declined, not done (ClassFailed) or unknown.
func meaning(outcome *Outcome, r *Record, held State, terms *Terms) Class {
	sent := held == StateSending
	switch {
	case outcome.Class == ClassSucceeded:
		return ClassSucceeded
	case outcome.Class == ClassDeclined && (!r.InDoubt || declineCounts(outcome, r, sent, terms)):
		return ClassDeclined
	case outcome.Class == ClassFailed && sent && !r.InDoubt:
		return ClassFailed
	case outcome.Class == ClassNotFound && !sent && r.visible(terms):
		return ClassFailed
	}
	return ClassUnknown
}

// declineCounts reports whether a decline also holds for the earlier sends with an unknown
// outcome. Before the visibility delay, one of them may still be on its way. The decline of
// a resend may come from a check that does not know keys, so a provider that can be queried
// is queried.
func declineCounts(outcome *Outcome, r *Record, sent bool, terms *Terms) bool {
	return r.visible(terms) && (!sent || !terms.CanQuery && outcome.keyed())
}

// visible reports whether the attempt began so late that each send before it is visible at
// the provider, if it was done.
func (r *Record) visible(terms *Terms) bool {
	return !r.ClaimedAt.Before(r.LastSentAt.Add(terms.VisibilityDelay))
}

// next applies the Policy's decision as far as it is permitted.
func (m *transition) next(doubt bool) {
	r, d, terms := &m.Record, &m.e.Decision, m.e.Terms
	r.InDoubt = doubt
	m.DeclineCountsFrom = r.DeclineCountsFrom(terms)
	again := !m.DeclineCountsFrom.IsZero() // declined, but the decline does not count
	mustQuery := again && terms.CanQuery
	mustWait := again && (m.Before == StateQuerying || !terms.CanQuery && m.e.Outcome.keyed())
	r.NextAt = m.due(d.At.Add(-m.back)) // the Policy was asked by the clock of the claim
	if mustWait && r.NextAt.Before(m.DeclineCountsFrom) {
		r.NextAt = m.DeclineCountsFrom
	}
	if doubt && r.expired(r.NextAt) {
		r.NextAt = m.due(r.Deadline) // nothing is sent after it, and a query need not wait longer
	}
	r.QueryNext = mustQuery || doubt && d.Action == Query && terms.CanQuery
	switch {
	case d.Action == Bury && !mustQuery && !mustWait:
		m.bury(d.Reason)
	case !doubt && r.expired(r.NextAt):
		m.bury(ReasonDeadline)
	case doubt:
		r.State = StateUnknown
	default:
		r.State = StateWaiting
	}
}

// due returns the time, but not one in the past or too far away.
func (m *transition) due(at time.Time) time.Time {
	switch latest := m.now.Add(maxWait); {
	case at.Before(m.now):
		return m.now
	case at.After(latest) && m.e.Kind != EventEnqueue:
		return latest
	}
	return Ceil(at) // jitter only adds, also below a microsecond
}

// onLeaseExpired marks an intent of a dead worker as unknown. If an intent loses its worker
// again and again, the intent may be the cause. Then it is claimed alone, it is due later each
// time, and at last it is dead.
//
// One lost lease proves nothing: a deploy, or an outage of the database, ends leases too. But then
// a send soon ends with an outcome, and the count begins anew.
func (m *transition) onLeaseExpired() {
	r := &m.Record
	sent := r.State == StateSending
	m.release(&Outcome{Err: errWorkerDied})
	if sent {
		r.LastSentAt = m.now
	}
	r.LostLeases++
	r.QueryNext = !sent
	r.InDoubt = true
	r.Class, r.Code = ClassUnknown, codeLeaseExpired+strconv.Itoa(r.LostLeases)
	r.State = StateUnknown
	r.NextAt = m.now.Add(r.leaseBackoff())
	if r.LostLeases >= maxLostLeases {
		m.bury(ReasonLeaseExpired)
	}
}

const (
	// suspectAfter is the number of lost leases after which the intent is a Suspect. A further one
	// makes it wait.
	suspectAfter = 3

	// maxLostLeases is the number of lost leases after which the intent is dead: nine of them alone,
	// in about twenty minutes.
	maxLostLeases = 12

	// codeLeaseExpired and LostLeases are the Code of a Record.
	codeLeaseExpired = "lease_expired "
)

// leaseBackoff is the wait after a lost lease. Intents that were lost together wait for different
// times, so that they do not meet again. A hash decides, because Decide is pure.
func (r *Record) leaseBackoff() time.Duration {
	if r.LostLeases <= suspectAfter {
		return 0
	}
	wait := time.Second << (r.LostLeases - suspectAfter)
	hash, _ := strconv.ParseUint(IdempotencyKey(r.ID, r.LostLeases)[:8], 16, 32) // it is hexadecimal
	jitter := float64(wait) * float64(hash) / (1 << 32)
	return wait + time.Duration(jitter).Truncate(time.Microsecond)
}

type decideError string

func (e decideError) Error() string { return string(e) }

const errWorkerDied = decideError("the worker died, or sent no heartbeat for a lease")

// done ends the intent with success.
func (m *transition) done(outcome *Outcome) {
	r := &m.Record
	r.State = StateDone
	r.InDoubt, r.QueryNext = false, false
	r.Class, r.Code, r.Reference, r.Result = ClassSucceeded, outcome.Code, outcome.Reference, outcome.Result
}

// newKey begins an epoch. The work was not done in the one before.
func (r *Record) newKey() {
	r.Epoch++
	r.FirstSentAt = time.Time{}
	r.InDoubt = false
}

// bury makes a dead letter of the intent.
func (m *transition) bury(reason string) {
	r := &m.Record
	if reason == "" {
		reason = r.Class.String()
		if r.InDoubt {
			reason = ReasonUnresolved
		}
	}
	r.State = StateDead
	r.QueryNext = false
	r.Reason = fit(reason, maxName)
	r.DeadLetterID = r.Generation
	m.DeadLettered = &DeadLetter{
		ID: r.ID, Number: r.DeadLetterID, Gateway: r.Gateway, Batch: r.Batch, Row: r.Row,
		Reason: r.Reason, Class: r.Class, Code: r.Code, InDoubt: r.InDoubt, Attempts: r.Attempts, DeadAt: m.now,
	}
}

// close ends the open dead letter.
func (m *transition) close(by, note string) {
	r := &m.Record
	m.Resolved = &DeadLetter{ID: r.ID, Number: r.DeadLetterID, RedrivenAt: m.now, By: fit(by, maxName), Note: fit(note, maxText)}
	r.DeadLetterID = 0
	r.Reason = ""
}

// redrive sends a dead intent again: under the same key if it is in doubt.
func (m *transition) redrive() {
	r := &m.Record
	m.Step = StepUpdate
	m.close(m.e.By, m.e.Note)
	r.State = StateWaiting
	if r.InDoubt {
		r.State = StateUnknown
	}
	if r.expired(m.now) {
		r.Deadline = time.Time{} // the person that redrives the intent wants it sent
	}
	r.begin(m.now.Add(m.e.After))
}

// erase removes what a person may have to forget, and journals the person. A dead intent is
// canceled by it, so that it cannot be sent without its payload.
func (m *transition) erase() {
	r := &m.Record
	m.Step, m.Erased = StepUpdate, true
	r.Generation++
	m.StartedAttempt = &Attempt{
		Generation: r.Generation, Kind: KindErase, Epoch: r.Epoch, Worker: fit(m.e.By, maxName), SentAt: m.now, FinishedAt: m.now,
	}
	if r.State == StateDead {
		m.close(m.e.By, NoteErased)
		r.State = StateCanceled
	}
	r.Payload, r.Result = nil, nil
}

// resolve notes a person's decision.
func (m *transition) resolve() {
	r, outcome := &m.Record, m.e.Outcome.Fitted()
	m.Step = StepUpdate
	r.Generation++
	m.StartedAttempt = &Attempt{
		Generation: r.Generation, Kind: KindResolve, Epoch: r.Epoch, Key: IdempotencyKey(r.ID, r.Epoch), Worker: fit(m.e.By, maxName),
		SentAt: m.now, FinishedAt: m.now,
		Class: outcome.Class, Code: outcome.Code, Status: outcome.Status, Reference: outcome.Reference, Error: outcome.Text(),
	}
	dead := r.State == StateDead
	if dead {
		m.close(m.e.By, m.e.Note)
	}
	if outcome.Class == ClassSucceeded {
		m.done(&outcome)
		return
	}
	// The work was not done, whatever the class. A dead intent may be redriven or revised now.
	r.newKey()
	r.Class, r.Code = ClassDeclined, outcome.Code
	if dead {
		m.bury(ReasonDeclined)
		return
	}
	r.State = StateWaiting
	r.begin(m.now)
}
