package admission

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// policy is what a Quota advertises: quota units in each window.
//
// A client may use the whole advertised quota at the advertised reset. So a quota larger
// than the bucket's capacity must not be advertised: a bucket smaller than Limit
// advertises its capacity, and the time that fills it.
type policy struct {
	name    string
	quota   int
	seconds int64         // the window, rounded up
	excess  time.Duration // from the bucket holding quota units until it is full
	header  string        // the value of RateLimit-Policy
	prefix  string        // the value of RateLimit up to the remaining units
	limit   string        // quota as text
}

func newPolicy(name string, r Rule, costed bool) policy {
	p := policy{name: name, quota: min(r.Limit, r.Capacity())}
	perUnit := float64(r.Window) / float64(r.Limit)
	p.seconds = wholeSeconds(time.Duration(perUnit * float64(p.quota)))
	p.excess = time.Duration(perUnit * float64(r.Capacity()-p.quota))
	quoted := field.Quote(name)
	p.limit = strconv.Itoa(p.quota)
	p.header = quoted + ";q=" + p.limit + ";w=" + strconv.FormatInt(p.seconds, 10)
	if costed {
		p.header += `;qu="units"` // the default unit is requests
	}
	p.prefix = quoted + ";r="
	return p
}

// addHeaders adds the fields of a response to those of other Quotas.
func (p *policy) addHeaders(h http.Header, result *Result, legacy bool) {
	reset := max(result.ResetAfter-p.excess, 0)
	if !result.OK {
		reset = result.RetryAfter // the rejected units are available then
	}
	buffer := make([]byte, 0, 96)
	buffer = append(buffer, p.prefix...)
	buffer = strconv.AppendInt(buffer, int64(result.Remaining), 10)
	buffer = append(buffer, ";t="...)
	buffer = strconv.AppendInt(buffer, wholeSeconds(reset), 10)
	values := []string{p.header, string(buffer)}
	add(h, "Ratelimit-Policy", values[:1:1])
	add(h, "Ratelimit", values[1:2:2])
	if legacy {
		h["X-Ratelimit-Limit"] = []string{p.limit}
		h["X-Ratelimit-Remaining"] = []string{strconv.Itoa(result.Remaining)}
		h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(time.Now().Add(reset+time.Second-1).Unix(), 10)} // rounded up
	}
}

// add appends values without changing a slice that another Quota has set.
func add(h http.Header, name string, values []string) {
	if before, ok := h[name]; ok {
		values = append(slices.Clip(before), values...)
	}
	h[name] = values
}
