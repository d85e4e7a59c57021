package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// TestTransport tests an [http.RoundTripper] that repeats requests, as [testing/slogtest] tests a
// handler of logs. wrap returns a new client that sends its requests through base. The test has one
// subtest for each row:
//
//	result             exactly one of response and error is returned
//	request            the caller's request is not modified
//	body-closed        each request body is closed exactly once
//	whole-body         a request body arrives as a whole, or the request is not sent
//	last-response      the last response is returned, and its body is readable to its end
//	client-errors      400, 401, 403, 404, 410 and 422 are not retried
//	goroutines         no goroutine and no response body is left
//	caller-key         the caller's idempotency key is the key of all attempts
//	keys               each POST has one key, the same on all attempts, and another call another one
//	done-once          work that may be done is not repeated, unless the key makes that safe
//	redirects          credentials, keys and deadlines do not follow a redirect to another origin
//	retry-after        Retry-After is a minimum, in seconds and as a date
//	retry-after-clock  a date is judged by the response's Date
//	retry-after-list   a list of values, a fraction, and a date in an older format are a minimum too
//	jitter             clients that fail together do not retry together
//	bounded            a call without a deadline ends, and none of its waits is longer than a minute
//	deadline           a call returns at its deadline, and no attempt begins after it
//	cancel             a cancellation ends a call at once
//	throttled-host     after a 429 with Retry-After the other calls to the host wait too
//	outage             a call survives a server that is away for 4 s
//	budget             in an outage of a minute there are at most 1.2 requests per call
//
// [Without] leaves out rows that the client does not claim. A failed row prints why it exists, its
// source, and the requests that the server got.
//
// Each row runs in a [testing/synctest] bubble, so waits take no time. wrap is called inside the
// bubble, once for each client that the row needs. Make the client there: it cannot use channels,
// timers and goroutines from outside of the bubble, or a socket. A client that implements
// [io.Closer] is closed. base is an [http.Transport] for servers in memory, such as
// http://fault.test. TestTransport must not be called in a bubble.
func TestTransport(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper, options ...TestOption) {
	t.Helper()
	if inBubble() {
		t.Fatal("faulttest: TestTransport was called in a synctest bubble (want it outside: each row has its own)")
	}
	if wrap == nil {
		t.Fatal("faulttest: TestTransport: wrap is nil (want a function that returns a client)")
	}
	set, err := settingsOf(options)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range set.rows() {
		t.Run(r.name, func(t *testing.T) {
			if failures := r.try(t, wrap, set); len(failures) > 0 {
				t.Error(r.report(failures))
			}
		})
	}
}

// TestOption is an option of [TestTransport].
type TestOption func(*testSettings)

// Without leaves out rows of [TestTransport] that the client does not claim: Without("keys",
// "budget"). A name that is no row fails the test.
func Without(rows ...string) TestOption {
	return func(s *testSettings) { s.without = append(s.without, rows...) }
}

// WithKeyHeader sets the field of the idempotency key, for example PayPal-Request-Id. "" means
// Idempotency-Key.
func WithKeyHeader(name string) TestOption {
	return func(s *testSettings) { s.keyHeader = name }
}

// testSettings are the options of a TestTransport.
type testSettings struct {
	without   []string
	keyHeader string
}

func settingsOf(options []TestOption) (testSettings, error) {
	s := testSettings{}
	for _, option := range options {
		option(&s)
	}
	s.keyHeader = cmp.Or(s.keyHeader, defaultKeyHeader)
	var names []string
	for _, r := range allRows() {
		names = append(names, r.name)
	}
	for _, name := range s.without {
		if !slices.Contains(names, name) {
			return s, fmt.Errorf("faulttest: Without: %q is not a row (want some of %s)", name, strings.Join(names, ", "))
		}
	}
	return s, nil
}

// rows returns the rows that the client claims.
func (s testSettings) rows() []row {
	return slices.DeleteFunc(allRows(), func(r row) bool { return slices.Contains(s.without, r.name) })
}

// row is one property of a client.
type row struct {
	name   string
	check  func(*trial)
	why    string // what happens to a user without it
	source string
}

func allRows() []row { return slices.Concat(contractRows(), repeatRows(), waitRows(), loadRows()) }

// maxShown is the number of failures of a row that are printed. The others are mostly the same.
const maxShown = 3

func (r row) report(failures []string) string {
	shown := failures[:min(len(failures), maxShown)]
	text := fmt.Sprintf("%s\n\nwhy: %s\nsource: %s", strings.Join(shown, "\n\n"), r.why, r.source)
	if hidden := len(failures) - len(shown); hidden > 0 {
		text += fmt.Sprintf("\n(failures that are not shown: %d)", hidden)
	}
	return text
}

// trial is a run of a row. Clients and servers are closed at its end.
type trial struct {
	testSettings

	t    *testing.T // of the bubble
	wrap func(base http.RoundTripper) http.RoundTripper
	// life is the context of all calls. It ends after the row, so that a client that has left
	// something open does not also fail rows about other properties.
	life context.Context

	mu       sync.Mutex
	failures []string
	servers  []*Server
}

// try runs the row in a new bubble and returns its failures.
func (r row) try(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper, set testSettings) (failures []string) {
	t.Helper()
	c := &trial{testSettings: set, wrap: wrap}
	defer func() {
		// The runtime panics if goroutines of the bubble cannot go on.
		switch cause := recover(); {
		case cause == nil:
		case strings.HasPrefix(fmt.Sprint(cause), "deadlock: main bubble goroutine has exited"):
			// The client has left a goroutine: the row goroutines reports it.
		case strings.HasPrefix(fmt.Sprint(cause), "deadlock: "):
			c.errorf("a call does not return: all goroutines wait for each other")
		default:
			panic(cause)
		}
		failures = c.failures
	}()
	synctest.Test(t, func(t *testing.T) {
		c.t = t
		life, end := context.WithCancel(context.Background())
		t.Cleanup(end)
		c.life = life
		// A bubble starts in the year 2000, when the epoch had fewer digits. The time is no whole second,
		// because dates in a header are.
		c.sleep(time.Until(time.Date(2026, time.March, 1, 12, 0, 0, int(300*time.Millisecond), time.UTC)))
		r.check(c)
		if !slices.ContainsFunc(c.servers, func(s *Server) bool { return s.Total() > 0 }) {
			c.errorf("no request came through base: want a client that sends through it")
		}
	})
	return c.failures
}

// sleep waits, and then until all goroutines of the bubble wait.
func (c *trial) sleep(d time.Duration) {
	_ = sleep.Context(c.life, d) // it ends after the row
	synctest.Wait()
}

func (c *trial) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}
