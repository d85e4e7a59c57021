package resilienthttp

import (
	"strings"
	"testing"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

func TestDefaults_callPages(t *testing.T) {
	p, d, a := Policy{}.withDefaults(), Deadline{}.withDefaults(), new(AdaptiveTimeout).withDefaults()
	var h Hedge
	h.once.Do(h.configure)
	waits := make([]string, len(earlyWaits))
	for i, wait := range earlyWaits {
		waits[i] = doctable.Format(wait)
	}
	rows := []doctable.Row{
		{Field: "Transport.Hedge", Default: "no hedging", Unit: "pointer", Range: "Transports may share it"},
		{Field: "Policy.MaxAttempts", Default: p.MaxAttempts, Unit: "attempts, hedges not counted", Range: "1 to " + doctable.Format(maxMaxAttempts) + "; negative: 1"},
		{Field: "Policy.AttemptTimeout", Default: "the call's deadline, or " + doctable.Format(maxResponseTime), Unit: "duration", Range: "negative: none, and no second attempt"},
		{Field: "Policy.AdaptiveTimeout", Default: "off", Unit: "pointer", Range: "see `AdaptiveTimeout`"},
		{Field: "Policy.ReadTimeout", Default: "none", Unit: "duration of one `Read`", Range: "negative: none"},
		{Field: "Policy.MaxRetryAfter", Default: p.MaxRetryAfter, Unit: "duration", Range: "negative: no limit"},
		{Field: "Policy.Backoff", Default: strings.Join(waits, ", ") + ", the last wait", Unit: "function", Range: "negative result: no wait"},
		{Field: "Policy.Classify", Default: "the table", Unit: "function", Range: "safe for concurrent use"},
		{Field: "Policy.ClassifyBody", Default: "the table", Unit: "function", Range: "safe for concurrent use"},
		{Field: "AdaptiveTimeout.Multiple", Default: a.Multiple, Unit: "factor", Range: "at least 1; negative: off"},
		{Field: "AdaptiveTimeout.Quantile", Default: a.Quantile, Unit: "ratio", Range: "0 to 1; negative: off"},
		{Field: "AdaptiveTimeout.Min", Default: a.Min, Unit: "duration", Range: "negative: none"},
		{Field: "AdaptiveTimeout.MinSamples", Default: a.MinSamples, Unit: "responses in a minute", Range: "negative: 1"},
		{Field: "Deadline.Header", Default: "`" + d.Header + "`", Unit: "field name", Range: ""},
		{Field: "Deadline.Margin", Default: "0", Unit: "duration", Range: "negative: 0"},
		{Field: "Deadline.Max", Default: "no limit", Unit: "duration", Range: "negative: no limit"},
		{Field: "Deadline.TrustPriority", Default: d.TrustPriority, Unit: "bool", Range: ""},
		{Field: "Deadline.Disabled", Default: d.Disabled, Unit: "bool", Range: ""},
		{Field: "Hedge.Delay", Default: "the `Quantile`", Unit: "duration", Range: "negative: off"},
		{Field: "Hedge.Quantile", Default: h.level, Unit: "ratio", Range: "0 to 1; negative: off, unless `Delay` is set"},
		{Field: "Hedge.MaxRatio", Default: h.rules.Ratio, Unit: "hedges per call", Range: "negative: no limit"},
	}
	for _, page := range []struct {
		name   string
		fields []string
	}{
		{"retries", []string{"Policy.MaxAttempts", "Policy.Classify"}},
		{"backoff", []string{"Policy.MaxAttempts", "Policy.MaxRetryAfter", "Policy.Backoff"}},
		{"deadlines", []string{"Policy.AttemptTimeout", "Policy.AdaptiveTimeout", "Policy.ReadTimeout", "AdaptiveTimeout.", "Deadline.Header", "Deadline.Margin", "Deadline.Max", "Deadline.Disabled"}},
		{"hedging", []string{"Transport.Hedge", "Hedge."}},
	} {
		t.Run(page.name, func(t *testing.T) {
			var selected []doctable.Row
			for _, row := range rows {
				for _, prefix := range page.fields {
					if strings.HasPrefix(row.Field, prefix) {
						selected = append(selected, row)
					}
				}
			}
			doctable.Check(t, "docs/"+page.name+".md", page.name, selected)
		})
	}
}
