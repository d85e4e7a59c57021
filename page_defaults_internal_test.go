package resilienthttp

import (
	"cmp"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/doctable"
	"github.com/resilienthttp/resilienthttp/internal/quota"
)

// defaultsPage is a page of docs with a table of defaults. The table and the page have the
// same name. It has the rows of fields with one of the prefixes.
type defaultsPage struct {
	name   string
	fields []string
}

// defaultsPages are all pages with such a table of the root package.
func defaultsPages() []defaultsPage {
	return []defaultsPage{
		{"retries", []string{"Policy.MaxAttempts", "Policy.Classify"}},
		{"backoff", []string{"Policy.MaxAttempts", "Policy.MaxRetryAfter", "Policy.Backoff"}},
		{"deadlines", []string{"Policy.AttemptTimeout", "Policy.ReadTimeout", "DeadlineHeader.", "DeadlineHandler."}},
		{"streams", []string{"Policy.Idempotent", "Policy.Stream", "Stream."}},
		{"hedging", []string{"Transport.Hedge", "Hedge."}},
		{"retry-budget", []string{"Budget."}},
		{"circuit-breaker", []string{"Breaker."}},
		{"rate-limits", []string{"RateLimit."}},
		{"idempotency-keys", []string{"Idempotency."}},
		{"configuration", []string{""}},
	}
}

func TestDefaults_pagesEqualCode(t *testing.T) {
	rows := defaultsRows(t)
	for _, page := range defaultsPages() {
		t.Run(page.name, func(t *testing.T) {
			var selected []doctable.Row
			for _, row := range rows {
				for _, prefix := range page.fields {
					if strings.HasPrefix(row.Field, prefix) {
						selected = append(selected, row)
						break
					}
				}
			}
			doctable.Check(t, "docs/"+page.name+".md", page.name, selected)
		})
	}
}

// TestDefaults_everyFieldHasARow compares the rows with the structs by reflection, so that a
// new field cannot be left out of the documentation.
func TestDefaults_everyFieldHasARow(t *testing.T) {
	want := map[string]bool{}
	for _, configuration := range []any{
		Transport{}, Connections{}, Policy{}, Stream{}, Idempotency{}, DeadlineHeader{}, DeadlineHandler{}, Budget{}, RateLimit{}, Breaker{}, Hedge{},
	} {
		typ := reflect.TypeOf(configuration)
		for _, field := range reflect.VisibleFields(typ) {
			if field.IsExported() {
				want[typ.Name()+"."+field.Name] = true
			}
		}
	}
	for _, row := range defaultsRows(t) {
		if !want[row.Field] {
			t.Errorf("row %s: got a second row or an unknown field, want one row for each field", row.Field)
		}
		delete(want, row.Field)
	}
	for field := range want {
		t.Errorf("field %s: got no row, want one", field)
	}
}

// zero returns text as the default of a field, if the effective value of the zero
// configuration is the zero value.
func zero(t *testing.T, value any, text string) string {
	t.Helper()
	if v := reflect.ValueOf(value); v.IsValid() && !v.IsZero() {
		t.Errorf("default %q: got the value %v, want a zero value", text, value)
	}
	return text
}

// defaultsRows returns the rows of all fields, with the effective values of a zero Transport.
func defaultsRows(t *testing.T) []doctable.Row {
	t.Helper()
	transport := &Transport{}
	c := transport.configured()
	c.budget.scope("", false)
	hedge := &Hedge{}
	hedge.scope("")

	rows := transportRows(t, c)
	rows = append(rows, policyRows(t, c.policy.Load())...)
	rows = append(rows, headerRows(t, &c.idempotency, &c.deadlineHeader)...)
	rows = append(rows, []doctable.Row{
		{Field: "Budget.Ratio", Default: c.budget.rules.Ratio, Unit: "tokens per call", Range: "may exceed 1; negative: no limit on retries"},
		{Field: "Budget.Burst", Default: c.budget.rules.Tokens, Unit: "tokens", Range: "negative: none"},
		{Field: "Budget.Static", Default: c.budget.rules.Static, Unit: "bool", Range: ""},
	}...)
	rows = append(rows, rateLimitRows(t, c.rateLimit)...)
	rows = append(rows, breakerRows(t, c.breaker)...)
	return append(rows, []doctable.Row{
		{Field: "Hedge.Delay", Default: zero(t, hedge.Delay, "the `Quantile`"), Unit: "duration", Range: "negative: off"},
		{Field: "Hedge.Quantile", Default: hedge.level, Unit: "ratio", Range: "0 to 1; negative: off, unless `Delay` is set"},
		{Field: "Hedge.MaxRatio", Default: hedge.rules.Ratio, Unit: "hedges per call", Range: "negative: no limit"},
	}...)
}

