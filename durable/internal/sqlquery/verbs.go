package sqlquery

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Session runs statements.
type Session interface {
	// Query runs a statement, and calls scan for each row. A zero time in args is NULL.
	Query(ctx context.Context, text string, args []any, scan func(Row) error) error
}

// Transaction is a transaction of the store.
type Transaction interface {
	Session

	// Now returns the database's time.
	Now(ctx context.Context) (time.Time, error)

	// Apply is that of durable.Store, in the transaction.
	Apply(ctx context.Context, events []durable.Event) ([]durable.Result, error)

	// Reap is that of durable.Store, in the transaction.
	Reap(ctx context.Context, limit int) ([]durable.Change, error)
}

// Database is where a store keeps its tables. Its methods call their argument again after an error that passes.
type Database interface {
	// Read reads without a transaction.
	Read(ctx context.Context, read func(context.Context, Session) error) error

	// List reads rows of an index with one statement.
	List(ctx context.Context, read func(context.Context, Session) error) error

	// Write commits if write returns nil.
	Write(ctx context.Context, write func(context.Context, Transaction) error) error

	// Key returns the arguments of {{id}}.
	Key(id idempotency.ID) []any
}

// Verbs are the verbs of durable.Store that are the same in each database.
type Verbs struct{ db Database }

// On returns the verbs of a store.
func On(db Database) Verbs { return Verbs{db} }

// reading is Read or List of a Database.
type reading func(ctx context.Context, read func(context.Context, Session) error) error

// collect reads all rows of a statement.
func collect[T any](ctx context.Context, in reading, text string, args []any, scan func(Row, *T) error) (all []T, err error) {
	err = in(ctx, func(ctx context.Context, s Session) (err error) {
		all, err = rowsOf(ctx, s, text, args, scan)
		return err
	})
	return all, err
}

func rowsOf[T any](ctx context.Context, s Session, text string, args []any, scan func(Row, *T) error) (all []T, err error) {
	err = s.Query(ctx, text, args, func(from Row) error {
		var row T
		err := scan(from, &row)
		all = append(all, row)
		return err
	})
	return all, err
}

// Exists reports whether there is anything to do, without a lock.
func Exists(ctx context.Context, db Database, text string, args ...any) (bool, error) {
	found, err := collect(ctx, db.Read, text, args, func(from Row, to *bool) error { return from.Scan(to) })
	return err == nil && found[0], err
}

// Reap implements durable.Store. It reads first, without a lock: usually no lease is over.
func (v Verbs) Reap(ctx context.Context, limit int) (changes []durable.Change, err error) {
	found, err := Exists(ctx, v.db, findLost)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	err = v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		changes, err = t.Reap(ctx, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes, nil
}

// Rebase implements durable.Store.
func (v Verbs) Rebase(ctx context.Context, limit int) (n int, err error) {
	err = v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		n = 0 // anew for each try
		return t.Query(ctx, rebase, []any{limit}, func(Row) error {
			n++
			return nil
		})
	})
	return n, err
}

// Find implements durable.Store.
func (v Verbs) Find(ctx context.Context, id idempotency.ID) (durable.Record, error) {
	if err := durable.ValidID(id); err != nil {
		return durable.Record{}, err
	}
	found, err := collect(ctx, v.db.Read, find(), v.db.Key(id), func(from Row, r *durable.Record) error {
		return Scan(from, IntentColumns, r, &r.Payload, &r.Result)
	})
	if err == nil && len(found) == 0 {
		err = durable.ErrNotFound
	}
	if err != nil {
		return durable.Record{}, err
	}
	return found[0], nil
}

// Attempts implements durable.Store.
func (v Verbs) Attempts(ctx context.Context, id idempotency.ID) ([]durable.Attempt, error) {
	if err := durable.ValidID(id); err != nil {
		return nil, err
	}
	all, err := collect(ctx, v.db.Read, journal(), v.db.Key(id), func(from Row, a *durable.Attempt) error { return Scan(from, AttemptColumns, a) })
	if err == nil && len(all) == 0 {
		err = durable.ErrNotFound
	}
	all = slices.DeleteFunc(all, func(a durable.Attempt) bool { return a.Generation == 0 })
	if len(all) == 0 {
		return nil, err
	}
	slices.SortFunc(all, func(a, b durable.Attempt) int { return cmp.Compare(a.Generation, b.Generation) })
	return all, err
}

// DeadLetters implements durable.Store.
func (v Verbs) DeadLetters(ctx context.Context, filter durable.Filter, after *durable.DeadLetter, limit int) ([]durable.DeadLetter, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	text, args := DeadLetters(&filter, after, limit)
	return collect(ctx, v.db.List, text, args, scanLetter)
}

