package faulttest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// fakeTB is a TB that records failures and log lines.
type fakeTB struct {
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

// failures returns all failures and removes them.
func (f *fakeTB) failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.Join(f.errors, "\n")
	f.errors = nil
	return text
}

func (f *fakeTB) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.logs, "\n")
}

// onBothServers runs a test with a loopback server and with one in memory in a bubble. unit is a
// short wait: a tenth of a second, and an hour in the bubble.
func onBothServers(t *testing.T, f func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server)) {
	t.Helper()
	t.Run("loopback", func(t *testing.T) {
		t.Parallel()
		f(t, 100*time.Millisecond, func(h http.Handler) *faulttest.Server { return faulttest.New(t, h) })
	})
	bubble.Run(t, "memory", func(t *testing.T) {
		f(t, time.Hour, func(h http.Handler) *faulttest.Server { return faulttest.NewInMemory(t, h) })
	})
}

// send sends one request and reads the response to its end.
func send(t *testing.T, c *http.Client, method, url, body string, header ...string) (resp *http.Response, text string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err = c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// answered sends one request that must get a response.
func answered(t *testing.T, c *http.Client, method, url, body string, header ...string) (resp *http.Response, text string) {
	t.Helper()
	resp, text, err := send(t, c, method, url, body, header...)
	require.NoError(t, err)
	return resp, text
}

// status sends one request that must get a response, and returns its status.
func status(t *testing.T, s *faulttest.Server, method, path string, header ...string) int {
	t.Helper()
	resp, _ := answered(t, s.Client(), method, s.URL+path, "", header...)
	return resp.StatusCode
}

func outcomes(l *faulttest.Log) []string {
	var all []string
	for _, q := range l.Requests() {
		all = append(all, q.Outcome())
	}
	return all
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
