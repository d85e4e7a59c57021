package resilientotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Each metric and label of the alerts is exported, and each alert has a severity and texts.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	known, alerts := exported(t), 0
	operators := regexp.MustCompile(`(?m)^(and|or|unless)\b.*$`)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			for _, operand := range operators.Split(rule.Expr, -1) {
				checkQuery(t, known, rule.Alert, operand)
			}
			if !strings.Contains(rule.Expr, "_unknown_") && !strings.Contains(rule.Expr, "calls_in_doubt") { // one is enough
				require.NotEmpty(t, rule.For, rule.Alert)
			}
			require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		}
	}
	require.Equal(t, 13, alerts)
}

// promtool accepts the alerts, and each of them fires and does not fire as in alerts_test.yml.
func TestAlerts_promtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it is in Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../docs"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

const (
	scrapeInterval = 30 * time.Second
	incidentAfter  = 5 * time.Minute
	scrapes        = 170
)

// T17: each alert fires on what a program in this incident exports, and none fires in the five healthy
// minutes before it. Of two upstreams on one address only the one that fails has an alert.
func TestAlerts_ownExport(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it is in Debian's package prometheus")
	}
	file := filepath.Join(t.TempDir(), "export_test.yml")
	alerts, err := filepath.Abs("../docs/alerts.yml")
	require.NoError(t, err)
	var series string
	synctest.Test(t, func(t *testing.T) { series = exportOfIncident(t) })
	var text strings.Builder
	fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 30s\ntests:\n- interval: %v\n  input_series:\n%s  promql_expr_test:\n", alerts, scrapeInterval, series)
	expect := func(at, query string, want ...string) {
		fmt.Fprintf(&text, "  - {expr: %q, eval_time: %s, exp_samples: [", query, at)
		for _, labels := range want {
			fmt.Fprintf(&text, "{labels: %q, value: 1}, ", labels)
		}
		text.WriteString("]}\n")
	}
	expect("5m", `ALERTS`)
	for at, names := range map[string][]string{
		"13m": {"AllCallsFail", "CallsInDoubt", "BreakerOpen", "QuotaNearlyUsed", "RetryBudgetExhausted", "CircuitFlaps", "GatewayHeld", "IntentsOverdue", "DeadLettersInDoubt", "OutcomeUnknown", "IdempotencyStoreFailed"},
		"9m":  {"Slow"}, "80m": {"PartialFailure"},
	} {
		for _, name := range names {
			expect(at, `group by (alertname) (ALERTS{alertstate="firing", alertname="ResilientHTTP`+name+`"})`, `{alertname="ResilientHTTP`+name+`"}`)
		}
	}
	expect("13m", `group by (resilienthttp_scope) (ALERTS{alertstate="firing", alertname="ResilientHTTPCallsInDoubt"})`, `{resilienthttp_scope="pay.test"}`)
	expect("13m", `group by (server_port) (ALERTS{alertstate="firing", alertname="ResilientHTTPAllCallsFail", server_address="127.0.0.1"})`, `{server_port="8001"}`)
	expect("9m", `group by (server_address) (ALERTS{alertstate="firing", alertname="ResilientHTTPSlow"})`, `{server_address="slow.test"}`)
	expect("13m", `group by (resilienthttp_scope) (ALERTS{alertstate="firing", alertname="ResilientHTTPCircuitFlaps"})`, `{resilienthttp_scope="flapping.test"}`)
	expect("80m", `group by (server_address) (ALERTS{alertstate="firing", alertname="ResilientHTTPPartialFailure", server_address=~"partial.test|healthy.test"})`, `{server_address="partial.test"}`)
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// exportOfIncident returns what a program exports to Prometheus, as input_series. After
// incidentAfter its providers fail.
func exportOfIncident(t *testing.T) string {
	t.Helper()
	i, registry := exporting(t)
	ctx, stop := context.WithCancel(t.Context())
	began := time.Now()
	failing := func() bool { return time.Since(began) > incidentAfter }
	var program sync.WaitGroup
	each := func(every time.Duration, do func()) {
		program.Go(func() {
			for ctx.Err() == nil {
				do()
				time.Sleep(every)
			}
		})
	}

	var sent atomic.Int64
	providers := roundTripper(func(r *http.Request) (*http.Response, error) {
		n := sent.Add(1)
		switch bad := failing(); {
		case bad && (r.URL.Host == "127.0.0.1:8001" || r.URL.Host == "budget.test" || r.URL.Host == "pay.test"), bad && r.URL.Host == "partial.test" && n%3 == 0:
			return respond(r, http.StatusInternalServerError), nil
		case bad && r.URL.Host == "flapping.test" && time.Since(began)%(45*time.Second) < 30*time.Second:
			return respond(r, http.StatusServiceUnavailable), nil
		case bad && r.URL.Host == "slow.test":
			time.Sleep(2 * time.Second)
		case bad && r.URL.Host == "quota.test":
			return respond(r, http.StatusOK, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "3600"), nil
		}
		return respond(r, http.StatusOK), nil
	})
	single := i.Wrap(&resilienthttp.Transport{Base: providers, Policy: resilienthttp.Policy{MaxAttempts: -1}})
	repeating := i.Wrap(&resilienthttp.Transport{Base: providers, Breaker: never()})
	for to, rt := range map[string]http.RoundTripper{
		"http://127.0.0.1:8001": single, "http://127.0.0.1:8002": single, "http://partial.test": single, "http://slow.test": single, "http://flapping.test": single, "http://healthy.test": single,
		"http://quota.test": single, "http://budget.test": repeating,
	} {
		each(time.Second, func() { _ = called(t, rt, get(t, ctx, to)) })
	}

	each(time.Minute, func() {
		pay := get(t, ctx, "http://pay.test")
		pay.Method = http.MethodPost
		_ = called(t, single, pay)
	})

	e := &durable.Engine{
		Store: new(durable.Memory), KeyTTL: -1,
		Gateways: map[string]durable.Gateway{"bank": sending(func() durable.Outcome {
			if failing() {
				return durable.Outcome{Err: errors.New("reset")}
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		})},
	}
	i.Watch(e)
	program.Go(func() { _ = e.Run(ctx) })
	intents := 0
	each(time.Second, func() {
		intents++
		_, _ = e.Enqueue(ctx, durable.Intent{ID: idempotency.ID{Scope: "shop", Operation: "pay", Key: strconv.Itoa(intents)}, Gateway: "bank"})
	})

	trace := i.TraceIdempotency(nil)
	work := &idempotency.Executor{Store: new(idempotency.Memory), Trace: trace}
	full := &idempotency.Executor{Store: &idempotency.Memory{MaxKeys: 1}, Trace: trace} // the store of some minutes of the incident
	requests := 0
	each(5*time.Second, func() {
		requests++
		executor := work
		if time.Since(began) > 2*incidentAfter && time.Since(began) < 3*incidentAfter {
			executor = full
		}
		_, _ = executor.Do(ctx, idempotency.ID{Scope: "shop", Operation: "mail", Key: strconv.Itoa(requests)}, idempotency.NewFingerprint(nil),
			func(context.Context) (idempotency.Result, error) {
				if failing() {
					return idempotency.Result{}, idempotency.ErrUnknown
				}
				return idempotency.Result{}, nil
			})
	})

	all := map[string][]string{}
	for scrape := range scrapes {
		for name, value := range samples(t, registry) {
			for len(all[name]) < scrape {
				all[name] = append(all[name], "_") // it was not exported
			}
			all[name] = append(all[name], strconv.FormatFloat(value, 'f', -1, 64))
		}
		time.Sleep(scrapeInterval)
	}
	stop()
	program.Wait()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "  - series: '%s'\n    values: '%s'\n", name, strings.Join(all[name], " "))
	}
	return text.String()
}

// samples returns what Prometheus would read now, by series.
func samples(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name, value := family.GetName(), m.GetCounter().GetValue()+m.GetGauge().GetValue()
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			series := "{" + strings.Join(labels, ",") + "}"
			if h := m.GetHistogram(); h != nil {
				all[name+"_sum"+series] = h.GetSampleSum()
				name, value = name+"_count", float64(h.GetSampleCount())
			}
			all[name+series] = value
		}
	}
	return all
}

// sending is a Gateway with the same outcome for all.
type sending func() durable.Outcome

func (s sending) Send(context.Context, *durable.Send) durable.Outcome { return s() }
