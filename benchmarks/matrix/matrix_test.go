package matrix

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// answers returns the results of one peer, by probe.
func answers(t *testing.T, p peers.Peer) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, probe := range allProbes() {
		all[probe.Name] = probe.ask(t, p)
	}
	return all
}

func named(t *testing.T, name string) peers.Peer {
	t.Helper()
	named, err := peers.Named(name)
	require.NoError(t, err)
	return named[0]
}

// The behavior of this library is its contract.
func TestOurs(t *testing.T) {
	want := map[string]string{
		// After 503 and 429 there is no first wait. After a timeout of a server without a success there is only the last.
		"GET 500": "6", "GET 503": "5", "GET 429": "5", "GET timeout": "2",
		// With its generated key, a POST can be retried.
		"POST 500": "6, one key", "POST 503": "5, one key", "POST 429": "5, one key", "POST timeout": "2, one key",
		"body replayed": "yes", "body of a stream": "streamed",
		"Retry-After: 3": "waited for", "Retry-After: date": "waited for",
		"exhausted": "503", "bodies left open": "0", "wait after the last": "0",
		"wait past the deadline": "at once", "canceled": "0",
		"request modified": "no", "other hosts' idle connections": "kept",
	}
	require.Equal(t, want, answers(t, named(t, peers.Ours)))
}

// Without keys, a POST is retried only after a 429, or a 503 with Retry-After: the server did
// no work. The probe's 503 has no Retry-After.
func TestOurs_withoutKeys(t *testing.T) {
	p := peers.Peer{New: func(s peers.Setting) peers.Client {
		return &http.Client{Transport: &resilienthttp.Transport{Base: s.Base, Idempotency: resilienthttp.Idempotency{Disabled: true}}}
	}}
	got := answers(t, p)
	require.Equal(t, "1", got["POST 500"])
	require.Equal(t, "1", got["POST 503"])
	require.Equal(t, "**5**", got["POST 429"])
	require.Equal(t, "1", got["POST timeout"])
	require.Equal(t, "6", got["GET 500"])
}

// The source of the library, at the version in go.mod, confirms each of these results.
func TestPeers(t *testing.T) {
	for _, row := range []struct{ peer, probe, want, because string }{
		{"bare", "GET 500", "1", "http.Client does not retry responses"},
		{"naive", "body replayed", "**no**", "it sends a body that is already read"},
		{"go-retryablehttp", "POST 500", "**5**", "baseRetryPolicy does not look at the method"},
		{"go-retryablehttp", "exhausted", "error", "Do drains the last response, and returns an error, without an ErrorHandler"},
		{"go-retryablehttp-full", "exhausted", "503", "PassthroughErrorHandler"},
		{"go-retryablehttp", "other hosts' idle connections", "**closed**", "Do defers HTTPClient.CloseIdleConnections when it gives up"},
		{"go-retryablehttp", "Retry-After: date", "waited for", "parseRetryAfterHeader reads both forms"},
		{"failsafe-go", "Retry-After: date", "**undercut**", "DelayFunc reads only seconds"},
		{"failsafe-go", "bodies left open", "**3**", "doRequest closes no response that is retried"},
		{"failsafe-go-full", "Retry-After: 3", "**undercut**", "ApplyJitter adds to, and takes from, any delay"},
		{"azcore", "Retry-After: date", "waited for", "shared.RetryAfter reads both forms"},
		{"azcore", "wait past the deadline", "at the deadline", "retryPolicy.Do selects between the delay and the context"},
		{"aws-sdk-go-v2", "Retry-After: 3", "**undercut**", "adjustForRetryAfterHeader reads only X-Amz-Retry-After"},
	} {
		for _, probe := range allProbes() {
			if probe.Name == row.probe {
				require.Equal(t, row.want, probe.ask(t, named(t, row.peer)), "%s, %s: %s", row.peer, row.probe, row.because)
			}
		}
	}
}

