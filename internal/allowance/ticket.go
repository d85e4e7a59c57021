package allowance

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Ticket is the right to send one repetition. The zero Ticket is one that was not
// taken from anywhere.
type Ticket struct{ *taking }

type taking struct {
	from    *Allowance
	rule    *Rule
	over    bool // Done or Cancel was called; guarded by from.mu, as all of it
	open    open
	ofFloor bool // and not of the share
}

// open tells where the taking was counted.
type open struct {
	window, lately, floor window.Mark
	halves                uint64
}

// put counts the taking. The allowance is locked.
func (t *taking) put(at time.Duration, rule *Rule) {
	s := t.from.spent
	if t.ofFloor {
		t.open.floor = s.floor.Add(at, rule.Window, 1)
		return
	}
	t.open.halves = half
	if rule.Static {
		t.open.halves = whole
	}
	t.open.window = s.window.taken.Add(at, rule.Window, t.open.halves)
	t.open.lately = s.lately.taken.Add(at, rule.lately(), t.open.halves)
}

// undo takes the taking out of the counts. The allowance is locked.
func (t *taking) undo() {
	s := t.from.spent
	if t.ofFloor {
		s.floor.Undo(t.open.floor, 1)
		return
	}
	s.window.taken.Undo(t.open.window, t.open.halves)
	s.lately.taken.Undo(t.open.lately, t.open.halves)
}

// end reports whether the ticket was still out, and takes it in. The caller locks.
func (t Ticket) end() bool {
	if t.over {
		return false
	}
	t.over = true
	return true
}

// Done tells whether the repetition succeeded. A second call does nothing.
func (t Ticket) Done(succeeded bool, now time.Time) {
	if t.taking == nil || t.rule.Static {
		return
	}
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	if !t.end() {
		return
	}
	s, at := t.from.spent, now.Sub(t.rule.Origin)
	if succeeded {
		t.undo()
		s.window.earned.Add(at, t.rule.Window, whole)
		s.lately.earned.Add(at, t.rule.lately(), whole)
		return
	}
	if !t.ofFloor {
		// The other half, from now on: it may have been under way for long.
		s.window.taken.Add(at, t.rule.Window, whole-half)
		s.lately.taken.Add(at, t.rule.lately(), whole-half)
	}
}

// Cancel gives the ticket back: the repetition was not sent. It is taken off the
// time at which it was taken, so a ticket that comes back late makes no room for
// more than one. A second call does nothing.
func (t Ticket) Cancel() {
	if t.taking == nil {
		return
	}
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	if t.end() {
		t.undo()
	}
}
