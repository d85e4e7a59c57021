package resilientotel

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// exported returns the labels of each metric in Prometheus, from a program that does everything
// once.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	i, registry := exporting(t)
	doEverything(t, i)
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]map[string]bool{}
	for _, family := range families {
		names := []string{family.GetName()}
		if family.GetMetric()[0].GetHistogram() != nil {
			names = []string{family.GetName() + "_bucket", family.GetName() + "_sum", family.GetName() + "_count"}
		}
		for _, name := range names {
			all[name] = map[string]bool{"le": strings.HasSuffix(name, "_bucket")}
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					all[name][label.GetName()] = true
				}
			}
		}
	}
	return all
}

// doEverything makes the program export each metric.
func doEverything(t *testing.T, i *Instrumentation) {
	t.Helper()
	for _, tr := range []*resilienthttp.Transport{
		{ // retries, a quota, and a queue: a loaded machine too calls sooner than the limit permits
			Base:      script(answer{status: 503}, answer{status: 200, header: []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "3600"}}),
			RateLimit: &resilienthttp.RateLimit{Limit: 10, Burst: 1}, Policy: every(time.Millisecond),
		},
		{ // a hedge
			Base:  script(answer{after: time.Second, status: 200}, answer{status: 200}),
			Hedge: &resilienthttp.Hedge{Delay: time.Millisecond},
		},
		{ // a rejection
			Base:   script(answer{err: errors.New("broken")}),
			Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, MaxWait: -1},
		},
	} {
		rt := i.Wrap(tr)
		for range 2 {
			_ = called(t, rt, get(t, t.Context(), url))
		}
		_ = called(t, rt, get(t, resilienthttp.WithPriority(t.Context(), resilienthttp.PriorityBatch), url))
	}
	post := get(t, t.Context(), url)
	post.Method = http.MethodPost
	_ = called(t, i.Wrap(&resilienthttp.Transport{Base: script(answer{err: errors.New("broken")}), Policy: resilienthttp.Policy{MaxAttempts: -1}}), post)
	handler := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "shop", nil }, http.NotFoundHandler())
	handler.Trace = i.TraceIdempotency(nil)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	shedder := &admission.Shedder{Initial: 1, Min: 1, Max: 1, Queue: -1, MaxWait: -1}
	i.WatchShedder("front", shedder)
	gate := http.Handler(nil)
	gate = shedder.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gate.ServeHTTP(httptest.NewRecorder(), r) }))
	gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": psp{}}}
	i.Watch(e)
	_, err := e.Enqueue(t.Context(), durable.Intent{ID: idempotency.ID{Scope: "acme", Operation: "o", Key: "k"}, Gateway: "psp", Payload: []byte("declined")})
	require.NoError(t, err)
	require.NoError(t, errOf(e.Work(context.WithoutCancel(t.Context()), 0)))
	require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", ""))
}

// checkQuery requires that the metrics of a query are exported, and have its labels. It returns
// the metrics.
func checkQuery(t *testing.T, known map[string]map[string]bool, title, expression string) []string {
	t.Helper()
	metrics, labels := terms(expression)
	require.NotEmpty(t, metrics, "%s: %s", title, expression)
	for _, m := range metrics {
		require.NotNil(t, known[m], "%s: %s is not exported", title, m)
		for _, label := range labels {
			require.True(t, known[m][label], "%s: %s has no label %s", title, m, label)
		}
	}
	return metrics
}

// query is a query of a dashboard: "expr" of a panel, "query" of a variable.
type query struct {
	Expr  string `json:"expr"`
	Query string `json:"query"`
}

type dashboard struct {
	Panels []struct {
		Title   string  `json:"title"`
		Type    string  `json:"type"`
		Targets []query `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// Each metric and label of the dashboard is exported. Each exported metric is on the dashboard.
func TestGrafana(t *testing.T) {
	text, err := os.ReadFile("../docs/grafana.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	known, used := exported(t), map[string]bool{}
	check := func(title, expression string) {
		for _, m := range checkQuery(t, known, title, expression) {
			used[m] = true
		}
	}
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			check(panel.Title, target.Expr)
		}
	}
	for _, variable := range d.Templating.List {
		if variable.Type == "query" {
			var q query
			require.NoError(t, json.Unmarshal(variable.Query, &q))
			check("variable", q.Query)
		}
	}
	for m := range known {
		if !strings.HasPrefix(m, "resilienthttp_") {
			continue
		}
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_bucket"), "_count"), "_sum")
		require.True(t, used[m] || used[base+"_bucket"] || used[base+"_sum"], "%s is on no panel", m)
	}
}

var (
	strs      = regexp.MustCompile(`"[^"]*"`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]| offset \w+`)
	grouping  = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
	variables = regexp.MustCompile(`label_values\(([^,]*),([^)]*)\)`)
	selectors = regexp.MustCompile(`\{([^}]*)\}`)
	matchers  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	words     = regexp.MustCompile(`[a-zA-Z_:][\w:]*\s*\(?`)
)

