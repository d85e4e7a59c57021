package durable

import (
	"math/rand/v2"
	"time"
)

// Declines is a Policy that repeats some declines, by their code. Schedule decides about the
// rest. The zero value repeats no decline. It is safe for concurrent use. ByCode must not be
// changed after the first use.
type Declines struct {
	Schedule

	// ByCode are the rules by Outcome.Code. Default is the rule of other codes.
	ByCode  map[string]Rule
	Default Rule
}

// Rule says when to repeat a decline. The zero Rule never does.
type Rule struct {
	// Never makes a dead letter at once, whatever After says.
	Never bool

	// After are the waits after the first decline, the second and so on. The last one is
	// repeated until the Schedule's MaxAttempts and MaxAge. Up to a tenth is added to each
	// at random.
	After []time.Duration
}

var _ Policy = Declines{}

// Next implements Policy.
func (p Declines) Next(h *History, now time.Time) Decision {
	if h.InDoubt || h.Outcome.Class != ClassDeclined {
		return p.Schedule.Next(h, now)
	}
	rule, ok := p.ByCode[h.Outcome.Code]
	if !ok {
		rule = p.Default
	}
	if rule.Never || len(rule.After) == 0 {
		return Decision{Action: Bury, Reason: ReasonDeclined}
	}
	wait := min(max(rule.After[min(max(h.Declines, 1), len(rule.After))-1], 0), maxWait)
	if h.Outcome.NotBefore.After(now) {
		now = h.Outcome.NotBefore
	}
	at := now.Add(wait + rand.N(wait/10+1))
	if p.declined(h) || p.old(h, at) {
		return p.exhausted(h)
	}
	return Decision{Action: Retry, At: at}
}

// CardDeclines returns the Policy for card payments. Outcome.Code must be Mastercard's merchant
// advice code. The Policy repeats 24 to 30 after 1 h, 24 h, and 2, 4, 6, 8 and 10 days. It never
// repeats 03 (do not try again), 21 (canceled by the cardholder) and others. The limit is 15
// declines in 30 days, as Visa allows (Mastercard: 35).
//
// Add your own codes to ByCode, such as 02 ("try again later"), for which providers recommend
// 72 h.
func CardDeclines() Declines {
	// Sources, as read in 2026: the codes and waits,
	// https://developer.paypal.com/braintree/docs/reference/general/merchant-responses/merchant-advice-codes
	// and
	// https://docs.everonet.com/en-us/gateway/developer-portal/appendix/mastercard-merchant-advice-code;
	// no code, no repetition,
	// https://developer.cybersource.com/docs/cybs/en-us/api-fields/reference/all/so/api-fields/cc-auth-reply-merchant-advice-code.html;
	// the limits,
	// https://support.peachpayments.com/support/solutions/articles/47001248617-payment-excellence-best-practices-excessive-attempts-guidelines.
	const day = 24 * time.Hour
	after := func(d time.Duration) Rule { return Rule{After: []time.Duration{d}} }
	return Declines{
		Schedule: Schedule{MaxAttempts: 15, MaxAge: 30 * day},
		ByCode: map[string]Rule{
			"03": {Never: true},
			"21": {Never: true},
			"24": after(time.Hour),
			"25": after(day),
			"26": after(2 * day),
			"27": after(4 * day),
			"28": after(6 * day),
			"29": after(8 * day),
			"30": after(10 * day),
		},
		Default: Rule{Never: true},
	}
}
