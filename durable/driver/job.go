package driver

import "time"

// JobID identifies a Job. Stores make it from digits.
type JobID string

// Job is a redrive of many dead letters. Workers execute it page by page. Each page is one
// commit together with the job's cursor, so a crash neither repeats nor loses one.
type Job struct {
	// ID identifies the job. AddJob sets it.
	ID JobID

	// Filter selects the dead letters. Its Until is the time at which the person looked:
	// younger letters are left out.
	Filter Filter

	// By and Note are the person and the reason. They are stored with each dead letter.
	By, Note string

	// PerSecond is the number of intents that become due in each second. It is positive,
	// or negative for all at once.
	PerSecond float64

	// CreatedAt and FinishedAt are when the job was added, and when it ended. FinishedAt is
	// zero while the job is open.
	CreatedAt, FinishedAt time.Time

	// CancelledBy is the person who cancelled the job. Empty: it was not cancelled.
	CancelledBy string

	// After is the last dead letter of the pages that are done. nil: none is done.
	After *DeadLetter

	// Redriven counts the intents that were redriven, and Skipped those that had changed
	// since the person looked.
	Redriven, Skipped int
}
