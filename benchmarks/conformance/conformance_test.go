package conformance

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// libraries are the columns of the table.
func libraries() []string {
	return []string{peers.Ours, "go-retryablehttp", "failsafe-go", "azcore", "aws-sdk-go-v2", "naive"}
}

// options returns what a library does not claim. The clients of two SDKs are no RoundTrippers.
func options(name string) []faulttest.TestOption {
	if name == "azcore" || name == "aws-sdk-go-v2" {
		return []faulttest.TestOption{faulttest.Without("result", "request", "body-closed")}
	}
	return nil
}

// library is the variable of a process that tests one library. Rows fail in it, which must not fail the test here, and a client
// may end its process.
const library = "CONFORMANCE_LIBRARY"

func TestMain(m *testing.M) {
	if name := os.Getenv(library); name != "" {
		all := func(string, string) (bool, error) { return true, nil }
		testing.Main(all, []testing.InternalTest{{Name: "TestTransport", F: func(t *testing.T) {
			faulttest.TestTransport(t, wrapOf(t, name), options(name)...)
		}}}, nil, nil) // it exits
	}
	os.Exit(m.Run())
}

func wrapOf(t *testing.T, name string) func(http.RoundTripper) http.RoundTripper {
	named, err := peers.Named(name)
	require.NoError(t, err)
	return func(base http.RoundTripper) http.RoundTripper {
		client := named[0].New(peers.Setting{Base: base})
		if c, ok := client.(*http.Client); ok {
			return c.Transport
		}
		return roundTripper{client}
	}
}

// roundTripper is a client that has another form.
type roundTripper struct{ client peers.Client }

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r.client.Do(req) }

// results runs the test with a library. It returns the rows in their order, and whether each passed.
func results(t *testing.T, name string) (rows []string, passed map[string]bool) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.v")
	child.Env = append(os.Environ(), library+"="+name)
	output, err := child.CombinedOutput()
	passed = map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^    --- (PASS|FAIL): TestTransport/(\S+) `).FindAllStringSubmatch(string(output), -1) {
		rows = append(rows, match[2])
		passed[match[2]] = match[1] == "PASS"
	}
	end := regexp.MustCompile(`(?m)^(PASS|FAIL)$`).FindAllString(string(output), -1)
	require.NotEmpty(t, end, "%s: the process has ended early: %v\n%s", name, err, output)
	return rows, passed
}

// F3: the table of docs/testing.md has what each library does today. UPDATE_DOCS=1 writes it.
func TestTable(t *testing.T) {
	var rows []string
	all := map[string]map[string]bool{}
	for _, name := range libraries() {
		names, passed := results(t, name)
		all[name] = passed
		if name == peers.Ours {
			rows = names
		}
		for _, row := range names {
			require.Contains(t, rows, row)
		}
	}
	require.Greater(t, len(rows), 20)
	table := report.NewTextTable(append([]string{"row"}, libraries()...)...)
	for _, row := range rows {
		cells := []string{"`" + row + "`"}
		for _, name := range libraries() {
			cells = append(cells, cell(all[name], row))
		}
		table.Row(cells...)
	}
	doctable.Overview(t, "../../docs/testing.md", "conformance", table.String())
	checkReasons(t, all)
}

func cell(passed map[string]bool, row string) string {
	switch ok, claimed := passed[row]; {
	case !claimed:
		return "–"
	case ok:
		return "✓"
	}
	return "no"
}

// checkReasons compares with the source of the libraries, at the versions in go.mod.
func checkReasons(t *testing.T, all map[string]map[string]bool) {
	t.Helper()
	for _, row := range []struct {
		library, row string
		passes       bool
		because      string
	}{
		{"go-retryablehttp", "request", false, "Do sets the Body of the caller's request, which FromRequest embeds"},
		{"go-retryablehttp", "body-closed", false, "it reads the body into memory, and does not close it"},
		{"go-retryablehttp", "whole-body", true, "it reads the body into memory"},
		{"go-retryablehttp", "last-response", false, "without an ErrorHandler, Do drains the last response and returns an error"},
		{"go-retryablehttp", "done-once", false, "baseRetryPolicy does not look at the method"},
		{"go-retryablehttp", "retry-after", true, "parseRetryAfterHeader reads seconds and dates"},
		{"go-retryablehttp", "jitter", false, "DefaultBackoff has no jitter"},
		{"go-retryablehttp", "outage", true, "it waits 1, 2 and 4 s"},
		{"failsafe-go", "goroutines", false, "doRequest closes no response that is retried"},
		{"failsafe-go", "retry-after", false, "DelayFunc reads only seconds"},
		{"azcore", "done-once", false, "retryPolicy.Do does not look at the method"},
		{"azcore", "retry-after-clock", false, "shared.RetryAfter compares dates with the local clock"},
		{"aws-sdk-go-v2", "retry-after", false, "adjustForRetryAfterHeader reads only X-Amz-Retry-After"},
		{"aws-sdk-go-v2", "budget", true, "it has 500 retry tokens, and a retry takes 5"},
		{"aws-sdk-go-v2", "outage", false, "3 attempts, with waits of up to 1 and 2 s"},
		{"naive", "whole-body", false, "it sends a body that is already read"},
		{"naive", "cancel", false, "it sleeps without the context"},
	} {
		require.Contains(t, libraries(), row.library)
		require.Equal(t, row.passes, all[row.library][row.row], "%s, %s: %s", row.library, row.row, row.because)
	}
}
