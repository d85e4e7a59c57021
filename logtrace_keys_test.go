package resilienthttp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// logKeys are the keys of all records: OpenTelemetry's if it has one, otherwise one name for the
// whole repository.
var logKeys = []string{
	"http.request.method", "http.response.status_code", "server.address", "server.port", "error.type", "error",

	"event", "scope", "priority", "operation", "attempt", "attempts", "verdict", "hedge", "superseded", "state",
	"idempotency_key_hash", "stop_reason", "not_before", "disposition", "execution", "generation", "code", "class", "reason", "decline_counts_from",
	"duration", "queue_wait", "in_flight", "retry_wait", "estimated_wait", "work_duration",
	"usual_latency", "latency", "samples", "attempts_in_flight", "in_flight_age", "openings",
	"quota_limit", "quota_remaining", "quota_used_by_others", "quota_policies", "quota_until",
	"suppressed", "in_doubt", "failures", "failed_probes", "client_errors", "calls", "transcript",
	"from", "to", "at", "batch", "row_number", "gateway", "holder", "until", "next_probe",
}

// T14: the records of the client, of idempotency and of durable have one set of keys.
func TestLogKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"logtrace.go", "idempotency/trace.go", "durable/logtrace.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "slog" || len(call.Args) != 2 {
				return true
			}
			key, ok := call.Args[0].(*ast.BasicLit)
			require.True(t, ok, "%s: slog.%s with a key that is no literal", name, f.Sel.Name)
			text, err := strconv.Unquote(key.Value)
			require.NoError(t, err)
			require.Contains(t, logKeys, text, name)
			seen[text] = true
			return true
		})
	}
	for _, key := range logKeys {
		require.True(t, seen[key], "no record has the key %s", key)
	}
	require.Len(t, logKeys, len(slices.Compact(slices.Sorted(slices.Values(logKeys)))))
}
