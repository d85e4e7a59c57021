package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Import enqueues the rows of a spreadsheet, and reports the state of each. Run it again after
// a crash, or after rows were corrected: only new and corrected rows are sent. It is safe for
// concurrent use.
type Import struct {
	// Engine enqueues the rows. It must be set.
	Engine *Engine

	// Scope, Operation and Gateway are those of all rows: see Intent. Batch is the name of the
	// import, in dead letters and logs.
	Scope, Operation string
	Gateway          string
	Batch            string
}

// Row is a row of a spreadsheet.
type Row struct {
	// Key identifies the row by its content, such as an invoice's number, and is the Key of the
	// intent's ID. It must not be the number of the row: a row that was moved is the same row.
	Key string

	// Payload, NotBefore and Deadline are those of the Intent.
	Payload             []byte
	NotBefore, Deadline time.Time

	// Err is an error of the caller in reading the row. The row is then RowInvalid.
	Err error
}

// RowStatus is the state of a row. The zero value is none.
type RowStatus uint8

// The statuses of rows.
const (
	// RowAccepted means that the row was enqueued now.
	RowAccepted RowStatus = iota + 1

	// RowUnchanged means that the row was enqueued before, and was not sent yet.
	RowUnchanged

	// RowRevised means that the row was declined, was corrected, and will be sent again.
	RowRevised

	// RowInProgress means that the row was sent and has no final result.
	RowInProgress

	// RowDone means that the work was done. Reference is the provider's name of it.
	RowDone

	// RowRefused means that the work was not done and that the row is not sent again. Code and
	// Text are the reason. Correct the row if the provider declined it. Otherwise redrive it.
	RowRefused

	// RowUnknown means that the result is unknown. The Engine finds out, or a person decides:
	// see Engine.Resolve.
	RowUnknown

	// RowInvalid means that the row was not enqueued. Text is the reason.
	RowInvalid
)

const rowStatuses = int(RowInvalid) + 1

// String returns the status in words, for a column of the spreadsheet.
func (s RowStatus) String() string {
	if s == 0 || int(s) >= rowStatuses {
		return ""
	}
	return [rowStatuses]string{"", "accepted", "unchanged", "revised", "in progress", "done", "declined", "unknown", "invalid"}[s]
}

// RowResult is the state of a row.
type RowResult struct {
	// Row is the number of the row, and Key its key.
	Row int
	Key string

	Status RowStatus

	// Reference is the provider's name of the work.
	Reference string

	// Code is the provider's code, or the reason of the dead letter. Text is the error of the
	// last attempt, or what is wrong with the row.
	Code, Text string

	// Err is an ErrInvalid, Row.Err, or an ErrMismatch if the row differs from the one that was
	// enqueued under its key and cannot be revised now. Status is then that of the enqueued
	// row.
	Err error
}

// Report has the states of the rows of an import.
type Report struct {
	// Rows are in the order in which they were read.
	Rows []RowResult

	// Counts is the number of rows of each status.
	Counts map[RowStatus]int
}

// importPage is the number of rows of one commit.
const importPage = 500

// Run enqueues the rows, by their numbers, and reports the state of each. An error of the store
// or of the configuration ends it; the Report is then about the rows before. Running it again
// is safe.
func (im Import) Run(ctx context.Context, rows iter.Seq2[int, Row]) (Report, error) {
	run := importRun{Import: im, ctx: ctx, keys: make(map[string]int), report: Report{Counts: make(map[RowStatus]int)}}
	if err := run.start(); err != nil {
		return run.report, err
	}
	for number, row := range rows {
		run.add(number, row)
		if len(run.places) >= importPage {
			if err := run.flush(); err != nil {
				return run.report, err
			}
		}
	}
	err := run.flush()
	return run.report, err
}

// importRun is one Run of an Import.
type importRun struct {
	Import

	ctx    context.Context
	core   *core
	keys   map[string]int // the rows that had them
	report Report

	page   []RowResult // not yet reported
	events []Event
	places []int // of the events, in page
}

