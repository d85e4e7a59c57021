package durable

import (
	"cmp"
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// aloneTurn is the turn of a Suspect: sending it may kill the process, with all that the Engine has
// in flight. First the Engine claims nothing until what it holds is over. Then it claims the Suspect
// alone, and nothing else until that is over. The next claim is of other intents again, so that many
// Suspects do not keep them waiting. core.mu guards it.
type aloneTurn struct {
	session *session  // claims the Suspect; nil: there is no turn
	claimed bool      // the Suspect is in flight
	until   time.Time // the end of the wait or of the send: without a Timeout, some sends never end
}

// aloneInterval is how often WorkOne looks whether its turn has come.
const aloneInterval = 10 * time.Millisecond

// mayClaim reports whether the session may claim now, and whether it may claim only a Suspect, alone.
// core.mu is held.
func (c *core) mayClaim(s *session, now time.Time) (may, alone bool) {
	turn := &c.alone
	over := !now.Before(turn.until)
	switch {
	case turn.session == nil:
		return true, false
	case turn.session == s && !turn.claimed:
		return over || c.holdsNothing(), true
	default:
		return over, false
	}
}

// holdsNothing reports whether a kill of the process would lose nothing. An attempt does not count if
// its outcome is stored, even if its Gateway has not returned. core.mu is held.
func (c *core) holdsNothing() bool {
	for _, w := range c.workers {
		if w.holds > 0 {
			return false
		}
	}
	return true
}

// noticeSuspect begins, continues or ends a turn after a claim of the session. alone says what was
// claimed, suspect that one waits, and claimed that an attempt begins. core.mu is held.
func (c *core) noticeSuspect(s *session, alone, suspect, claimed bool, now time.Time) {
	until := now.Add(cmp.Or(max(c.Timeout, 0), defaultTimeout) + c.LeaseDuration)
	switch {
	case alone && claimed:
		c.alone = aloneTurn{session: s, claimed: true, until: until}
	case alone:
		c.endTurn(s)
	case suspect && c.alone.session == nil:
		c.alone = aloneTurn{session: s, until: until}
	}
}

// endTurn ends the turn of a session. core.mu is held.
func (c *core) endTurn(s *session) {
	if c.alone.session == s {
		c.alone = aloneTurn{}
	}
}

// waitsAlone reports whether the session waits to claim a Suspect.
func (c *core) waitsAlone(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alone.session == s && !c.alone.claimed
}

// claimID claims an intent. A Suspect waits until the Engine holds nothing else.
func (c *core) claimID(ctx context.Context, s *session, claim func() error) error {
	err := claim()
	for err == nil && c.waitsAlone(s) {
		if err = sleep.Context(ctx, aloneInterval); err == nil {
			err = claim()
		}
	}
	return err
}
