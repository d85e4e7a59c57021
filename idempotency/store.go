package idempotency

import "github.com/resilienthttp/resilienthttp/idempotency/internal/driver"

// The types that a service shares with the stores. Package idempotency/internal/driver
// documents their fields.
type (
	// Store keeps the records: a sqlitestore, pgstore, redisstore, or Memory. Other stores are not
	// possible yet.
	Store = driver.Store

	// Memory is a Store in the memory of one process, for tests and for services
	// that may lose their keys at exit. The zero value holds up to 65,536 keys.
	Memory = driver.Memory

	// ID identifies an operation by Scope (the tenant), Operation ("POST /charges") and Key.
	ID = driver.ID

	// Result is a handler's stored response, or the result of the work of Do: Code, Header, Body and Reference.
	Result = driver.Result

	// Fingerprint is the same for two requests if they are the same request.
	Fingerprint = driver.Fingerprint

	// Status is the state of a record. Its method Finished reports whether the operation is executed no more.
	Status = driver.Status

	// Lease is the proof of an execution that it holds a record: the ID, the Owner and the Generation. Record.Lease is a reconciler's.
	Lease = driver.Lease

	// Outcome is the end of an execution, with which a reconciler completes an Unknown record: Status, Result and TTL.
	Outcome = driver.Outcome
)

// The statuses with which an execution ends. See ClassifyStatus.
const (
	// Completed means that the operation took effect. Its result is stored.
	Completed = driver.Completed

	// FailedFinal means that the operation was rejected and would be rejected
	// again. The response is stored.
	FailedFinal = driver.FailedFinal

	// FailedRetryable means that the operation had no effect. The next request with
	// the key is executed.
	FailedRetryable = driver.FailedRetryable

	// Unknown means that the operation may or may not have taken effect. The record
	// waits for a reconciler.
	Unknown = driver.Unknown
)

// The values of Options.Takeover.
const (
	// MarkUnknown makes the record Unknown. It is the default.
	MarkUnknown = driver.MarkUnknown

	// Reexecute executes the operation again.
	Reexecute = driver.Reexecute

	// Resume executes the operation again, with Execution.Resumed set.
	Resume = driver.Resume
)

// Errors of stores and of executions.
var (
	// ErrInvalid means that an argument or a configuration is invalid. Nothing was
	// changed.
	ErrInvalid = driver.ErrInvalid

	// ErrLeaseLost means that the execution no longer holds the record. Another
	// execution took over, or the record has ended.
	ErrLeaseLost = driver.ErrLeaseLost

	// ErrUnknown means that the operation may or may not have taken effect. Work
	// returns it, or an error that wraps it, when it does not know.
	ErrUnknown = driver.ErrUnknown
)
