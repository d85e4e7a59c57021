package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// SetHold implements driver.Store.
func (s *Store) SetHold(ctx context.Context, hold driver.Hold) error {
	if err := hold.Validate(); err != nil {
		return err
	}
	if hold.Provider {
		return s.wait(ctx, &hold)
	}
	if hold.ReleasedBy == "" {
		args := []any{hold.Gateway, timestamp(hold.Until), hold.By, hold.Note}
		return s.send(ctx, &pgkit.Statement{Text: s.is.hold, Args: args})
	}
	released := false
	err := s.send(ctx, &pgkit.Statement{
		Text: s.is.release, Args: []any{hold.Gateway, hold.ReleasedBy}, Scan: func(from pgkit.Row) error { return from.Scan(&released) },
	})
	if err == nil && !released {
		err = driver.ErrNotFound
	}
	if err == nil {
		s.notify(ctx)
	}
	return err
}

// Holds implements driver.Store.
func (s *Store) Holds(ctx context.Context) (holds []driver.Hold, err error) {
	err = s.ask(ctx, func() *pgkit.Statement {
		holds = nil // anew for each try
		return &pgkit.Statement{Text: s.is.holds, Scan: func(from pgkit.Row) error {
			var (
				h     driver.Hold
				until *time.Time
			)
			err := from.Scan(&h.Gateway, &h.Since, &until, &h.By, &h.Note)
			h.Since, h.Until = h.Since.UTC(), orNone(until)
			holds = append(holds, h)
			return err
		}}
	})
	if err != nil {
		return nil, err
	}
	var waits []driver.Hold
	err = s.ask(ctx, func() *pgkit.Statement {
		waits = nil
		return s.is.readWaits(&waits)
	})
	return append(holds, waits...), err
}

// wait stores a hold of the provider.
func (s *Store) wait(ctx context.Context, hold *driver.Hold) error {
	args := []any{hold.Gateway, hold.Scope, timestamp(hold.Until), hold.Note}
	if err := s.send(ctx, &pgkit.Statement{Text: s.is.wait, Args: args}); err != nil {
		return err
	}
	return s.send(ctx, &pgkit.Statement{Text: s.is.forgetWaits})
}

// readWaits reads the provider's holds that are in effect.
func (is *statements) readWaits(holds *[]driver.Hold) *pgkit.Statement {
	return &pgkit.Statement{Text: is.waits, Scan: func(from pgkit.Row) error {
		h := driver.Hold{Provider: true}
		err := from.Scan(&h.Gateway, &h.Scope, &h.Since, &h.Until, &h.Note)
		h.Since, h.Until = h.Since.UTC(), h.Until.UTC()
		*holds = append(*holds, h)
		return err
	}}
}
