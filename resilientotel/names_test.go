package resilientotel

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/resilienthttp/resilienthttp/idempotency"
)

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
