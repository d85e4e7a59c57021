package resilienthttp

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Validate returns an error that names every invalid field of the configuration, or nil. Call it
// when a program starts: without it, each call fails with the same error. It must not run while
// fields are set. Invalid values cannot work or are certainly a mistake: for example a positive
// time below a microsecond, a percentage instead of a ratio, or a method in lower case. See
// docs/configuration.md.
func (t *Transport) Validate() error {
	c := validate.Errors{Of: neterr.ErrMisconfigured}
	checkHeaders(&c, t)
	checkBase(&c, t)
	c.Check(t.MaxScopes < 0 || t.MaxScopes > maxMaxScopes, fmt.Sprintf("MaxScopes is %d, must be from 0 to %d", t.MaxScopes, maxMaxScopes))
	d := t.DeadlineHeader.withDefaults()
	c.Append(t.Policy.check())
	c.Duration("DeadlineHeader.Margin", d.Margin)
	c.Append(d.checkMargin(&t.Policy))
	l, b, h := cmp.Or(t.RateLimit, &RateLimit{}), cmp.Or(t.Breaker, &Breaker{}), cmp.Or(t.Hedge, &Hedge{})
	c.Duration("RateLimit.MaxWait", l.MaxWait)
	c.Duration("RateLimit.MaxBlock", l.MaxBlock)
	c.Duration("Breaker.Window", b.Window)
	c.Duration("Breaker.Cooldown", b.Cooldown)
	c.Duration("Breaker.MaxCooldown", b.MaxCooldown)
	c.Duration("Breaker.MaxWait", b.MaxWait)
	c.Ratio("Breaker.FailureRatio", b.FailureRatio)
	c.Duration("Hedge.Delay", h.Delay)
	c.Ratio("Hedge.Quantile", h.Quantile)
	return c.Err()
}

// check returns an error that names the invalid fields of the policy. A valid policy costs nothing,
// because a program may make a policy for each call.
func (p *Policy) check() error {
	c := validate.Errors{Of: neterr.ErrMisconfigured}
	c.Duration("Policy.AttemptTimeout", p.AttemptTimeout)
	c.Duration("Policy.ReadTimeout", p.ReadTimeout)
	c.Duration("Policy.MaxRetryAfter", p.MaxRetryAfter)
	if p.Stream != nil {
		c.Duration("Policy.Stream.FirstEvent", p.Stream.FirstEvent)
	}
	return c.Err()
}

// checkMargin returns an error if the header would say that every attempt's time is over. d has
// its defaults.
func (d *DeadlineHeader) checkMargin(p *Policy) error {
	if p.AttemptTimeout <= 0 || d.Margin < p.AttemptTimeout {
		return nil
	}
	return fmt.Errorf("%w: DeadlineHeader.Margin is %v, must be less than Policy.AttemptTimeout (%v)",
		neterr.ErrMisconfigured, d.Margin, p.AttemptTimeout)
}

func checkHeaders(c *validate.Errors, t *Transport) {
	i, d := t.Idempotency.withDefaults(), t.DeadlineHeader.withDefaults()
	fields := [...]struct{ field, header string }{{"Idempotency.Header", i.Header}, {"DeadlineHeader.Name", d.Name}, {"DeadlineHeader.Relative", d.Relative}}
	for n, f := range fields {
		c.Header(f.field, f.header)
		ours := []string{retryOwnerHeader, field.PriorityHeader, timeoutHeader}
		if n == len(fields)-1 {
			ours = ours[:2] // the last one is the default of Relative
		}
		c.Check(slices.Contains(ours, f.header), f.field+" is "+f.header+", which the Transport uses already")
		for _, other := range fields[:n] {
			c.Check(f.header == other.header, other.field+" and "+f.field+" are the same")
		}
	}
	c.Check(t.Idempotency.MaxLength < 0, "Idempotency.MaxLength is negative")
	generates := !i.Disabled && i.NewKey == nil && len(i.Methods) > 0
	generated := len(uuid.Nil.String())
	c.Check(generates && i.MaxLength < generated, fmt.Sprintf(
		"Idempotency.MaxLength is %d, must be at least %d for generated keys (or set NewKey)", i.MaxLength, generated))
	for _, pattern := range i.Hosts {
		if err := hostmatch.Check(pattern); err != nil {
			c.Addf("Idempotency.Hosts %v", err)
		}
	}
	for _, method := range i.Methods {
		c.Check(!validate.Token(method), fmt.Sprintf("Idempotency.Methods: %q is not a method", method))
		upper := strings.ToUpper(method)
		c.Check(upper != method && slices.Contains(usualMethods, upper), fmt.Sprintf("Idempotency.Methods: %q must be %q, because methods are case-sensitive", method, upper))
	}
}

var usualMethods = []string{ //nolint:gochecknoglobals // never written to
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "QUERY",
}

func checkBase(c *validate.Errors, t *Transport) {
	inner, _ := t.Base.(*Transport)
	for range maxDepth { // t need not be part of a cycle
		if inner == nil || inner == t {
			break
		}
		inner, _ = inner.Base.(*Transport)
	}
	c.Check(inner == t, "Base is the Transport itself, or wraps it")
	switch base := t.Base.(type) {
	case *http.Transport:
		c.Check(base == nil, "Base is a nil *http.Transport")
	case *Connections:
		c.Check(base == nil, "Base is a nil *Connections")
		if base != nil {
			c.Duration("Connections.MaxAge", base.MaxAge)
		}
	case *Transport:
		c.Check(base == nil, "Base is a nil *Transport")
	}
}