func transportRows(t *testing.T, c *config) []doctable.Row {
	t.Helper()
	private := func(mechanism any) string {
		if v := reflect.ValueOf(mechanism); v.IsNil() {
			t.Errorf("%T: got nil, want one with the defaults", mechanism)
		}
		return "a private one"
	}
	base := "`&Connections{}`"
	connections, ok := c.base.(*Connections)
	if !ok {
		t.Fatalf("Transport.Base: got %T, want *Connections", c.base)
	}
	return []doctable.Row{
		{Field: "Transport.Base", Default: base, Unit: "`http.RoundTripper`", Range: "must obey the request's context"},
		{Field: "Transport.Policy", Default: "see `Policy`", Unit: "struct", Range: ""},
		{Field: "Transport.Idempotency", Default: "see `Idempotency`", Unit: "struct", Range: ""},
		{Field: "Transport.DeadlineHeader", Default: "see `DeadlineHeader`", Unit: "struct", Range: ""},
		{Field: "Transport.Budget", Default: private(c.budget), Unit: "pointer", Range: "Transports may share it"},
		{Field: "Transport.RateLimit", Default: private(c.rateLimit), Unit: "pointer", Range: "Transports may share it"},
		{Field: "Transport.Breaker", Default: private(c.breaker), Unit: "pointer", Range: "Transports may share it"},
		{Field: "Transport.Hedge", Default: zero(t, c.hedge, "no hedging"), Unit: "pointer", Range: "Transports may share it"},
		{Field: "Transport.Scope", Default: zero(t, c.scope, "`URL.Host`"), Unit: "function", Range: "safe for concurrent use"},
		{Field: "Transport.MaxScopes", Default: c.records.Max, Unit: "scopes", Range: "1 to " + doctable.Format(maxMaxScopes) + "; negative: invalid"},
		{Field: "Transport.OwnsRetries", Default: c.ownsRetries, Unit: "bool", Range: ""},
		{Field: "Transport.Trace", Default: zero(t, c.trace, "no hooks"), Unit: "pointer", Range: ""},
		{Field: "Connections.Transport", Default: zero(t, connections.Transport, "`NewBase()`"), Unit: "pointer", Range: "used by clones"},
		{Field: "Connections.MaxAge", Default: zero(t, connections.MaxAge, "no limit"), Unit: "duration", Range: "negative: no limit"},
	}
}

func policyRows(t *testing.T, p *Policy) []doctable.Row {
	t.Helper()
	waits := make([]string, len(earlyWaits))
	for i, wait := range earlyWaits {
		waits[i] = doctable.Format(wait)
	}
	return []doctable.Row{
		{Field: "Policy.MaxAttempts", Default: p.MaxAttempts, Unit: "attempts, hedges not counted", Range: "1 to " + doctable.Format(maxMaxAttempts) + "; negative: 1"},
		{Field: "Policy.AttemptTimeout", Default: zero(t, p.AttemptTimeout, "the call's deadline, or "+doctable.Format(maxResponseTime)), Unit: "duration", Range: "negative: none, and no second attempt"},
		{Field: "Policy.ReadTimeout", Default: zero(t, p.ReadTimeout, "none"), Unit: "duration of one `Read`", Range: "negative: none"},
		{Field: "Policy.MaxRetryAfter", Default: p.MaxRetryAfter, Unit: "duration", Range: "negative: no limit"},
		{Field: "Policy.Backoff", Default: zero(t, p.Backoff, strings.Join(waits, ", ")+", the last wait"), Unit: "function", Range: "negative result: no wait"},
		{Field: "Policy.Classify", Default: zero(t, p.Classify, "the table"), Unit: "function", Range: "safe for concurrent use"},
		{Field: "Policy.ClassifyBody", Default: zero(t, p.ClassifyBody, "the table"), Unit: "function", Range: "safe for concurrent use"},
		{Field: "Policy.Idempotent", Default: zero(t, p.Idempotent, "by method and key"), Unit: "function", Range: "safe for concurrent use"},
		{Field: "Policy.Stream", Default: zero(t, p.Stream, "returned at the headers"), Unit: "pointer", Range: ""},
		{Field: "Stream.FirstEvent", Default: zero(t, Stream{}.FirstEvent, "none"), Unit: "duration after the headers", Range: "negative: none"},
		{Field: "Stream.Classify", Default: zero(t, Stream{}.Classify, "each event is content"), Unit: "function", Range: "safe for concurrent use"},
	}
}

