package zoo

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// dialect is a way to write quotas in headers, as DESIGN §5 lists them.
type dialect struct {
	name  string
	unit  time.Duration // of its resets
	many  bool          // writes several quotas, each with its name
	names bool          // tells apart the quotas of paths by a name
	blind bool          // has no reset
	write func(http.Header, page)
}

// page is what a server shows on a response.
type page struct {
	quotas  []shown
	date    time.Time // the server's clock
	bucket  string    // the name of the quota of a path; "": one quota
	noReset bool
}

// shown is one quota as a response shows it.
type shown struct {
	name             string
	unit             Unit
	limit, remaining int
	reset, window    time.Duration
}

func (p page) first() shown { return p.quotas[0] }

// epoch is a reset as Unix seconds.
func (p page) epoch(s shown) string { return strconv.FormatInt(p.at(s, time.Second).Unix(), 10) }

// at is the moment of a reset, rounded up to the unit.
func (p page) at(s shown, unit time.Duration) time.Time {
	at := p.date.Add(s.reset)
	if rounded := at.Truncate(unit); rounded.Before(at) {
		return rounded.Add(unit)
	}
	return at
}

// delta is a reset in seconds, rounded up.
func (p page) delta(s shown) string { return strconv.Itoa(int(math.Ceil(s.reset.Seconds()))) }

// set sets a field, unless it is a reset that the page leaves out.
func (p page) set(h http.Header, name string, value any) {
	if p.noReset && strings.Contains(strings.ToLower(name), "reset") {
		return
	}
	h.Set(name, fmt.Sprint(value))
}

func dialects() []dialect {
	const second = time.Second
	return []dialect{
		{name: "github", unit: second, names: true, write: writeGitHub},
		{name: "gitlab", unit: second, names: true, write: writeGitLab},
		{name: "okta", unit: second, write: writeOkta},
		{name: "x", unit: second, write: writeX, many: true},
		{name: "openai", unit: time.Millisecond, many: true, write: writeOpenAI},
		{name: "azure", unit: second, many: true, write: writeAzure},
		{name: "anthropic", unit: second, many: true, write: writeAnthropic},
		{name: "discord", unit: time.Millisecond, names: true, write: writeDiscord},
		{name: "reddit", unit: second, write: writeReddit},
		{name: "zendesk", unit: second, write: writeZendesk},
		{name: "zendesk-list", unit: second, write: writeZendeskList},
		{name: "shopify", unit: time.Millisecond, write: writeShopify},
		{name: "jira", unit: second, write: writeJira(time.RFC3339, second)},
		{name: "atlassian", unit: time.Minute, write: writeJira("2006-01-02T15:04Z", time.Minute)},
		{name: "atlassian-beta", unit: second, many: true, write: writeList("Beta-")},
		{name: "ietf", unit: second, many: true, names: true, write: writeList("")},
		{name: "ietf-07", unit: second, write: writeIETF07},
		{name: "ietf-06", unit: second, write: writeIETF06},
		{name: "hubspot", unit: second, many: true, blind: true, write: writeHubSpot},
		{name: "cloudflare", unit: second, write: writeCloudflare},
	}
}

func writeGitHub(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Ratelimit-Limit", q.limit)
	p.set(h, "X-Ratelimit-Remaining", q.remaining)
	p.set(h, "X-Ratelimit-Used", q.limit-q.remaining)
	p.set(h, "X-Ratelimit-Reset", p.epoch(q))
	if p.bucket != "" {
		p.set(h, "X-Ratelimit-Resource", p.bucket)
	}
}

func writeGitLab(h http.Header, p page) {
	q := p.first()
	p.set(h, "Ratelimit-Limit", q.limit)
	p.set(h, "Ratelimit-Observed", q.limit-q.remaining)
	p.set(h, "Ratelimit-Remaining", q.remaining)
	p.set(h, "Ratelimit-Reset", p.epoch(q))
	p.set(h, "Ratelimit-Resettime", p.at(q, time.Second).UTC().Format(http.TimeFormat))
	if p.bucket != "" {
		p.set(h, "Ratelimit-Name", p.bucket)
	}
}

func writeOkta(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Rate-Limit-Limit", q.limit)
	p.set(h, "X-Rate-Limit-Remaining", q.remaining)
	p.set(h, "X-Rate-Limit-Reset", p.epoch(q))
}

// writeX writes a second quota as that of the day.
func writeX(h http.Header, p page) {
	writeOkta(h, p)
	for _, q := range p.quotas[1:] {
		p.set(h, "X-App-Limit-24hour-Limit", q.limit)
		p.set(h, "X-App-Limit-24hour-Remaining", q.remaining)
		p.set(h, "X-App-Limit-24hour-Reset", p.epoch(q))
	}
}

func writeOpenAI(h http.Header, p page) {
	for _, q := range p.quotas {
		p.set(h, "X-Ratelimit-Limit-"+string(q.unit), q.limit)
		p.set(h, "X-Ratelimit-Remaining-"+string(q.unit), q.remaining)
		p.set(h, "X-Ratelimit-Reset-"+string(q.unit), (q.reset + time.Millisecond - 1).Truncate(time.Millisecond))
	}
}

