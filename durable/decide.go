package durable

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Step is what a store writes of a Record.
type Step uint8

// The steps.
const (
	// StepKeep: nothing.
	StepKeep Step = iota

	// StepInsert: a new row.
	StepInsert

	// StepUpdate: the row, under the ID.
	StepUpdate
)

// Change is what an event does: all of it is written in one commit, or nothing is.
type Change struct {
	// Step is what is written of Record, which is the intent as it is then. Intent and
	// Fingerprint change with StepInsert and Revised only, save that a redrive may end
	// the Deadline; Result changes when it becomes StateDone only. A store may leave
	// Payload and Result unread where they do not change: what Apply and Reap return
	// then lacks them.
	Step   Step
	Record Record

	// Before is the state in which the event met it.
	Before State

	// Begun is a new row of the journal, Ended one whose outcome is known now (its
	// FinishedAt, Class, Code, Status, Reference and Error are to be written to the
	// row of its Generation). nil: none. A resolution is begun and over at once.
	Begun, Ended *Attempt

	// Opened is a new dead letter, Closed one that is dealt with (its RedrivenAt, By
	// and Note are to be written to the row of its Number). nil: none.
	Opened, Closed *Letter

	// Revised: the intent was mended by being enqueued again.
	Revised bool
}

// Decide is the state machine of all stores: given the record (nil: there is none),
// an event and the database's time, what is to be written. An error means that
// nothing is: ErrInvalid, ErrNotFound, ErrState, ErrFenced or ErrMismatch. Before and
// Record are set also then.
//
// It looks at nothing else, changes nothing, and shares Payload with its arguments.
func Decide(r *Record, e *Event, now time.Time) (Change, error) {
	if r == nil {
		r = &Record{}
	}
	m := move{Change: Change{Record: *r, Before: r.State}, e: e, now: stamp(now)}
	if m.now.Before(r.Updated) {
		m.now = r.Updated // a clock that was set back must not lengthen what a key protects
	}
	if err := e.Validate(); err != nil {
		return m.Change, err
	}
	err := m.decide(r.Created.IsZero())
	if err != nil {
		return Change{Record: *r, Before: r.State}, err
	}
	if m.Step != StepKeep {
		m.Record.Updated = m.now
	}
	return m.Change, nil
}

// move is a Change in the making.
type move struct {
	Change

	e   *Event
	now time.Time
}

func (m *move) decide(absent bool) error {
	if m.e.Kind == EventEnqueue {
		return m.enqueue(absent)
	}
	if absent {
		return ErrNotFound
	}
	switch r := &m.Record; m.e.Kind {
	case EventClaim:
		if !r.State.Claimable() || m.now.Before(r.NextAt) {
			return m.illegal()
		}
		m.claim()
	case EventFinish:
		if !r.State.Held() || r.Worker != m.e.Worker || r.Generation != m.e.Generation {
			return ErrFenced
		}
		m.finish()
	case EventLose:
		if !r.State.Held() || r.Worker != m.e.Worker {
			return ErrFenced
		}
		m.lose()
	case EventRedrive:
		if r.State != StateDead {
			return m.illegal()
		}
		if m.e.Generation != 0 && m.e.Generation != r.Letter {
			return ErrFenced
		}
		m.redrive()
	case EventResolve:
		if r.State != StateDead && r.State != StateUnknown {
			return m.illegal()
		}
		m.resolve()
	default: // EventCancel, by Validate
		if r.State == StateCancelled {
			return nil
		}
		if r.State != StatePending && r.State != StateWaiting {
			return m.illegal()
		}
		m.Step = StepUpdate
		r.State = StateCancelled
	}
	return nil
}

func (m *move) illegal() error {
	return fmt.Errorf("%w: %v of one that is %v", ErrState, m.e.Kind, m.Record.State)
}

// enqueue brings in what is new, finds what is there, and mends what was refused.
func (m *move) enqueue(absent bool) error {
	r, in := &m.Record, &m.e.Intent
	fingerprint := in.Fingerprint()
	if !absent && r.Fingerprint == fingerprint {
		return nil
	}
	if !absent && !r.mendable() {
		return ErrMismatch
	}
	if !in.Deadline.IsZero() && !m.now.Before(in.Deadline) {
		return fmt.Errorf("%w: the deadline has passed", ErrInvalid)
	}
	if absent {
		m.Step = StepInsert
		*r = Record{State: StatePending, Epoch: 1, Created: m.now}
	} else {
		m.Step = StepUpdate
		m.Revised = true
		m.close("", "revised")
		r.State = StateWaiting
	}
	r.Intent = *in
	r.NotBefore = time.Time{}
	r.Deadline = stamp(in.Deadline)
	r.Fingerprint = fingerprint
	r.begin(m.due(in.NotBefore), m.now)
	return nil
}