func headerRows(t *testing.T, i *Idempotency, d *DeadlineHeader) []doctable.Row {
	t.Helper()
	var h DeadlineHandler
	return []doctable.Row{
		{Field: "Idempotency.Header", Default: "`" + i.Header + "`", Unit: "field name", Range: ""},
		{Field: "Idempotency.Methods", Default: strings.Join(i.Methods, ", "), Unit: "methods", Range: "upper case; empty: none"},
		{Field: "Idempotency.NewKey", Default: zero(t, i.NewKey, "a random UUID"), Unit: "function", Range: "result `\"\"`: no key"},
		{Field: "Idempotency.Quoted", Default: i.Quoted, Unit: "bool", Range: ""},
		{Field: "Idempotency.MaxLength", Default: i.MaxLength, Unit: "characters", Range: "36 to 255; from 1 with `NewKey`; negative: invalid"},
		{Field: "Idempotency.Hosts", Default: zero(t, i.Hosts, "all"), Unit: "host patterns", Range: "lower case; empty: none"},
		{Field: "Idempotency.Disabled", Default: i.Disabled, Unit: "bool", Range: ""},
		{Field: "DeadlineHeader.Name", Default: "`" + d.Name + "`", Unit: "field name", Range: ""},
		{Field: "DeadlineHeader.Relative", Default: "`" + d.Relative + "`", Unit: "field name", Range: "`grpc-timeout` has a unit, others milliseconds"},
		{Field: "DeadlineHeader.Margin", Default: zero(t, d.Margin, "0"), Unit: "duration", Range: "negative: 0"},
		{Field: "DeadlineHeader.Disabled", Default: d.Disabled, Unit: "bool", Range: ""},
		{Field: "DeadlineHandler.Next", Default: "none: each response is 500", Unit: "handler", Range: ""},
		{Field: "DeadlineHandler.Header", Default: "`" + cmp.Or(h.Header, defaultDeadlineHeader) + "`", Unit: "field name", Range: ""},
		{Field: "DeadlineHandler.Relative", Default: zero(t, h.Relative, "`"+timeoutHeader+"`"), Unit: "field names", Range: "the shortest counts; empty: none"},
		{Field: "DeadlineHandler.Max", Default: zero(t, h.Max, "no limit"), Unit: "duration", Range: "negative: no limit"},
		{Field: "DeadlineHandler.TrustPriority", Default: h.TrustPriority, Unit: "bool", Range: ""},
	}
}

func rateLimitRows(t *testing.T, l *RateLimit) []doctable.Row {
	t.Helper()
	c := l.config()
	fixed := RateLimit{Limit: 50}
	burst := "`Limit`, at least 1"
	if got := fixed.config().Burst; rate.Limit(got) != fixed.Limit || c.Burst != 1 {
		t.Errorf("RateLimit.Burst: got %d and %d, want the Limit and 1", got, c.Burst)
	}
	return []doctable.Row{
		{Field: "RateLimit.Limit", Default: zero(t, c.Limit, "none"), Unit: "requests per second", Range: "negative: none"},
		{Field: "RateLimit.Burst", Default: burst, Unit: "requests", Range: "negative: the default"},
		{Field: "RateLimit.MaxInFlight", Default: zero(t, c.MaxInFlight, "no limit"), Unit: "requests", Range: "negative: no limit"},
		{Field: "RateLimit.MaxWait", Default: "the deadline; " + doctable.Format(c.MaxWait) + " without one", Unit: "duration", Range: "negative: calls never wait"},
		{Field: "RateLimit.MaxBlock", Default: c.MaxBlock, Unit: "duration", Range: "up to " + doctable.Format(quota.Horizon) + "; negative: quotas and blocks off"},
		{Field: "RateLimit.IgnoreHeaders", Default: !c.Follow, Unit: "bool", Range: ""},
		{Field: "RateLimit.Key", Default: zero(t, l.Key, "one key"), Unit: "function", Range: "safe for concurrent use"},
		{Field: "RateLimit.Cost", Default: zero(t, l.Cost, "unknown"), Unit: "function", Range: "0 or less: unknown"},
		{Field: "RateLimit.Shared", Default: zero(t, c.Shared, "own quotas"), Unit: "`quotastore.Store`", Range: ""},
	}
}

func breakerRows(t *testing.T, b *Breaker) []doctable.Row {
	t.Helper()
	return []doctable.Row{
		{Field: "Breaker.FailureRatio", Default: circuit.DefaultFailureRatio, Unit: "ratio of results", Range: "0 to 1; negative: never opens"},
		{Field: "Breaker.MinRequests", Default: circuit.DefaultMinRequests, Unit: "results", Range: "negative: 1"},
		{Field: "Breaker.Window", Default: circuit.DefaultWindow, Unit: "duration", Range: "from 1 ms; negative: the default"},
		{Field: "Breaker.Cooldown", Default: circuit.DefaultCooldown, Unit: "duration", Range: "from 1 ms; negative: 1 ms"},
		{Field: "Breaker.MaxCooldown", Default: circuit.DefaultMaxCooldown, Unit: "duration", Range: "negative or less than `Cooldown`: `Cooldown`"},
		{Field: "Breaker.Probes", Default: circuit.DefaultProbes, Unit: "requests", Range: "negative: 1"},
		{Field: "Breaker.MaxWait", Default: zero(t, b.MaxWait, "the deadline, at most 30 s; 10 s without one"), Unit: "duration", Range: "negative: calls never wait"},
		{Field: "Breaker.Static", Default: b.Static, Unit: "bool", Range: ""},
		{Field: "Breaker.OnChange", Default: zero(t, b.OnChange, "none"), Unit: "function", Range: "safe for concurrent use"},
	}
}
