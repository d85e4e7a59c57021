package durable

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
)

// letterPage is how many letters are read, and redriven, at once.
const letterPage = 200

// letters goes through the letters page by page.
func (c *core) letters(ctx context.Context, filter Filter) iter.Seq2[[]DeadLetter, error] {
	return func(yield func([]DeadLetter, error) bool) {
		var after *DeadLetter
		for {
			page, err := c.Store.DeadLetters(ctx, filter, after, letterPage)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) > 0 {
				last := page[len(page)-1]
				after = &last
				if !yield(page, nil) {
					return
				}
			}
			if len(page) < letterPage {
				return
			}
		}
	}
}

// Redrive is how dead letters are brought back. The zero value brings them back at 10 a
// second.
type Redrive struct {
	// By and Note are recorded with each letter: who, and why. Nobody need be named, as
	// where a program redrives by itself: then its Letter.By is empty, and RedrivenAt
	// alone says that it was dealt with.
	By, Note string

	// PerSecond is how many become due in each second. 0: 10; negative: all at once.
	PerSecond float64

	// SeenAt is when the person looked, by the store's clock (Stats.Now). Letters that
	// are younger are left out. Zero: when Redrive begins.
	SeenAt time.Time

	// DryRun changes nothing.
	DryRun bool
}

const defaultPerSecond = 10

// Redrive brings back what is dead, as the filter chooses, and returns how many these
// were; with DryRun, how many it would be. It sends nothing itself.
//
// Where nobody knows whether an intent was done it goes on under the same key while that
// protects, then asks, and dies again where neither can be done: only Resolve helps. After
// a refusal its key is new. Attempts and age count anew, and a Deadline that has passed
// is forgotten. What dies while Redrive runs is left dead, and what several redrive at
// once is redriven once. After an error it has done what the number says; doing it again
// is safe.
func (e *Engine) Redrive(ctx context.Context, filter Filter, how Redrive) (int, error) {
	c, err := e.start()
	if err != nil {
		return 0, err
	}
	if until := how.SeenAt.Add(time.Microsecond); !how.SeenAt.IsZero() && (filter.Until.IsZero() || until.Before(filter.Until)) {
		filter.Until = until
	}
	done := 0
	for page, err := range c.deadByNow(ctx, filter) {
		if err != nil {
			return done, err
		}
		if how.DryRun {
			done += len(page)
			continue
		}
		n, err := c.redrive(ctx, page, &how, done)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// RedriveOne redrives one dead intent at once, if it is still as the person saw it.
// how.PerSecond, SeenAt and DryRun have no effect. It returns ErrStale if the intent has
// changed since, ErrInvalidState if it was not dead, and ErrNotFound.
func (e *Engine) RedriveOne(ctx context.Context, seen Seen, how Redrive) error {
	c, err := e.start()
	if err == nil {
		err = seen.Validate()
	}
	if err != nil {
		return err
	}
	event := seen.Event(driver.EventRedrive)
	event.By, event.Note = how.By, how.Note
	_, err = c.apply(ctx, event)
	if err == nil {
		c.wakeUp()
	}
	return err
}

// deadByNow goes through the open letters that there are, and not through those that are
// written while it does. Of this very instant, which is not over, it reads the letters
// first.
func (c *core) deadByNow(ctx context.Context, filter Filter) iter.Seq2[[]DeadLetter, error] {
	return func(yield func([]DeadLetter, error) bool) {
		now, err := c.now(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		filter.IncludeResolved = false
		var latest []DeadLetter
		if end := now.Add(time.Microsecond); filter.Until.IsZero() || !filter.Until.Before(end) {
			instant := filter
			instant.Until = end
			if filter.From.Before(now) {
				instant.From = now
			}
			for page, err := range c.letters(ctx, instant) {
				if err != nil {
					yield(nil, err)
					return
				}
				latest = append(latest, page...)
			}
			filter.Until = now
		}
		for page, err := range c.letters(ctx, filter) {
			if !yield(page, err) || err != nil {
				return
			}
		}
		for page := range slices.Chunk(latest, letterPage) {
			if !yield(page, nil) {
				return
			}
		}
	}
}

// redrive brings a page back, after so many before it.
func (c *core) redrive(ctx context.Context, page []DeadLetter, how *Redrive, before int) (int, error) {
	events := make([]driver.Event, len(page))
	for i := range page {
		events[i] = driver.Event{
			Kind: driver.EventRedrive, Intent: Intent{ID: page[i].ID}, Generation: page[i].Number, DeadLetterID: page[i].Number,
			After: how.after(before + i), By: how.By, Note: how.Note,
		}
	}
	results, err := c.applyAll(ctx, events)
	if err != nil {
		return 0, err
	}
	done := 0
	for i := range results {
		switch err := results[i].Err; {
		case err == nil:
			done++
		case !errors.Is(err, ErrInvalidState) && !errors.Is(err, ErrStale) && !errors.Is(err, ErrNotFound):
			return done, err
		}
	}
	if done > 0 {
		c.wakeUp()
	}
	return done, nil
}

// after is when the n-th is due.
func (r *Redrive) after(n int) time.Duration {
	rate := cmp.Or(r.PerSecond, defaultPerSecond)
	if rate < 0 || math.IsNaN(rate) {
		return 0
	}
	seconds := float64(n) / rate
	if seconds > driver.MaxWait.Seconds() {
		return driver.MaxWait
	}
	return time.Duration(seconds * float64(time.Second))
}

// now is the store's time: that of a worker that comes and goes.
func (c *core) now(ctx context.Context) (time.Time, error) {
	return c.Store.Heartbeat(ctx, "clock "+rand.Text(), 0)
}

// Resolve takes a person's word for what became of an intent that is unknown or dead:
// ClassSucceeded, with its Reference, and it is done; any other class but ClassUnknown,
// and it was surely not done: an unknown one is sent again under a new key, a dead one
// stays dead, as refused, and may be redriven or enqueued again with another payload. The
// journal keeps it with by, which must not be empty. It returns ErrStale, and changes
// nothing, if the intent is not as the person saw it any more; ErrInvalidState if it was
// neither unknown nor dead; and ErrNotFound.
func (e *Engine) Resolve(ctx context.Context, seen Seen, outcome Outcome, by string) error {
	c, err := e.start()
	if err == nil {
		err = seen.Validate()
	}
	if err != nil {
		return err
	}
	event := seen.Event(driver.EventResolve)
	event.Outcome, event.By = outcome, by
	_, err = c.apply(ctx, event)
	if err == nil {
		c.wakeUp()
	}
	return err
}