// Every library has a result for every probe.
func TestAll(t *testing.T) {
	for _, p := range peers.All() {
		for name, answer := range answers(t, p) {
			require.NotEmpty(t, answer, "%s: %s", p.Name, name)
		}
	}
}

// behavior.md has these results. The waits of its last table are random for some libraries. UPDATE_DOCS=1 writes the page.
func TestResults(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	var text strings.Builder
	libraries := slices.DeleteFunc(peers.All(), func(p peers.Peer) bool { return p.Name == peers.OursHedgedAt }) // behaves as the other hedged configuration
	var all []string
	for i, probes := range tables() {
		all = append(all, table(t, libraries, probes).String())
		fmt.Fprintln(&text, all[i])
		for _, p := range probes {
			if i > 0 {
				fmt.Fprintf(&text, "- *%s*: %s.\n", p.Name, p.Note)
			}
		}
		fmt.Fprintln(&text)
	}
	configured := report.NewTextTable("library", "configuration")
	for _, p := range peers.All() {
		configured.Row(p.Name, p.Note)
	}
	fmt.Fprintf(&text, "## Configurations\n\nThese configurations apply to all experiments.\n\n%s\n", configured)
	if os.Getenv("UPDATE_DOCS") == "1" {
		require.NoError(t, report.WriteResults(root, "behavior", "UPDATE_DOCS=1 go test ./benchmarks/matrix", text.String()))
	}
	page, err := os.ReadFile(filepath.Join(root, "benchmarks", "results", "behavior.md"))
	require.NoError(t, err)
	for _, shown := range []string{all[0], all[1], configured.String()} {
		require.Contains(t, string(page), shown, "run the test with UPDATE_DOCS=1")
	}
}

func table(t *testing.T, libraries []peers.Peer, probes []probe) *report.Table {
	t.Helper()
	heading := []string{"library"}
	for _, p := range probes {
		heading = append(heading, p.Name)
	}
	table := report.NewTextTable(heading...)
	for _, peer := range libraries {
		cells := []string{peer.Name}
		for _, p := range probes {
			cells = append(cells, p.ask(t, peer))
		}
		table.Row(cells...)
	}
	return table
}

// server is a scripted base RoundTripper that records its requests.
type server struct {
	answer  func(attempt int) answer // counted from 1
	arrived func()                   // nil, or called before a request's body is read

	mu       sync.Mutex
	attempts []attempt
	open     int // response bodies
	idle     int // calls of CloseIdleConnections
}

type answer struct {
	status int // 0: a timeout
	header http.Header
	after  time.Duration
}

type attempt struct {
	at, done time.Time
	body     []byte
	key      string // Idempotency-Key
}

func always(status int) func(int) answer {
	return func(int) answer { return answer{status: status} }
}

// timeoutError is the error of a timeout of the network.
type timeoutError struct{}

func (timeoutError) Error() string   { return "matrix: timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attempt{at: time.Now(), key: req.Header.Get("Idempotency-Key")}
	s.mu.Lock()
	n := len(s.attempts)
	s.attempts = append(s.attempts, a)
	s.mu.Unlock()
	if s.arrived != nil {
		s.arrived()
	}
	if req.Body != nil {
		a.body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	said := s.answer(n + 1)
	if said.after > 0 {
		if err := sleep.Context(req.Context(), said.after); err != nil {
			return nil, err
		}
	}
	a.done = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[n] = a
	if said.status == 0 {
		return nil, timeoutError{}
	}
	s.open++
	header := http.Header{"Date": {a.done.UTC().Format(http.TimeFormat)}}
	maps.Copy(header, said.header)
	return &http.Response{
		Status: strconv.Itoa(said.status) + " " + http.StatusText(said.status), StatusCode: said.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: req,
		Body: &body{Reader: bytes.NewReader([]byte("answer")), server: s}, ContentLength: int64(len("answer")),
	}, nil
}

// CloseIdleConnections counts its calls. http.Transport closes the connections of all hosts.
func (s *server) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle++
}

// body is a response body that records Close.
type body struct {
	io.Reader
	server *server
	once   sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		b.server.open--
	})
	return nil
}
