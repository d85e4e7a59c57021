package durable

import (
	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// The types that a program shares with the stores. Package durable/internal/driver documents
// their fields.
type (
	// Store keeps the intents: a sqlitestore, a pgstore, or Memory. Other stores are not possible yet.
	Store = driver.Store

	// Memory is a Store in the memory of one process, for tests.
	Memory = driver.Memory

	// Outbox enqueues and cancels intents within a transaction of the caller.
	Outbox = driver.Outbox

	// Intent is a call that must not be lost. It has an ID (Scope, Operation, Key), the Gateway that sends it, the Payload of
	// at most 1 MiB, and optionally Fingerprint, NotBefore, Deadline, Batch and Row.
	Intent = driver.Intent

	// Receipt is the result of Enqueue: the ID and the State of the intent. Existing means that it was enqueued before.
	// Revised means that the provider had declined it, and that it is sent again with this payload, under a new key.
	Receipt = driver.Receipt

	// Result is the result of an intent of EnqueueBatch. Its method Receipt returns the receipt.
	Result = driver.Result

	// Change is a change of an intent, for Trace.Changed: the Step, the Record after it, and the State Before it. It may have the
	// StartedAttempt, the FinishedAttempt, and the DeadLetter that was DeadLettered or Resolved. Err is the
	// error of the attempt's outcome.
	Change = driver.Change

	// Record is the stored state of an intent: the Intent, its State, NextAt, Attempts, whether it is InDoubt, and of its last
	// outcome Class, Code, Reference and Result. A dead letter has a Reason and a DeadLetterID.
	Record = driver.Record

	// Seen is the state of an intent that a person saw before deciding about it: its ID, its Generation, and as
	// Letter the number of its open dead letter.
	Seen = driver.Seen

	// Attempt is one entry of an intent's journal: its Kind, Generation, Epoch, Key and Worker, SentAt and FinishedAt. Of its
	// outcome it has Class, Code, Status, Reference and Error.
	Attempt = driver.Attempt

	// DeadLetter is an intent that is not sent any more: its ID, Number, Gateway, Batch and Row. It has the Reason, Class, Code, whether
	// the intent is InDoubt, its Attempts, and DeadAt. After a decision it has RedrivenAt, By and Note.
	DeadLetter = driver.DeadLetter

	// Hold is a Gateway that is held, or one Scope of it, Since a time and Until another. By and Note are a person's. Provider means
	// that the provider asked to wait. A hold of an Engine has the ErrorType and Error of the attempt that led to it, and ProbeAt.
	Hold = driver.Hold

	// Count is the number N of intents in one State, of one Gateway and Scope.
	Count = driver.Count

	// Job is a redrive of many dead letters in the background: those of its Filter, PerSecond, By a person with a Note. It has its ID, CreatedAt,
	// FinishedAt or CanceledBy, and the numbers of those that were Redriven, and Skipped because they had changed.
	Job = driver.Job

	// JobID identifies a Job.
	JobID = driver.JobID

	// Filter selects intents or dead letters by States, Scope, Operation, Key, Gateway, Batch, Code and Reason, and by time (From,
	// Until). Zero fields select all. NewestFirst is the order. IncludeResolved adds dead letters after their decision.
	Filter = driver.Filter

	// Stats are the numbers of a store: of intents by States, those that are Due and the Oldest of them, DeadInDoubt, and the Workers.
	Stats = driver.Stats

	// State is the state of an intent.
	State = driver.State

	// Outcome is the result of a send or of a status query: the Class, the provider's Code and Reference, the HTTP Status, the
	// Result that is stored with a success, NotBefore, and Err. The zero value means that the result is unknown.
	Outcome = driver.Outcome

	// Class is what an Outcome says about the work.
	Class = driver.Class

	// Decision is what a Policy wants next: the Action, At a time, NewKey to send under a new key, and the Reason of a dead letter.
	Decision = driver.Decision
)

// The states of an intent.
const (
	// StatePending means that the intent was never sent.
	StatePending = driver.StatePending

	// StateWaiting means that the work was not done. The intent is sent again when it is due.
	StateWaiting = driver.StateWaiting

	// StateSending means that a worker sends the intent.
	StateSending = driver.StateSending

	// StateQuerying means that a worker queries the provider for the result.
	StateQuerying = driver.StateQuerying

	// StateUnknown means that the intent was sent and the result is unknown.
	StateUnknown = driver.StateUnknown

	// StateDone means that the work was done.
	StateDone = driver.StateDone

	// StateDead means that the intent is not sent any more until a person decides.
	StateDead = driver.StateDead

	// StateCanceled means that the intent was canceled before it was done.
	StateCanceled = driver.StateCanceled
)

// The classes of outcomes.
const (
	// ClassUnknown means that the result is unknown: the provider may or may not have done
	// the work.
	ClassUnknown = driver.ClassUnknown

	// ClassSucceeded means that the provider did the work.
	ClassSucceeded = driver.ClassSucceeded

	// ClassDeclined means that the provider did not do the work, and will decline it again
	// under this key. A Policy may send it under a new key.
	ClassDeclined = driver.ClassDeclined

	// ClassFailed means that this attempt had no effect and that the next may succeed.
	ClassFailed = driver.ClassFailed

	// ClassNotFound means that the provider knows no such work. It is a Finder's outcome.
	ClassNotFound = driver.ClassNotFound
)

// The actions of a Decision.
const (
	// Retry sends the intent again.
	Retry = driver.Retry

	// Query asks the provider for the result.
	Query = driver.Query

	// Bury makes a dead letter of the intent.
	Bury = driver.Bury
)

// The kinds of attempts.
const (
	// KindSend is a send.
	KindSend = driver.KindSend

	// KindQuery is a status query.
	KindQuery = driver.KindQuery

	// KindResolve is the decision of a person.
	KindResolve = driver.KindResolve

	// KindErase is the erasure of the intent by a person.
	KindErase = driver.KindErase
)

// The reasons of dead letters. A Policy may give others.
const (
	// ReasonDeclined means that the provider declined.
	ReasonDeclined = driver.ReasonDeclined

	// ReasonExhausted means that the Policy's limit was reached.
	ReasonExhausted = driver.ReasonExhausted

	// ReasonDeadline means that the intent's Deadline passed and the work was not done.
	ReasonDeadline = driver.ReasonDeadline

	// ReasonUnresolved means that the result is unknown, that the key protects no more, and
	// that the provider cannot be queried.
	ReasonUnresolved = driver.ReasonUnresolved

	// ReasonLeaseExpired means that the intent lost twelve workers in a row: sending it may kill the
	// process.
	ReasonLeaseExpired = driver.ReasonLeaseExpired

	// ReasonNoGateway means that the Engine has no gateway of that name.
	ReasonNoGateway = driver.ReasonNoGateway
)

// LongestPayload is the maximum size of a payload and of a stored result: 1 MiB.
const LongestPayload = driver.LongestPayload

// Errors of an Engine. Find them with errors.Is.
var (
	// ErrInvalid means that an argument or the configuration is invalid. Nothing was changed.
	ErrInvalid = driver.ErrInvalid

	// ErrMismatch means that the ID belongs to an intent with another gateway or payload.
	ErrMismatch = driver.ErrMismatch

	// ErrNotFound means that there is no such intent.
	ErrNotFound = driver.ErrNotFound

	// ErrInvalidState means that the intent's state does not permit this. Nothing was changed.
	ErrInvalidState = driver.ErrInvalidState

	// ErrStale means that the intent has changed since the person saw it. Nothing was changed.
	// Look again and decide anew.
	ErrStale = driver.ErrStale
)

// IdempotencyKey returns the idempotency key under which an intent is sent in an epoch. A
// resend has the same key. The epoch, from 1, ends with a decline.
func IdempotencyKey(id idempotency.ID, epoch int) string { return driver.IdempotencyKey(id, epoch) }
