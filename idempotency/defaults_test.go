package idempotency

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// TestDefaults keeps the tables of docs/server-idempotency.md equal to the code.
func TestDefaults(t *testing.T) {
	const page = "../docs/server-idempotency.md"
	h := NewHandler(new(Memory), func(*http.Request) (string, error) { return "", nil }, http.NotFoundHandler())
	require.NoError(t, h.Validate())
	o := h.executor.options
	doctable.Check(t, page, "handler", []doctable.Row{
		{Field: "Lease", Default: o.Lease, Unit: "time until a dead execution is noticed; renewed every third", Range: fmt.Sprintf("≥ %v", minLease)},
		{Field: "TTL", Default: o.TTL, Unit: "time for which a key protects", Range: "≥ Lease"},
		{Field: "Timeout", Default: o.Timeout, Unit: "maximum duration of an execution", Range: "negative: no limit"},
		{Field: "DuplicateWait", Default: o.DuplicateWait, Unit: "time that a duplicate waits for the first execution; 0: 409 at once", Range: "≥ 0"},
		{Field: "Takeover", Default: takeover(o.Takeover), Unit: "what follows an unknown effect", Range: "MarkUnknown, Reexecute, Resume"},
		{Field: "Transactional", Default: o.Transactional, Unit: "all writes go through `Tx`", Range: "needs a store with transactions"},
		{Field: "Header", Default: h.header, Unit: "field with the key", Range: ""},
		{Field: "Methods", Default: strings.Join(h.methods, ", "), Unit: "methods that need a key", Range: ""},
		{Field: "Optional", Default: h.Optional, Unit: "requests without a key pass, unprotected", Range: ""},
		{Field: "MaxBody", Default: size(h.MaxBody), Unit: "request body, in memory", Range: "≥ 0"},
		{Field: "MaxResponse", Default: size(h.MaxResponse), Unit: "stored response body", Range: "≥ 0"},
		{Field: "MaxSpool", Default: size(h.MaxSpool), Unit: "response body held for the first client", Range: "≥ MaxResponse; negative: no limit"},
		{Field: "ProblemBase", Default: "this page", Unit: "start of the type of problems", Range: "a URL"},
	})
	doctable.Check(t, page, "sweeper", []doctable.Row{
		{Field: "Every", Default: defaultEvery, Unit: "time between two sweeps", Range: "≥ 0"},
	})
}

func takeover(t Takeover) string {
	return [...]string{TakeoverDefault: "MarkUnknown", MarkUnknown: "MarkUnknown", Reexecute: "Reexecute", Resume: "Resume"}[t]
}

// size returns a number of bytes in its largest whole unit.
func size(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= unit.size && n%unit.size == 0 {
			return fmt.Sprintf("%d %s", n/unit.size, unit.name)
		}
	}
	return fmt.Sprint(n)
}
