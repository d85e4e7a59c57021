package durable

import "time"

// pulse tells whether a gateway answers. By core.mu.
type pulse struct {
	atWork   map[*attempt]struct{} // those whose senders it has
	answered time.Time             // the last time
	usual    time.Duration         // how long answers take on average
}

const (
	// fresh is how long an answer says that there will be more. Who ends wakes who claims,
	// so that a slow gateway's answer is fresh when its sender is given away again.
	fresh = time.Second

	// late is by how much an attempt takes longer than answers do, when it hangs; but
	// nothing hangs that is not at work for as long as an answer is fresh.
	late = 4
)

func (p *pulse) begin(a *attempt) {
	if p.atWork == nil {
		p.atWork = make(map[*attempt]struct{})
	}
	p.atWork[a] = struct{}{}
}

// end is of an attempt whose sender is free again.
func (p *pulse) end(a *attempt) { delete(p.atWork, a) }

// hear is of what came back. That the other side has a status for it is an answer, be it
// known or not what that means; what was not sent is none.
func (p *pulse) hear(outcome *Outcome, now time.Time, took time.Duration) {
	if outcome.Unsent() || outcome.Class == ClassUnknown && outcome.Status == 0 {
		return
	}
	if p.answered.IsZero() {
		p.usual = took
	}
	p.answered = now
	p.usual += (took - p.usual) / 8
}

// steady reports whether the gateway has just answered, and fewer than half of a share
// hang with it: it is often a part of a gateway that hangs.
func (p *pulse) steady(now time.Time, share int) bool {
	if p.answered.IsZero() || now.Sub(p.answered) > fresh {
		return false
	}
	hang := 0
	for a := range p.atWork {
		if now.Sub(a.asked) > max(fresh, late*p.usual) {
			hang++
		}
	}
	return 2*hang < max(share, 2)
}

// shares are how many senders each gateway may have now; nil: there is but one. One that
// answers may have all that Claim.Shares leaves it. core.mu is held.
func (c *core) shares() map[string]int {
	if len(c.routes) < 2 {
		return nil
	}
	now := time.Now()
	shares := make(map[string]int, len(c.routes))
	for name, route := range c.routes {
		shares[name] = c.PerGateway
		if route.pulse.steady(now, c.PerGateway) {
			shares[name] = c.Concurrency
		}
	}
	return shares
}