func writeAzure(h http.Header, p page) {
	for _, q := range p.quotas {
		p.set(h, "X-Ratelimit-Limit-"+string(q.unit), q.limit)
		p.set(h, "X-Ratelimit-Remaining-"+string(q.unit), q.remaining)
		p.set(h, "X-Ratelimit-Reset-"+string(q.unit), p.delta(q))
	}
}

func writeAnthropic(h http.Header, p page) {
	for _, q := range p.quotas {
		p.set(h, "Anthropic-Ratelimit-"+string(q.unit)+"-Limit", q.limit)
		p.set(h, "Anthropic-Ratelimit-"+string(q.unit)+"-Remaining", q.remaining)
		p.set(h, "Anthropic-Ratelimit-"+string(q.unit)+"-Reset", p.at(q, time.Second).UTC().Format(time.RFC3339))
	}
}

func writeDiscord(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Ratelimit-Limit", q.limit)
	p.set(h, "X-Ratelimit-Remaining", q.remaining)
	p.set(h, "X-Ratelimit-Reset", decimal(float64(p.at(q, time.Millisecond).UnixMilli())/1000))
	p.set(h, "X-Ratelimit-Reset-After", decimal(math.Ceil(q.reset.Seconds()*1000)/1000))
	if p.bucket == "" {
		p.bucket = "all"
	}
	p.set(h, "X-Ratelimit-Bucket", p.bucket)
}

func writeReddit(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Ratelimit-Used", q.limit-q.remaining)
	p.set(h, "X-Ratelimit-Remaining", decimal(float64(q.remaining))+".0")
	p.set(h, "X-Ratelimit-Reset", p.delta(q))
}

func writeZendesk(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Rate-Limit", q.limit)
	p.set(h, "X-Rate-Limit-Remaining", q.remaining)
	p.set(h, "Ratelimit-Reset", p.delta(q))
}

func writeZendeskList(h http.Header, p page) {
	q := p.first()
	value := fmt.Sprintf("total=%d; remaining=%d", q.limit, q.remaining)
	if !p.noReset {
		value += "; resets=" + p.delta(q)
	}
	p.set(h, "Zendesk-Ratelimit-Tickets-Index", value)
}

func writeShopify(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", q.limit-q.remaining, q.limit))
}

func writeJira(layout string, unit time.Duration) func(http.Header, page) {
	return func(h http.Header, p page) {
		q := p.first()
		p.set(h, "X-Ratelimit-Limit", q.limit)
		p.set(h, "X-Ratelimit-Remaining", q.remaining)
		p.set(h, "X-Ratelimit-Reset", p.at(q, unit).UTC().Format(layout))
	}
}

// writeList writes the two lists of the current IETF draft.
func writeList(prefix string) func(http.Header, page) {
	return func(h http.Header, p page) {
		var policies, limits []string
		for _, q := range p.quotas {
			unit, key := "", ""
			if q.unit == Tokens {
				unit = `;qu="tokens"`
			}
			if p.bucket != "" {
				key = fmt.Sprintf(";pk=:%s:", base64.StdEncoding.EncodeToString([]byte(p.bucket)))
			}
			policies = append(policies, fmt.Sprintf(`%q;q=%d;w=%d%s%s`, q.name, q.limit, max(int(q.window.Seconds()), 1), unit, key))
			limit := fmt.Sprintf(`%q;r=%d`, q.name, q.remaining)
			if !p.noReset {
				limit += ";t=" + p.delta(q)
			}
			limits = append(limits, limit+key)
		}
		p.set(h, prefix+"Ratelimit-Policy", strings.Join(policies, ", "))
		p.set(h, prefix+"Ratelimit", strings.Join(limits, ", "))
	}
}

func writeIETF07(h http.Header, p page) {
	q := p.first()
	value := fmt.Sprintf("limit=%d, remaining=%d", q.limit, q.remaining)
	if !p.noReset {
		value += ", reset=" + p.delta(q)
	}
	p.set(h, "Ratelimit", value)
}

func writeIETF06(h http.Header, p page) {
	q := p.first()
	p.set(h, "Ratelimit-Limit", q.limit)
	p.set(h, "Ratelimit-Remaining", q.remaining)
	p.set(h, "Ratelimit-Reset", p.delta(q))
}

// writeHubSpot writes a second quota as that of the day.
func writeHubSpot(h http.Header, p page) {
	q := p.first()
	p.set(h, "X-Hubspot-Ratelimit-Max", q.limit)
	p.set(h, "X-Hubspot-Ratelimit-Remaining", q.remaining)
	if !p.noReset {
		p.set(h, "X-Hubspot-Ratelimit-Interval-Milliseconds", q.window.Milliseconds())
	}
	for _, q := range p.quotas[1:] {
		p.set(h, "X-Hubspot-Ratelimit-Daily", q.limit)
		p.set(h, "X-Hubspot-Ratelimit-Daily-Remaining", q.remaining)
	}
}

// writeCloudflare gives the two fields different names.
func writeCloudflare(h http.Header, p page) {
	q := p.first()
	p.set(h, "Ratelimit-Policy", fmt.Sprintf(`"burst";q=%d;w=%d`, q.limit, max(int(q.window.Seconds()), 1)))
	limit := fmt.Sprintf(`"default";r=%d`, q.remaining)
	if !p.noReset {
		limit += ";t=" + p.delta(q)
	}
	p.set(h, "Ratelimit", limit)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
