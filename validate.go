package resilienthttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/complaint"
	"github.com/resilienthttp/resilienthttp/internal/hosts"
	"github.com/resilienthttp/resilienthttp/internal/netfail"
)

// Validate tells what is wrong with the configuration, all of it and each by the name of
// its field, or returns nil: call it when a program starts. Without it, each call fails
// with the same error before anything is sent. It changes nothing, and does not count as
// a use: fields may still be set after it. It must not run beside what sets them.
//
// Wrong is what cannot work, and what nobody can mean: a time between a nanosecond and a
// microsecond, whose unit was forgotten (a single nanosecond is the least there is, and
// may be meant); a percentage where there is to be a share, up to 100; a method in lower
// case; a Deadline.Margin that leaves an attempt no time; an Idempotency.MaxLength that is
// too short for the keys that are made. All other numbers mean something: each field says
// what, also when it is negative, NaN or large.
func (t *Transport) Validate() error {
	c := complaints{complaint.List{Of: netfail.ErrMisconfigured}}
	c.headers(t)
	c.base(t)
	p, d := &t.Policy, t.Deadline.withDefaults()
	c.Unit("Policy.AttemptTimeout", p.AttemptTimeout)
	c.Unit("Policy.ReadTimeout", p.ReadTimeout)
	c.Unit("Policy.MaxRetryAfter", p.MaxRetryAfter)
	c.Unit("Deadline.Margin", d.Margin)
	c.Unit("Deadline.Max", d.Max)
	c.Add(!d.Off && p.AttemptTimeout > 0 && d.Margin >= p.AttemptTimeout, "Deadline.Margin leaves nothing of Policy.AttemptTimeout")
	if a := p.Adaptive; a != nil {
		c.Unit("Policy.Adaptive.Min", a.Min)
		c.Share("Policy.Adaptive.Quantile", a.Quantile)
		c.Add(a.Multiple > 0 && a.Multiple < 1, fmt.Sprintf("Policy.Adaptive.Multiple is %v: what is usual takes longer than a part of the Quantile", a.Multiple))
	}
	if l := t.RateLimit; l != nil {
		c.Unit("RateLimit.MaxWait", l.MaxWait)
		c.Unit("RateLimit.MaxClosed", l.MaxClosed)
	}
	if b := t.Breaker; b != nil {
		c.Unit("Breaker.Window", b.Window)
		c.Unit("Breaker.Cooldown", b.Cooldown)
		c.Unit("Breaker.MaxCooldown", b.MaxCooldown)
		c.Share("Breaker.FailureRatio", b.FailureRatio)
	}
	if h := t.Hedge; h != nil {
		c.Unit("Hedge.Delay", h.Delay)
		c.Share("Hedge.Quantile", h.Quantile)
	}
	return c.Err()
}

// complaints are what is wrong with a Transport.
type complaints struct{ complaint.List }

// headers complains of names.
func (c *complaints) headers(t *Transport) {
	i, d := t.Idempotency.withDefaults(), t.Deadline.withDefaults()
	c.Header("Idempotency.Header", i.Header)
	c.Header("Deadline.Header", d.Header)
	c.Add(i.Header == d.Header, "Idempotency.Header and Deadline.Header are the same")
	for _, ours := range [...]string{timeoutHeader, retryOwnerHeader} {
		c.Add(i.Header == ours || d.Header == ours, "Idempotency.Header or Deadline.Header is "+ours+", which is sent already")
	}
	c.Add(t.Idempotency.MaxLength < 0, "Idempotency.MaxLength is negative")
	c.Add(t.Idempotency.tooShortForKeys(), fmt.Sprintf(
		"Idempotency.MaxLength is %d, and the keys that are made while NewKey is nil have %d characters", t.Idempotency.MaxLength, generatedLength))
	for _, pattern := range i.Hosts {
		if err := hosts.Check(pattern); err != nil {
			c.Add(true, "Idempotency.Hosts "+err.Error())
		}
	}
	for _, method := range i.Methods {
		c.Add(!complaint.Token(method), "Idempotency.Methods has one that is no method")
		upper := strings.ToUpper(method)
		c.Add(upper != method && slices.Contains(usualMethods, upper), "Idempotency.Methods has "+method+": methods are told apart by case, and it is "+upper)
	}
}

var usualMethods = []string{ //nolint:gochecknoglobals // never written to
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func (c *complaints) base(t *Transport) {
	c.Add(t.Base == http.RoundTripper(t), "Base is the Transport itself")
	switch base := t.Base.(type) {
	case *http.Transport:
		c.Add(base == nil, "Base is an *http.Transport that is nil")
	case *Transport:
		c.Add(base == nil, "Base is a *Transport that is nil")
	}
}