// mendable reports whether it died of a definite refusal, so that it is safe to send
// another payload in its place.
func (r *Record) mendable() bool {
	return r.State == StateDead && !r.Doubt && r.Class == ClassRefused
}

// begin counts attempts and age anew.
func (r *Record) begin(at, now time.Time) {
	r.Attempts, r.Tries = 0, 0
	r.Since = now
	r.NextAt = at
	r.Ask = false
}

// claim takes the intent for a worker, or buries it when nothing can be done with it.
func (m *move) claim() {
	r, terms := &m.Record, m.e.Terms
	m.Step = StepUpdate
	r.Generation++
	r.Taken = m.now
	switch {
	case terms == nil:
		m.bury(ReasonNoGateway)
	case !r.Doubt && r.expired(m.now):
		m.bury(ReasonDeadline)
	case !r.Doubt:
		if terms.KeyLife > 0 && !r.First.IsZero() && !r.protects(terms, m.now) {
			r.newKey() // the old one would not protect this send, and is not needed
		}
		m.take(KindSend)
	case r.protects(terms, m.now) && !r.expired(m.now) && (!r.Ask || !terms.Finds):
		m.take(KindSend)
	case terms.Finds:
		m.take(KindFind)
	default:
		m.bury(ReasonUnresolved)
	}
}

// take journals an attempt that begins.
func (m *move) take(kind Kind) {
	r := &m.Record
	r.Worker = m.e.Worker
	r.Tries++
	r.State = StateAsking
	if kind == KindSend {
		r.State = StateSending
		r.Attempts++
		if r.First.IsZero() {
			r.First = m.now
		}
	}
	m.Begun = &Attempt{
		Generation: r.Generation, Kind: kind, Epoch: r.Epoch, Key: SendKey(r.ID, r.Epoch), Worker: r.Worker, SentAt: m.now,
	}
}

