package resilienthttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

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
	var c complaints
	c.headers(t)
	c.base(t)
	p, d := &t.Policy, t.Deadline.withDefaults()
	c.unit("Policy.AttemptTimeout", p.AttemptTimeout)
	c.unit("Policy.ReadTimeout", p.ReadTimeout)
	c.unit("Policy.MaxRetryAfter", p.MaxRetryAfter)
	c.unit("Deadline.Margin", d.Margin)
	c.unit("Deadline.Max", d.Max)
	c.add(!d.Off && p.AttemptTimeout > 0 && d.Margin >= p.AttemptTimeout, "Deadline.Margin leaves nothing of Policy.AttemptTimeout")
	if a := p.Adaptive; a != nil {
		c.unit("Policy.Adaptive.Min", a.Min)
		c.share("Policy.Adaptive.Quantile", a.Quantile)
		c.add(a.Multiple > 0 && a.Multiple < 1, fmt.Sprintf("Policy.Adaptive.Multiple is %v: what is usual takes longer than a part of the Quantile", a.Multiple))
	}
	if b := t.Budget; b != nil {
		c.unit("Budget.Window", b.Window)
		most := max(p.MaxAttempts, defaultMaxAttempts) // with as many retries, save one
		c.add(b.Ratio >= float64(most) && b.Ratio <= mostPercent, fmt.Sprintf(
			"Budget.Ratio is %v: retries for each call, not a percentage, and no call makes so many (negative: no cap)", b.Ratio))
	}
	if l := t.RateLimit; l != nil {
		c.unit("RateLimit.MaxWait", l.MaxWait)
		c.unit("RateLimit.MaxClosed", l.MaxClosed)
	}
	if b := t.Breaker; b != nil {
		c.unit("Breaker.Window", b.Window)
		c.unit("Breaker.Cooldown", b.Cooldown)
		c.unit("Breaker.MaxCooldown", b.MaxCooldown)
		c.share("Breaker.FailureRatio", b.FailureRatio)
	}
	if h := t.Hedge; h != nil {
		c.unit("Hedge.Delay", h.Delay)
		c.share("Hedge.Quantile", h.Quantile)
		c.add(h.MaxRatio > 1 && h.MaxRatio <= mostPercent, fmt.Sprintf(
			"Hedge.MaxRatio is %v: a share of the calls, not a percentage, is at most 1 (negative: no cap)", h.MaxRatio))
	}
	return errors.Join(c...)
}

// complaints are what is wrong with a configuration.
type complaints []error

func (c *complaints) add(wrong bool, what string) {
	if wrong {
		*c = append(*c, fmt.Errorf("%w: %s", netfail.ErrMisconfigured, what))
	}
}

// unit complains of a time whose unit was forgotten: 5 is five nanoseconds. One, the least
// there is, may be meant where 0 is the default.
func (c *complaints) unit(field string, d time.Duration) {
	c.add(d > 1 && d < time.Microsecond, fmt.Sprintf("%s is %v: its unit was forgotten", field, d))
}

// mostPercent is what no percentage exceeds: a number beyond it says that there is no cap.
const mostPercent = 100

// share complains of a percentage: a share of all is at most 1.
func (c *complaints) share(field string, x float64) {
	c.add(x >= 10 && x <= mostPercent, fmt.Sprintf("%s is %v: a share of all, not a percentage, is at most 1", field, x))
}

// headers complains of names.
func (c *complaints) headers(t *Transport) {
	i, d := t.Idempotency.withDefaults(), t.Deadline.withDefaults()
	c.add(!validFieldName(i.Header), "Idempotency.Header is not a field name")
	c.add(!validFieldName(d.Header), "Deadline.Header is not a field name")
	c.add(i.Header == d.Header, "Idempotency.Header and Deadline.Header are the same")
	for _, ours := range [...]string{timeoutHeader, retryOwnerHeader} {
		c.add(i.Header == ours || d.Header == ours, "Idempotency.Header or Deadline.Header is "+ours+", which is sent already")
	}
	for _, taken := range [...]string{"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Host", "Trailer", "Transfer-Encoding", "Upgrade"} {
		c.add(i.Header == taken || d.Header == taken, "Idempotency.Header or Deadline.Header is "+taken+", which means something else")
	}
	c.add(t.Idempotency.MaxLength < 0, "Idempotency.MaxLength is negative")
	c.add(t.Idempotency.tooShortForKeys(), fmt.Sprintf(
		"Idempotency.MaxLength is %d, and the keys that are made while NewKey is nil have %d characters", t.Idempotency.MaxLength, generatedLength))
	for _, pattern := range i.Hosts {
		if err := hosts.Check(pattern); err != nil {
			c.add(true, "Idempotency.Hosts "+err.Error())
		}
	}
	for _, method := range i.Methods {
		c.add(!validFieldName(method), "Idempotency.Methods has one that is no method")
		upper := strings.ToUpper(method)
		c.add(upper != method && slices.Contains(usualMethods, upper), "Idempotency.Methods has "+method+": methods are told apart by case, and it is "+upper)
	}
}

var usualMethods = []string{ //nolint:gochecknoglobals // never written to
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func (c *complaints) base(t *Transport) {
	c.add(t.Base == http.RoundTripper(t), "Base is the Transport itself")
	switch base := t.Base.(type) {
	case *http.Transport:
		c.add(base == nil, "Base is an *http.Transport that is nil")
	case *Transport:
		c.add(base == nil, "Base is a *Transport that is nil")
	}
}
