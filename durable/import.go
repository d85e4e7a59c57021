package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Import enqueues the rows of a spreadsheet, each once, and says where each stands. Run
// it again, whether after a crash or after rows were mended, and only what is new or
// mended is sent: three that were refused and are mended are three sends. It is safe for
// concurrent use.
type Import struct {
	// Engine enqueues. It must be set.
	Engine *Engine

	// Scope, Operation and Gateway are those of all rows; see Intent. Batch is the import's
	// name, in letters and logs.
	Scope, Operation string
	Gateway          string
	Batch            string
}

// Row is a row as it was read.
type Row struct {
	// Key names what the row is about, such as an invoice's number, and is the Key of the
	// intent's ID. A row that was moved is the same row, so it must not be a row's number.
	Key string

	// Payload, NotBefore and Deadline are the Intent's.
	Payload             []byte
	NotBefore, Deadline time.Time

	// Err is what is wrong with the row, for whoever could not make a payload of it. Such a
	// row is RowInvalid, with this text.
	Err error
}

// RowStatus is where a row stands. The zero value is none.
type RowStatus uint8

// The statuses of rows.
const (
	// RowAccepted: it was enqueued now.
	RowAccepted RowStatus = iota + 1

	// RowUnchanged: it was enqueued before, and has not been sent.
	RowUnchanged

	// RowRevised: it was refused, has been mended, and will be sent again.
	RowRevised

	// RowInProgress: it was sent, or is, and is not over.
	RowInProgress

	// RowDone: it is done; RowResult.Reference is the other side's name for it.
	RowDone

	// RowRefused: it is surely not done, and is not sent any more; Code and Text say why.
	// Mend it where the other side has refused it; else it is to be redriven.
	RowRefused

	// RowUnknown: nobody knows whether it was done. It is found out, or a person must say,
	// see Engine.Resolve.
	RowUnknown

	// RowInvalid: it was not enqueued, and Text says why.
	RowInvalid
)

const rowStatuses = int(RowInvalid) + 1

// String is the status in words, as in a status column.
func (s RowStatus) String() string {
	if s == 0 || int(s) >= rowStatuses {
		return ""
	}
	return [rowStatuses]string{"", "accepted", "unchanged", "revised", "in progress", "done", "declined", "unknown", "invalid"}[s]
}

// RowResult is where a row stands, and why.
type RowResult struct {
	// Row is its number, and Key its key.
	Row int
	Key string

	Status RowStatus

	// Reference is the other side's name of what is done.
	Reference string

	// Code is the other side's word for a refusal, or the reason for which it is dead, and
	// Text the last attempt's error, or what is wrong with the row.
	Code, Text string

	// Err is what is wrong with the row: an ErrInvalid, Row.Err, or an ErrMismatch where
	// the row differs from what was enqueued under its key and cannot be mended any more,
	// or not yet: Status is then that of what was enqueued.
	Err error
}

// Report is where the rows of an import stand.
type Report struct {
	// Rows are in the order in which they were read.
	Rows []RowResult

	// Counts is how many have each status.
	Counts map[RowStatus]int
}

// importPage is how many rows are enqueued in one commit.
const importPage = 500

// Run enqueues the rows, by their numbers, and reports on each. An error, of the store or of
// the configuration, ends it; the Report is then of the rows before. Running it again is
// safe.
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

// importRun is an Import that runs.
type importRun struct {
	Import

	ctx    context.Context
	core   *core
	keys   map[string]int // the rows that had them
	report Report

	page   []RowResult // not yet reported
	events []driver.Event
	places []int // of the events, in page
}

func (run *importRun) start() (err error) {
	if run.Engine == nil {
		return driver.Invalidf("an Import needs an Engine")
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

// add puts a row on the page.
func (run *importRun) add(number int, row Row) {
	in := run.intent(number, row)
	err := row.Err
	if err == nil {
		err = in.Validate()
	}
	if first, twice := run.keys[row.Key]; err == nil && twice {
		err = driver.Invalidf("its key is that of row %d", first)
	}
	result := RowResult{Row: number, Key: row.Key}
	if err != nil {
		result.invalid(err)
	} else {
		run.keys[row.Key] = number
		run.places = append(run.places, len(run.page))
		run.events = append(run.events, driver.Event{Kind: driver.EventEnqueue, Intent: in})
	}
	run.page = append(run.page, result)
}

// flush enqueues the page, and reports it.
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

// judge says what became of a row.
func (run *importRun) judge(to *RowResult, result *driver.Result) error {
	r := &result.Record
	switch {
	case errors.Is(result.Err, ErrInvalid):
		to.invalid(result.Err)
		return nil
	case result.Err != nil && !errors.Is(result.Err, ErrMismatch):
		return fmt.Errorf("durable: row %d: %w", to.Row, result.Err)
	case result.Step == driver.StepInsert:
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

// explain adds the last attempt's error.
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

// invalid is what was not enqueued.
func (to *RowResult) invalid(err error) {
	to.Status, to.Err, to.Text = RowInvalid, err, driver.ErrorText(err)
}

// stands is where an intent that was there before stands.
func (to *RowResult) stands(r *Record) {
	switch r.State {
	case StatePending:
		to.Status = RowUnchanged
	case StateDone:
		to.Status, to.Reference = RowDone, r.Reference
	case StateUnknown:
		to.Status, to.Code = RowUnknown, r.Code
	case StateCancelled:
		to.Status, to.Code = RowRefused, r.State.String()
	case StateDead:
		to.Status = RowRefused
		if r.InDoubt {
			to.Status = RowUnknown
		}
		if to.Code = r.Code; to.Code == "" {
			to.Code = r.Reason
		}
	default: // waiting, sending, asking
		to.Status = RowInProgress
	}
}