func scanLetter(from Row, l *durable.DeadLetter) error {
	return Scan(from, LetterColumns, l, &l.ID.Scope, &l.ID.Operation, &l.ID.Key)
}

// Intents implements durable.Store.
func (v Verbs) Intents(ctx context.Context, filter durable.Filter, after *durable.Record, limit int) ([]durable.Record, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	text, args := PageOfIntents(&filter, after, limit)
	return collect(ctx, v.db.List, text, args, func(from Row, r *durable.Record) error { return Scan(from, IntentColumns, r) })
}

// Counts implements durable.Store.
func (v Verbs) Counts(ctx context.Context, states []durable.State) ([]durable.Count, error) {
	filter := durable.Filter{States: states}
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	counts, err := collect(ctx, v.db.List, Counts(states), nil, func(from Row, c *durable.Count) error {
		return from.Scan(&c.State, &c.Gateway, &c.Scope, &c.N)
	})
	slices.SortFunc(counts, durable.Count.Compare)
	return counts, err
}

// Stats implements durable.Store.
func (v Verbs) Stats(ctx context.Context) (all durable.Stats, err error) {
	err = v.db.Read(ctx, func(ctx context.Context, s Session) error {
		all = durable.Stats{States: make(map[durable.State]int)}
		return s.Query(ctx, stats, nil, func(from Row) error {
			var (
				state, n, due int
				at            time.Time
			)
			err := from.Scan(&state, &n, &due, moment{&at})
			addState(&all, state, n, due, at)
			return err
		})
	})
	return all, err
}

// addState adds a row of the statement stats.
func addState(all *durable.Stats, state, n, due int, at time.Time) {
	switch {
	case state == -2:
		all.DeadInDoubt = n
		return
	case state < 0:
		all.Workers, all.Now = n, at
		return
	case due > 0 && (all.Oldest.IsZero() || at.Before(all.Oldest)):
		all.Oldest = at
	}
	all.Due += due
	all.States[durable.State(state)] += n
}

// Holds implements durable.Store.
func (v Verbs) Holds(ctx context.Context) ([]durable.Hold, error) {
	holds, err := collect(ctx, v.db.Read, currentHolds, nil, func(from Row, h *durable.Hold) error {
		return from.Scan(&h.Gateway, moment{&h.Since}, moment{&h.Until}, &h.By, &h.Note)
	})
	if err != nil {
		return nil, err
	}
	waits, err := collect(ctx, v.db.Read, CurrentWaits, nil, scanWait)
	return append(holds, waits...), err
}

func scanWait(from Row, h *durable.Hold) error {
	h.Provider = true
	return from.Scan(&h.Gateway, &h.Scope, moment{&h.Since}, moment{&h.Until}, &h.Note)
}

// ReadWaits reads the providers' holds that are in effect.
func ReadWaits(ctx context.Context, s Session) ([]durable.Hold, error) {
	return rowsOf(ctx, s, CurrentWaits, nil, scanWait)
}

// forgetAfter is how long the row of a provider's hold stays after its end.
const forgetAfter = 24 * time.Hour

// SetHold implements durable.Store.
func (v Verbs) SetHold(ctx context.Context, hold durable.Hold) error {
	if err := hold.Validate(); err != nil {
		return err
	}
	return v.db.Write(ctx, func(ctx context.Context, t Transaction) error {
		switch {
		case hold.Provider:
			now, err := t.Now(ctx)
			if err != nil {
				return err
			}
			if err := t.Query(ctx, forgetWaits, []any{now.Add(-forgetAfter)}, nil); err != nil {
				return err
			}
			return t.Query(ctx, setWait, []any{hold.Gateway, hold.Scope, now, hold.WaitUntil(now), hold.Note}, nil)
		case hold.ReleasedBy == "":
			return t.Query(ctx, setHold, []any{hold.Gateway, hold.Until, hold.By, hold.Note}, nil)
		default:
			return release(ctx, t, &hold)
		}
	})
}

// release ends the holds of a gateway by a person and by the provider.
func release(ctx context.Context, t Transaction, hold *durable.Hold) error {
	released := 0
	count := func(Row) error {
		released++
		return nil
	}
	if err := t.Query(ctx, releaseHold, []any{hold.Gateway, hold.ReleasedBy}, count); err != nil {
		return err
	}
	err := t.Query(ctx, releaseWaits, []any{hold.Gateway}, count)
	if err == nil && released == 0 {
		err = durable.ErrNotFound
	}
	return err
}