func (run *importRun) start() (err error) {
	if run.Engine == nil {
		return invalidf("Import.Engine is nil")
	}
	if run.core, err = run.Engine.start(); err != nil {
		return err
	}
	in := run.intent(0, Row{Key: "any"})
	if err := in.Validate(); err != nil {
		return err
	}
	return run.core.routed(in.Gateway)
}

func (run *importRun) intent(number int, row Row) Intent {
	return Intent{
		ID:      idempotency.ID{Scope: run.Scope, Operation: run.Operation, Key: row.Key},
		Gateway: run.Gateway, Payload: row.Payload, NotBefore: row.NotBefore, Deadline: row.Deadline, Batch: run.Batch, Row: number,
	}
}

// add appends a row to the page.
func (run *importRun) add(number int, row Row) {
	in := run.intent(number, row)
	err := row.Err
	if err == nil {
		err = in.Validate()
	}
	if first, twice := run.keys[row.Key]; err == nil && twice {
		err = invalidf("Row.Key is that of row %d", first)
	}
	result := RowResult{Row: number, Key: row.Key}
	if err != nil {
		result.invalid(err)
	} else {
		run.keys[row.Key] = number
		run.places = append(run.places, len(run.page))
		run.events = append(run.events, Event{Kind: EventEnqueue, Intent: in})
	}
	run.page = append(run.page, result)
}

// flush enqueues the page and reports it.
func (run *importRun) flush() error {
	if len(run.events) > 0 {
		results, err := run.core.applyAll(run.ctx, run.events)
		if err != nil {
			return err
		}
		run.core.wakeUp()
		for i := range results {
			if err := run.judge(&run.page[run.places[i]], &results[i]); err != nil {
				return err
			}
		}
	}
	for i := range run.page {
		run.report.Counts[run.page[i].Status]++
	}
	run.report.Rows = append(run.report.Rows, run.page...)
	run.page, run.events, run.places = run.page[:0], run.events[:0], run.places[:0]
	return nil
}

// judge sets the status of a row.
func (run *importRun) judge(to *RowResult, result *Result) error {
	r := &result.Record
	switch {
	case errors.Is(result.Err, ErrInvalid):
		to.invalid(result.Err)
		return nil
	case result.Err != nil && !errors.Is(result.Err, ErrMismatch):
		return fmt.Errorf("durable: row %d: %w", to.Row, result.Err)
	case result.Step == StepInsert:
		to.Status = RowAccepted
	case result.Revised:
		to.Status = RowRevised
	default:
		to.stands(r)
	}
	if result.Err != nil {
		to.Err, to.Text = result.Err, "the row differs from what was enqueued under its key"
	} else if to.Status == RowRefused || to.Status == RowUnknown {
		return run.explain(to, r)
	}
	return nil
}

// explain adds the error of the last attempt.
func (run *importRun) explain(to *RowResult, r *Record) error {
	attempts, err := run.core.Store.Attempts(run.ctx, r.ID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if n := len(attempts); n > 0 {
		to.Text = attempts[n-1].Error
	}
	return nil
}

// invalid is the result of a row that was not enqueued.
func (to *RowResult) invalid(err error) {
	to.Status, to.Err, to.Text = RowInvalid, err, errorText(err)
}

// stands returns the status of an existing intent.
func (to *RowResult) stands(r *Record) {
	switch r.State {
	case StatePending:
		to.Status = RowUnchanged
	case StateDone:
		to.Status, to.Reference = RowDone, r.Reference
	case StateUnknown:
		to.Status, to.Code = RowUnknown, r.Code
	case StateCanceled:
		to.Status, to.Code = RowRefused, r.State.String()
	case StateDead:
		to.Status = RowRefused
		if r.InDoubt {
			to.Status = RowUnknown
		}
		to.Code = cmp.Or(r.Code, r.Reason)
	default: // waiting, sending, asking
		to.Status = RowInProgress
	}
}