// finish is how a send or a question ended.
func (m *move) finish() {
	r := &m.Record
	outcome := m.e.Outcome.fitted()
	sent := r.State == StateSending
	means := meaning(&outcome, r, m.Before, m.e.Terms)
	m.release(&outcome)
	if sent {
		if !r.Doubt || !outcome.undone() {
			r.Last = m.now
		}
		if outcome.Unsent() {
			r.Attempts--
		}
	}
	r.Class, r.Code = outcome.Class, outcome.Code
	switch means {
	case ClassSucceeded:
		m.done(&outcome)
	case ClassRefused:
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

// release ends the attempt's row in the journal.
func (m *move) release(outcome *Outcome) {
	r := &m.Record
	m.Step = StepUpdate
	r.Worker = ""
	m.Ended = &Attempt{
		Generation: r.Generation, Epoch: r.Epoch, FinishedAt: m.now,
		Class: outcome.Class, Code: outcome.Code, Status: outcome.Status, Reference: outcome.Reference, Error: outcome.text(),
	}
}

// meaning is what the outcome says of the work, and not of this attempt alone: done,
// refused, surely not done (ClassFailed), or unknown.
func meaning(outcome *Outcome, r *Record, held State, terms *Terms) Class {
	sent := held == StateSending
	switch {
	case outcome.Class == ClassSucceeded:
		return ClassSucceeded
	case outcome.Class == ClassRefused && (!sent || !r.Doubt || refusedForGood(outcome, r, terms)):
		return ClassRefused
	case outcome.Class == ClassFailed && sent && !r.Doubt:
		return ClassFailed
	case outcome.Class == ClassNotFound && !sent && r.settled(terms):
		return ClassFailed
	}
	return ClassUnknown
}

// refusedForGood reports whether the refusal of a resend holds for the sends before it
// too. It may have come from before the place that knows keys, when one of them had been
// done; and one may yet be done, where the other side does not keep refusals under
// their keys. Whoever can be asked is asked.
func refusedForGood(outcome *Outcome, r *Record, terms *Terms) bool {
	return !terms.Finds && outcome.keyed() && r.settled(terms)
}

// settled reports whether what began when the record was claimed began so late that no
// send before it can be done any more.
func (r *Record) settled(terms *Terms) bool { return !r.Taken.Before(r.Last.Add(terms.Settles)) }

// next is what the Policy wants, as far as it may.
func (m *move) next(doubt bool) {
	r, d, terms := &m.Record, &m.e.Decision, m.e.Terms
	again := doubt && m.Before == StateSending && r.Class == ClassRefused // refused, and not for good
	mustAsk := again && terms.Finds
	mustWait := again && !terms.Finds && m.e.Outcome.keyed() // to be refused once more, when all has settled
	r.Doubt = doubt
	r.NextAt = m.due(d.At)
	if settled := r.Last.Add(terms.Settles); mustWait && r.NextAt.Before(settled) {
		r.NextAt = settled
	}
	r.Ask = mustAsk || doubt && d.Do == Ask && terms.Finds
	switch {
	case d.Do == Bury && !mustAsk && !mustWait:
		m.bury(d.Reason)
	case !doubt && r.expired(r.NextAt):
		m.bury(ReasonDeadline)
	case doubt:
		r.State = StateUnknown
	default:
		r.State = StateWaiting
	}
}

// due is a time that is neither past nor too far off.
func (m *move) due(at time.Time) time.Time {
	switch latest := m.now.Add(longestWait); {
	case at.Before(m.now):
		return m.now
	case at.After(latest) && m.e.Kind != EventEnqueue:
		return latest
	}
	return stamp(at.Add(time.Microsecond - 1)) // jitter only adds, also below a microsecond
}

// lose makes unknown what a dead worker held. What is lost again and again is perhaps
// what kills its workers, so it comes back ever later; what is lost once, at once,
// however often it was tried before.
func (m *move) lose() {
	r := &m.Record
	sent := r.State == StateSending
	m.release(&Outcome{Err: errWorkerDied})
	lost := losses(r.Code) + 1
	wait := time.Duration(0)
	if extra := lost - freeLosses; extra > 0 {
		wait = min(time.Second<<min(extra, 12), time.Hour)
	}
	if sent {
		r.Last = m.now
	}
	r.Ask = !sent
	r.Doubt = true
	r.Class, r.Code = ClassUnknown, codeLost+strconv.Itoa(lost)
	r.State = StateUnknown
	r.NextAt = m.now.Add(wait)
}

// freeLosses is how many times running it may be lost before it waits.
const freeLosses = 3

// codeLost and a number is the Code of a Record that was lost so many times running.
const codeLost = "lost "

// losses is the number.
func losses(code string) int {
	number, lost := strings.CutPrefix(code, codeLost)
	n, err := strconv.Atoi(number)
	if !lost || err != nil {
		return 0
	}
	return min(max(n, 0), 1000)
}

type decideError string

func (e decideError) Error() string { return string(e) }

const errWorkerDied = decideError("the worker died, or was not heard of for a lease")

// done is the end.
func (m *move) done(outcome *Outcome) {
	r := &m.Record
	r.State = StateDone
	r.Doubt, r.Ask = false, false
	r.Class, r.Code, r.Reference, r.Result = ClassSucceeded, outcome.Code, outcome.Reference, outcome.Result
}

// newKey ends the epoch. The work was surely not done in it.
func (r *Record) newKey() {
	r.Epoch++
	r.First = time.Time{}
	r.Doubt = false
}

// bury opens a letter.
func (m *move) bury(reason string) {
	r := &m.Record
	if reason == "" {
		reason = r.Class.String()
		if r.Doubt {
			reason = ReasonUnresolved
		}
	}
	r.State = StateDead
	r.Ask = false
	r.Reason = fit(reason, longestName)
	r.Letter = r.Generation
	m.Opened = &Letter{
		ID: r.ID, Number: r.Letter, Gateway: r.Gateway, Batch: r.Batch, Row: r.Row,
		Reason: r.Reason, Class: r.Class, Code: r.Code, Doubt: r.Doubt, Attempts: r.Attempts, DeadAt: m.now,
	}
}

// close ends the open letter.
func (m *move) close(by, note string) {
	r := &m.Record
	m.Closed = &Letter{ID: r.ID, Number: r.Letter, RedrivenAt: m.now, By: fit(by, longestName), Note: fit(note, longestText)}
	r.Letter = 0
	r.Reason = ""
}

// redrive brings it back, to be resent under the same key, or asked for, where nobody
// knows whether it was done.
func (m *move) redrive() {
	r := &m.Record
	m.Step = StepUpdate
	m.close(m.e.By, m.e.Note)
	r.State = StateWaiting
	if r.Doubt {
		r.State = StateUnknown
	}
	if r.expired(m.now) {
		r.Deadline = time.Time{} // whoever redrives it knows
	}
	r.begin(m.now.Add(m.e.After), m.now)
}

// resolve takes a person's word for it.
func (m *move) resolve() {
	r, outcome := &m.Record, m.e.Outcome.fitted()
	m.Step = StepUpdate
	r.Generation++
	m.Begun = &Attempt{
		Generation: r.Generation, Kind: KindResolve, Epoch: r.Epoch, Key: SendKey(r.ID, r.Epoch), Worker: fit(m.e.By, longestName),
		SentAt: m.now, FinishedAt: m.now,
		Class: outcome.Class, Code: outcome.Code, Status: outcome.Status, Reference: outcome.Reference, Error: outcome.text(),
	}
	dead := r.State == StateDead
	if dead {
		m.close(m.e.By, m.e.Note)
	}
	if outcome.Class == ClassSucceeded {
		m.done(&outcome)
		return
	}
	// Surely not done, whatever the class. A dead one may be redriven or mended now.
	r.newKey()
	r.Class, r.Code = ClassRefused, outcome.Code
	if dead {
		m.bury(ReasonRefused)
		return
	}
	r.State = StateWaiting
	r.begin(m.now, m.now)
}
