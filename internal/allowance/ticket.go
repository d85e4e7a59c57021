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
	over    bool   // Done or Cancel was called; guarded by from.mu, as all of it
	ofFloor bool   // and not of the share
	halves  uint64 // that it counts for while it is open

	window, lately, floor window.Mark // where it was counted
}

// put counts the taking. The allowance is locked.
func (t *taking) put(at time.Duration) {
	s := t.from.spent
	if t.ofFloor {
		t.floor = s.floor.Add(at, t.rule.Window, t.halves)
		return
	}
	t.window = s.window.taken.Add(at, t.rule.Window, t.halves)
	t.lately = s.lately.taken.Add(at, t.rule.lately(), t.halves)
}

// undo takes the taking out of the counts. The allowance is locked.
func (t *taking) undo() {
	s := t.from.spent
	if t.ofFloor {
		s.floor.Undo(t.floor, t.halves)
		return
	}
	s.window.taken.Undo(t.window, t.halves)
	s.lately.taken.Undo(t.lately, t.halves)
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
	t.undo()
	s, at := t.from.spent, now.Sub(t.rule.Origin)
	if succeeded {
		s.window.earned.Add(at, t.rule.Window, whole)
		s.lately.earned.Add(at, t.rule.lately(), whole)
		return
	}
	t.halves = max(t.halves, whole)
	t.put(at)
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
