package durable

import (
	"cmp"
	"context"
	"time"
)

// Redrive is how dead letters are redriven.
type Redrive struct {
	// By and Note are the person and the reason. They are stored with each dead letter, and
	// may be empty.
	By, Note string

	// PerSecond is the number of intents that become due in each second. Zero means 10. A negative
	// number means all at once.
	PerSecond float64

	// SeenAt is the time at which the person looked, by the store's clock (Stats.Now). Younger
	// dead letters are left out. Zero means the time at which Redrive is called.
	SeenAt time.Time
}

const defaultPerSecond = 10

// Redrive redrives the dead letters that the filter selects, in the background: it adds a Job,
// which Run and Work of any process execute. See Jobs and CancelJob. An equal request joins an
// open job. The filter's States, NewestFirst and IncludeResolved have no effect.
//
// An intent in doubt is sent under the same key while the key protects, and queried after that.
// If neither is possible it is dead again: see Resolve. After a decline its key is new. Attempts
// and age count anew, and a Deadline that has passed is removed. Dead letters that were redriven
// or resolved meanwhile are skipped. ErrInvalid: the filter or PerSecond is invalid.
func (e *Engine) Redrive(ctx context.Context, filter Filter, how Redrive) (JobID, error) {
	c, err := e.start()
	if err != nil {
		return "", err
	}
	if until := how.SeenAt.Add(time.Microsecond); !how.SeenAt.IsZero() && (filter.Until.IsZero() || until.Before(filter.Until)) {
		filter.Until = until
	}
	job, err := c.Store.AddJob(ctx, Job{
		Filter: filter, By: how.By, Note: how.Note, PerSecond: cmp.Or(how.PerSecond, defaultPerSecond),
	})
	return job.ID, err
}

// RedriveOne redrives one dead intent at once, if it is still as the person saw it.
// how.PerSecond and SeenAt have no effect. It returns ErrStale if the intent has
// changed since, ErrInvalidState if it was not dead, and ErrNotFound.
func (e *Engine) RedriveOne(ctx context.Context, seen Seen, how Redrive) error {
	event := seen.Event(EventRedrive)
	event.By, event.Note = how.By, how.Note
	return e.decideSeen(ctx, seen, event)
}

// Resolve notes a person's decision about an intent that is unknown or dead. ClassSucceeded
// means that the work was done. Any other class except ClassUnknown means that it was not done:
// an unknown intent is sent again under a new key; a dead one stays dead, as declined, and may
// be redriven or enqueued with another payload. by is the person, and must not be empty.
// ErrStale: the intent has changed since the person saw it. ErrInvalidState: it was neither
// unknown nor dead. ErrNotFound: there is none.
func (e *Engine) Resolve(ctx context.Context, seen Seen, outcome Outcome, by string) error {
	event := seen.Event(EventResolve)
	event.Outcome, event.By = outcome, by
	return e.decideSeen(ctx, seen, event)
}

// decideSeen is decide about what a person saw. The intent may be due then.
func (e *Engine) decideSeen(ctx context.Context, seen Seen, event Event) error {
	if err := seen.Validate(); err != nil {
		return err
	}
	err := e.decide(ctx, event)
	if err == nil {
		e.Wake()
	}
	return err
}

// Jobs lists the newest jobs first, at most a hundred.
func (e *Engine) Jobs(ctx context.Context) ([]Job, error) {
	return ask(e, func(s Store) ([]Job, error) { return s.Jobs(ctx, 100) })
}

// CancelJob ends a job that is not finished. What it has redriven stays so. ErrNotFound:
// there is no such job. ErrInvalidState: it has ended. ErrInvalid: by is empty.
func (e *Engine) CancelJob(ctx context.Context, id JobID, by string) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	return c.Store.CancelJob(ctx, id, by)
}

// jobPage is the number of dead letters that are redriven in one commit, between two claims.
const jobPage = 200

// workJob works a page of a job, and reports whether there may be more.
func (c *core) workJob(ctx context.Context) bool {
	var changes []Change
	job, err := bounded(ctx, c, func(ctx context.Context) (job Job, err error) {
		job, changes, err = c.Store.WorkJob(ctx, jobPage)
		return job, err
	})
	c.report(ctx, changes, err)
	return err == nil && job.ID != ""
}
