package durable

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

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

	// PerSecond is the number of intents that become due in each second, counted from
	// CreatedAt. It is positive, or negative for all at once.
	PerSecond float64

	// CreatedAt and FinishedAt are when the job was added, and when it ended. FinishedAt is
	// zero while the job is open.
	CreatedAt, FinishedAt time.Time

	// CanceledBy is the person that canceled the job. "" means that it was not canceled.
	CanceledBy string

	// After is the last dead letter of the pages that are done. nil: none is done.
	After *DeadLetter

	// Redriven counts the intents that were redriven, and Skipped those that had changed
	// since the person looked.
	Redriven, Skipped int
}

// Opened returns the job as a store adds it at this time, and a text that is the same for
// equal filters. ErrInvalid: the filter or PerSecond is invalid.
func (j Job) Opened(now time.Time) (job Job, filter string, err error) {
	f := j.Filter
	if err := f.Validate(); err != nil {
		return Job{}, "", err
	}
	if j.PerSecond == 0 || math.IsNaN(j.PerSecond) || math.IsInf(j.PerSecond, 0) {
		return Job{}, "", invalidf("redrive: PerSecond is %v, want a number that is not 0", j.PerSecond)
	}
	now = stamp(now)
	if until := now.Add(time.Microsecond); f.Until.IsZero() || f.Until.After(until) {
		f.Until = until
	}
	f.From, f.Until = Ceil(f.From), Ceil(f.Until)
	f.States, f.NewestFirst, f.IncludeResolved = nil, false, false
	text, err := json.Marshal(f)
	if err != nil {
		return Job{}, "", invalidf("redrive: %w", err) // a year of five digits
	}
	return Job{
		Filter: f, By: fit(j.By, maxName), Note: fit(j.Note, maxText), PerSecond: j.PerSecond, CreatedAt: now,
	}, string(text), nil
}

// Ceil is the first whole microsecond that is not before t.
func Ceil(t time.Time) time.Time { return stamp(t.Add(time.Microsecond - 1)) }

// Events returns the events of a page of dead letters at this time. Each intent is due at its
// place in the job's rate, which starts at CreatedAt.
func (j *Job) Events(page []DeadLetter, now time.Time) []Event {
	events, now := make([]Event, len(page)), stamp(now)
	for i := range page {
		l := &page[i]
		events[i] = Event{
			Kind: EventRedrive, Intent: Intent{ID: l.ID}, Generation: l.Number, DeadLetterID: l.Number,
			After: j.after(j.Redriven+i, now), By: j.By, Note: j.Note,
		}
	}
	return events
}

func (j *Job) after(n int, now time.Time) time.Duration {
	if j.PerSecond < 0 {
		return 0
	}
	due := maxWait
	if seconds := float64(n) / j.PerSecond; seconds < maxWait.Seconds() {
		due = time.Duration(seconds * float64(time.Second)).Truncate(time.Microsecond)
	}
	passed := max(now.Sub(j.CreatedAt), 0) // the clock may have been set back
	return max(due-passed, 0)
}

// Advance counts the results of the events of a page of up to limit, and returns their
// changes. A short page is the last one.
func (j *Job) Advance(page []DeadLetter, results []Result, limit int, now time.Time) (changes []Change) {
	for i := range results {
		if results[i].Err != nil {
			j.Skipped++ // redriven, resolved or swept by others
			continue
		}
		j.Redriven++
		changes = append(changes, results[i].Change)
	}
	if len(page) > 0 {
		last := &page[len(page)-1]
		j.After = &DeadLetter{ID: last.ID, Number: last.Number, DeadAt: last.DeadAt}
	}
	if len(page) < limit {
		j.FinishedAt = stamp(now)
	}
	return changes
}

// Cancel ends the job, or returns what CancelJob returns.
func (j *Job) Cancel(by string, now time.Time) error {
	if by == "" {
		return invalidf("cancel a job: By is empty")
	}
	if !j.FinishedAt.IsZero() {
		return ErrInvalidState
	}
	j.FinishedAt, j.CanceledBy = stamp(now), fit(by, maxName)
	return nil
}

// Text returns the job as stores keep it, and JobOf reads it.
func (j Job) Text() string {
	text, _ := json.Marshal(j) //nolint:errchkjson // Opened has marshaled what can fail
	return string(text)
}

// JobOf reads Job.Text.
func JobOf(id int64, text string) (j Job, err error) {
	err = json.Unmarshal([]byte(text), &j)
	j.ID = JobID(strconv.FormatInt(id, 10))
	return j, err
}

// Number is the number that JobOf was given. ErrNotFound: it is none.
func (id JobID) Number() (int64, error) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0, ErrNotFound
	}
	return n, nil
}
