package limiter

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Dialect is a way to write quotas in headers.
type Dialect struct {
	Name  string
	Unit  time.Duration // of its resets
	Many  bool          // writes several quotas, each with its name
	Paths bool          // tells apart the quotas of paths by a name
	Blind bool          // has no reset

	// write writes the fields. nil: those of the dialect of package faulttest, of each quota or of the first one.
	write func(http.Header, Page)
	like  faulttest.Dialect
}

// Page is what a server shows on a response.
type Page struct {
	Quotas  []Shown
	Date    time.Time // the server's clock
	Bucket  string    // the name of the quota of a path; "": one quota
	NoReset bool
}

// Shown is one quota as a response shows it.
type Shown struct {
	Name             string
	Unit             Unit
	Limit, Remaining int
	Reset, Window    time.Duration
}

// Dialects returns all dialects.
func Dialects() []Dialect {
	const second = time.Second
	return []Dialect{
		{Name: "github", Unit: second, Paths: true, like: faulttest.GitHub},
		{Name: "gitlab", Unit: second, Paths: true, like: faulttest.GitLab},
		{Name: "okta", Unit: second, like: faulttest.Okta},
		{Name: "x", Unit: second, write: writeX, Many: true},
		{Name: "openai", Unit: time.Millisecond, Many: true, like: faulttest.OpenAI},
		{Name: "azure", Unit: second, Many: true, like: faulttest.AzureOpenAI},
		{Name: "anthropic", Unit: second, Many: true, like: faulttest.Anthropic},
		{Name: "discord", Unit: time.Millisecond, Paths: true, like: faulttest.Discord},
		{Name: "reddit", Unit: second, like: faulttest.Reddit},
		{Name: "zendesk", Unit: second, like: faulttest.Zendesk},
		{Name: "zendesk-list", Unit: second, write: writeZendeskList},
		{Name: "shopify", Unit: time.Millisecond, like: faulttest.Shopify},
		{Name: "jira", Unit: second, write: writeJira(time.RFC3339, second)},
		{Name: "atlassian", Unit: time.Minute, write: writeJira("2006-01-02T15:04Z", time.Minute)},
		{Name: "atlassian-beta", Unit: second, Many: true, write: writeList("Beta-")},
		{Name: "ietf", Unit: second, Many: true, Paths: true, write: writeList("")},
		{Name: "ietf-07", Unit: second, like: faulttest.IETF07},
		{Name: "ietf-06", Unit: second, like: faulttest.IETF06},
		{Name: "hubspot", Unit: second, Many: true, Blind: true, write: writeHubSpot},
		{Name: "cloudflare", Unit: second, write: writeCloudflare},
	}
}

// Write writes the quotas.
func (d Dialect) Write(h http.Header, p Page) {
	if d.write != nil {
		d.write(h, p)
	} else {
		for _, q := range p.Quotas {
			d.add(h, q, p)
		}
	}
	for name, values := range h {
		if p.NoReset && strings.Contains(name, "Reset") {
			delete(h, name)
		} else if p.NoReset {
			values[0], _, _ = strings.Cut(values[0], ", reset=")
		}
	}
}

// add adds the fields of one quota as package faulttest writes them. Only the quota of a path has a name.
func (d Dialect) add(h http.Header, q Shown, p Page) {
	name := p.Bucket
	if d.Many {
		name = strings.ToUpper(string(q.Unit[:1])) + string(q.Unit[1:])
	}
	limit := faulttest.RateLimit{Dialect: d.like, Limit: q.Limit, Remaining: q.Remaining, Reset: q.Reset, Name: name}
	for field, values := range limit.Header(p.Date) {
		if h.Set(field, values[0]); p.Bucket == "" && (field == "X-Ratelimit-Resource" || field == "Ratelimit-Name") {
			h.Del(field)
		}
	}
}

