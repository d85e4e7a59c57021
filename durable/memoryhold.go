package durable

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// SetHold implements Store.
func (m *Memory) SetHold(ctx context.Context, hold Hold) error {
	_, err := locked(ctx, m, hold.Validate(), func(now time.Time) (none struct{}, _ error) {
		switch {
		case hold.ReleasedBy != "":
			return none, m.release(hold.Gateway, now)
		case hold.Provider:
			m.wait(hold, now)
		default:
			m.hold(hold, now)
		}
		return none, nil
	})
	return err
}

// release ends the holds of a gateway by a person and by the provider.
func (m *Memory) release(gateway string, now time.Time) error {
	held := m.isHeld(gateway, now)
	delete(m.holds, gateway)
	for _, wait := range m.waiting(now) {
		if wait.Gateway == gateway {
			delete(m.waits, wait.queue())
			held = true
		}
	}
	if !held {
		return ErrNotFound
	}
	return nil
}

// hold stores a hold of a person.
func (m *Memory) hold(hold Hold, now time.Time) {
	since := now
	if m.isHeld(hold.Gateway, now) {
		since = m.holds[hold.Gateway].Since
	}
	if m.holds == nil {
		m.holds = make(map[string]Hold)
	}
	hold.Since, hold.Until = since, stamp(hold.Until)
	m.holds[hold.Gateway] = hold
}

// Holds implements Store.
func (m *Memory) Holds(ctx context.Context) ([]Hold, error) {
	return locked(ctx, m, nil, func(now time.Time) (holds []Hold, _ error) {
		for _, name := range m.held(now) {
			holds = append(holds, m.holds[name])
		}
		return append(holds, m.waiting(now)...), nil
	})
}

// wait stores a hold of the provider.
func (m *Memory) wait(hold Hold, now time.Time) {
	hold.Since, hold.Until = now, stamp(hold.WaitUntil(now))
	if before, ok := m.waits[hold.queue()]; ok && before.waits(now) {
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
		if hold.waits(now) {
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
