package durable

import (
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
)

// Declines is a Policy for refusals that are not all for good: it looks at the code.
// All else is the Schedule's. The zero value buries every refusal. It is safe for
// concurrent use; ByCode must not be changed any more.
type Declines struct {
	Schedule

	// ByCode is what to do by Outcome.Code, and Default what to do where that is not in
	// it.
	ByCode  map[string]Rule
	Default Rule
}

// Rule is what to do about a refusal. The zero Rule never tries again.
type Rule struct {
	// Never: it is buried at once, whatever After says.
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
	wait := min(max(rule.After[min(max(h.Declines, 1), len(rule.After))-1], 0), driver.MaxWait)
	if h.Outcome.NotBefore.After(now) {
		now = h.Outcome.NotBefore
	}
	at := now.Add(wait + rand.N(wait/10+1))
	if p.declined(h) || p.old(h, at) {
		return p.exhausted(h)
	}
	return Decision{Action: Retry, At: at}
}

// CardDeclines is the Policy for payments by card whose Outcome.Code is Mastercard's
// merchant advice code: 24 to 30 are tried again after 1 h, 24 h, and 2, 4, 6, 8 and
// 10 days; 03 (do not try again) and 21 (the cardholder has cancelled) never are, nor
// is anything else: what bears no such code is not to be repeated by itself. 15
// attempts at most, within 30 days, which is what Visa allows (Mastercard: 35).
//
// Add codes of your own to ByCode, such as 02 ("try again later"), for which providers
// recommend 72 h.
//
// Sources, as read in 2026: the codes and their waits,
// https://developer.paypal.com/braintree/docs/reference/general/merchant-responses/merchant-advice-codes
// and https://docs.everonet.com/en-us/gateway/developer-portal/appendix/mastercard-merchant-advice-code;
// that what bears no code is not repeated,
// https://developer.cybersource.com/docs/cybs/en-us/api-fields/reference/all/so/api-fields/cc-auth-reply-merchant-advice-code.html;
// the numbers of attempts,
// https://support.peachpayments.com/support/solutions/articles/47001248617-payment-excellence-best-practices-excessive-attempts-guidelines.
func CardDeclines() Declines {
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
