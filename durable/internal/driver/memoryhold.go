package driver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// SetHold implements Store.
func (m *Memory) SetHold(ctx context.Context, hold Hold) error {
	if err := errors.Join(ctx.Err(), hold.Validate()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := stamp(time.Now())
	held := m.isHeld(hold.Gateway, now)
	if hold.ReleasedBy != "" {
		delete(m.holds, hold.Gateway)
		for _, wait := range m.waiting(now) {
			if wait.Gateway == hold.Gateway {
				delete(m.waits, wait.queue())
				held = true
			}
		}
		if !held {
			return ErrNotFound
		}
		return nil
	}
	if hold.Provider {
		m.wait(hold, now)
		return nil
	}
	if hold.Since, hold.Until = now, stamp(hold.Until); held {
		hold.Since = m.holds[hold.Gateway].Since
	}
	if m.holds == nil {
		m.holds = make(map[string]Hold)
	}
	m.holds[hold.Gateway] = hold
	return nil
}

// Holds implements Store.
func (m *Memory) Holds(ctx context.Context) ([]Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var holds []Hold
	for _, name := range m.held(time.Now()) {
		holds = append(holds, m.holds[name])
	}
	return append(holds, m.waiting(time.Now())...), nil
}

// wait stores a hold of the provider.
func (m *Memory) wait(hold Hold, now time.Time) {
	hold.Since, hold.Until = now, stamp(hold.Until)
	if before, ok := m.waits[hold.queue()]; ok && now.Before(before.Until) {
		if !before.Until.Before(hold.Until) {
			return
		}
		hold.Since = before.Since
	}
	if m.waits == nil {
		m.waits = make(map[QueueKey]Hold)
	}
	hold.ErrorType = ""
	m.waits[hold.queue()] = hold
}

// waiting returns the provider's holds that are in effect.
func (m *Memory) waiting(now time.Time) (holds []Hold) {
	for _, hold := range m.waits {
		if now.Before(hold.Until) {
			holds = append(holds, hold)
		}
	}
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Scope, b.Scope))
	})
	return holds
}

func (m *Memory) isHeld(gateway string, now time.Time) bool {
	hold, ok := m.holds[gateway]
	return ok && (hold.Until.IsZero() || now.Before(hold.Until))
}

// held returns the names of the gateways that are held.
func (m *Memory) held(now time.Time) (names []string) {
	for name := range m.holds {
		if m.isHeld(name, now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