// epoch is a reset as Unix seconds.
func (p Page) epoch(s Shown) string { return strconv.FormatInt(p.at(s, time.Second).Unix(), 10) }

// at is the moment of a reset, rounded up to the unit.
func (p Page) at(s Shown, unit time.Duration) time.Time {
	at := p.Date.Add(s.Reset)
	if rounded := at.Truncate(unit); rounded.Before(at) {
		return rounded.Add(unit)
	}
	return at
}

// delta is a parameter with the reset in seconds, rounded up.
func (p Page) delta(name string, s Shown) string {
	if p.NoReset {
		return ""
	}
	return name + strconv.Itoa(int(math.Ceil(s.Reset.Seconds())))
}

// trio sets the three fields that most dialects have.
func trio(h http.Header, prefix string, s Shown, reset string) {
	h.Set(prefix+"Limit", strconv.Itoa(s.Limit))
	h.Set(prefix+"Remaining", strconv.Itoa(s.Remaining))
	h.Set(prefix+"Reset", reset)
}

// writeX writes a second quota as that of the day.
func writeX(h http.Header, p Page) {
	for i, q := range p.Quotas {
		trio(h, []string{"X-Rate-Limit-", "X-App-Limit-24hour-"}[i], q, p.epoch(q))
	}
}

func writeZendeskList(h http.Header, p Page) {
	q := p.Quotas[0]
	h.Set("Zendesk-Ratelimit-Tickets-Index", fmt.Sprintf("total=%d; remaining=%d%s", q.Limit, q.Remaining, p.delta("; resets=", q)))
}

func writeJira(layout string, unit time.Duration) func(http.Header, Page) {
	return func(h http.Header, p Page) {
		q := p.Quotas[0]
		trio(h, "X-Ratelimit-", q, p.at(q, unit).UTC().Format(layout))
	}
}

// writeList writes the two lists of the current IETF draft.
func writeList(prefix string) func(http.Header, Page) {
	return func(h http.Header, p Page) {
		var policies, limits []string
		for _, q := range p.Quotas {
			unit, key := "", ""
			if q.Unit == Tokens {
				unit = `;qu="tokens"`
			}
			if p.Bucket != "" {
				key = fmt.Sprintf(";pk=:%s:", base64.StdEncoding.EncodeToString([]byte(p.Bucket)))
			}
			policies = append(policies, fmt.Sprintf(`%q;q=%d;w=%d%s%s`, q.Name, q.Limit, max(int(q.Window.Seconds()), 1), unit, key))
			limits = append(limits, fmt.Sprintf(`%q;r=%d%s%s`, q.Name, q.Remaining, p.delta(";t=", q), key))
		}
		h.Set(prefix+"Ratelimit-Policy", strings.Join(policies, ", "))
		h.Set(prefix+"Ratelimit", strings.Join(limits, ", "))
	}
}

// writeHubSpot writes a second quota as that of the day.
func writeHubSpot(h http.Header, p Page) {
	for i, q := range p.Quotas {
		h.Set("X-Hubspot-Ratelimit-"+[]string{"Max", "Daily"}[i], strconv.Itoa(q.Limit))
		h.Set("X-Hubspot-Ratelimit-"+[]string{"Remaining", "Daily-Remaining"}[i], strconv.Itoa(q.Remaining))
	}
	if !p.NoReset {
		h.Set("X-Hubspot-Ratelimit-Interval-Milliseconds", strconv.FormatInt(p.Quotas[0].Window.Milliseconds(), 10))
	}
}

// writeCloudflare gives the two fields different names.
func writeCloudflare(h http.Header, p Page) {
	q := p.Quotas[0]
	h.Set("Ratelimit-Policy", fmt.Sprintf(`"burst";q=%d;w=%d`, q.Limit, max(int(q.Window.Seconds()), 1)))
	h.Set("Ratelimit", fmt.Sprintf(`"default";r=%d%s`, q.Remaining, p.delta(";t=", q)))
}