// terms returns the metrics and the labels of a query.
func terms(expression string) (metrics, labels []string) {
	add := func(list string) {
		for label := range strings.SplitSeq(list, ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	expression = ranges.ReplaceAllString(strs.ReplaceAllString(expression, "0"), "")
	for _, found := range grouping.FindAllStringSubmatch(expression, -1) {
		add(found[1])
	}
	for _, found := range variables.FindAllStringSubmatch(expression, -1) {
		add(found[2])
	}
	for _, found := range selectors.FindAllStringSubmatch(expression, -1) {
		for _, matcher := range matchers.FindAllStringSubmatch(found[1], -1) {
			labels = append(labels, matcher[1])
		}
	}
	expression = variables.ReplaceAllString(selectors.ReplaceAllString(grouping.ReplaceAllString(expression, ""), ""), "$1")
	for _, word := range words.FindAllString(expression, -1) {
		word = strings.TrimSpace(word)
		if !strings.HasSuffix(word, "(") && !slices.Contains([]string{"and", "or", "unless"}, word) {
			metrics = append(metrics, word)
		}
	}
	slices.Sort(metrics)
	return slices.Compact(metrics), labels
}

func TestTerms(t *testing.T) {
	metrics, labels := terms(`histogram_quantile(0.99, sum by (le, scope) (rate(a_bucket{resilienthttp.scope=~"$scope", to!=""}[$__rate_interval]))) unless on (x) b`)
	require.Equal(t, []string{"a_bucket", "b"}, metrics)
	require.Equal(t, []string{"le", "scope", "x", "scope", "to"}, labels)
	metrics, labels = terms(`label_values(a_count, host)`)
	require.Equal(t, []string{"a_count"}, metrics)
	require.Equal(t, []string{"host"}, labels)
}

// The keys of OpenTelemetry's conventions that are exported beside those in names.go.
func conventions() []string {
	return []string{
		"error.type", "http.request.method", "http.request.method_original", "http.request.resend_count", "http.response.status_code",
		"network.protocol.name", "network.protocol.version", "server.address", "server.port", "url.full", "url.scheme",
	}
}

// constants returns the values of the constants in names.go with that prefix of their names.
func constants(t *testing.T, prefix string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	require.NoError(t, err)
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, prefix) {
			return true
		}
		ast.Inspect(spec.Values[0], func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok {
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				found = append(found, text)
			}
			return true
		})
		return false
	})
	slices.Sort(found)
	return found
}

// T14: all exported metrics, attributes and events are those in names.go or in OpenTelemetry's
// conventions, and all names in names.go are exported.
func TestNames(t *testing.T) {
	r := record()
	doEverything(t, &r.Instrumentation)
	doTheRest(t, r)
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(t.Context(), &all))
	metrics, keys, events := map[string]bool{}, map[string]bool{}, map[string]bool{}
	addKeys := func(attributes []attribute.KeyValue) {
		for _, a := range attributes {
			keys[string(a.Key)] = true
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if scope.Scope.Name == ScopeName {
				metrics[m.Name] = true
			}
		}
	}
	for series := range r.metrics(t) {
		_, list, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		for pair := range strings.FieldsSeq(list) {
			if key, _, ok := strings.Cut(pair, "="); ok { // a value may have a space
				keys[key] = true
			}
		}
	}
	for _, s := range r.spans.Ended() {
		addKeys(s.Attributes())
		for _, e := range s.Events() {
			events[e.Name] = true
			addKeys(e.Attributes)
		}
	}
	require.Equal(t, constants(t, "metric"), slices.Sorted(maps.Keys(metrics)))
	require.Equal(t, constants(t, "event"), slices.Sorted(maps.Keys(events)))
	own := constants(t, "key")
	maps.DeleteFunc(keys, func(key string, _ bool) bool { return slices.Contains(conventions(), key) })
	require.Equal(t, own, slices.Sorted(maps.Keys(keys)))
	for _, key := range own {
		require.True(t, strings.HasPrefix(key, "resilienthttp."), key)
	}
}

// doTheRest exports the attributes that doEverything does not.
func doTheRest(t *testing.T, r *recording) {
	t.Helper()
	rt := r.Wrap(&resilienthttp.Transport{
		Base: script(answer{err: errors.New("x")}), Policy: every(time.Millisecond), Scope: func(*http.Request) string { return "other" },
	})
	_ = called(t, rt, get(t, resilienthttp.WithIdempotencyKey(t.Context(), "k"), url))
	queued := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200}), RateLimit: &resilienthttp.RateLimit{Limit: 100, Burst: 1}})
	for range 2 {
		require.NoError(t, called(t, queued, get(t, t.Context(), "http://other.test:80/")))
	}
	handler := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "shop", nil }, http.NotFoundHandler())
	handler.Trace = r.TraceIdempotency(nil)
	quota := &admission.Quota{Limit: 1, Key: func(*http.Request) (string, error) { return "a", nil }, Trace: r.TraceAdmission(nil)}
	ctx, span := r.tracer.Start(t.Context(), "server")
	for range 2 { // the second is rejected
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		req.Header.Set("Idempotency-Key", "k")
		quota.Handler(handler).ServeHTTP(httptest.NewRecorder(), req)
	}
	span.End()
}
