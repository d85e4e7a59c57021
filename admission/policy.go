package admission

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/structured"
)

// policy is what a Quota tells of itself: quota units in each window.
//
// A client may take the whole quota at the moment at which the reset comes. So it must
// be no more than there can be at once, and there when the reset is said to be: what a
// bucket holds, and how long it takes to fill it, if that is less than Limit and
// Window.
type policy struct {
	name    string
	quota   int
	seconds int64         // of the window, rounded up
	excess  time.Duration // how much longer it takes until a bucket is full than until it holds the quota
	header  string        // RateLimit-Policy
	prefix  string        // RateLimit, up to the number that remains
	limit   string        // quota, written
}

func newPolicy(name string, r Rule, costed bool) policy {
	p := policy{name: name, quota: min(r.Limit, r.Capacity())}
	share := float64(r.Window) / float64(r.Limit)
	p.seconds = wholeSeconds(time.Duration(share * float64(p.quota)))
	p.excess = time.Duration(share * float64(r.Capacity()-p.quota))
	quoted := structured.Quote(name)
	p.limit = strconv.Itoa(p.quota)
	p.header = quoted + ";q=" + p.limit + ";w=" + strconv.FormatInt(p.seconds, 10)
	if costed {
		p.header += `;qu="units"` // and not requests, which is what it is if nothing is said
	}
	p.prefix = quoted + ";r="
	return p
}

// tell writes the fields of an answer. They are added to what other Quotas say.
func (p *policy) tell(h http.Header, t *Result, legacy bool) {
	reset := max(t.ResetAfter-p.excess, 0)
	if !t.OK {
		reset = t.RetryAfter // what was asked for is there then
	}
	buffer := make([]byte, 0, 96)
	buffer = append(buffer, p.prefix...)
	buffer = strconv.AppendInt(buffer, int64(t.Remaining), 10)
	buffer = append(buffer, ";t="...)
	buffer = strconv.AppendInt(buffer, wholeSeconds(reset), 10) // 0 would tell nothing to many
	values := []string{p.header, string(buffer)}
	add(h, "Ratelimit-Policy", values[:1:1])
	add(h, "Ratelimit", values[1:2:2])
	if legacy {
		h["X-Ratelimit-Limit"] = []string{p.limit}
		h["X-Ratelimit-Remaining"] = []string{strconv.Itoa(t.Remaining)}
		h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(epochSeconds(time.Now().Add(reset)), 10)}
	}
}

// epochSeconds is the first whole second that is not before t.
func epochSeconds(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func add(h http.Header, name string, values []string) {
	if before, ok := h[name]; ok {
		values = append(slices.Clip(before), values...)
	}
	h[name] = values
}
