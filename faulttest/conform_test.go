package faulttest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// F1: the zero Transport.
func TestTransport_own(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return &resilienthttp.Transport{Base: base}
	})
}

// F1: without keys, a POST that may have been done is not repeated.
func TestTransport_ownWithoutKeys(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{Disabled: true}}
	}, faulttest.Without("keys"))
}

// The test of docs/testing.md.
func TestClient(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return retrier{base} // your client, which sends its requests through base
	}, faulttest.Without("keys", "redirects", "retry-after-list", "throttled-host", "budget")) // what it does not claim
}

// fault is a mistake of a model.
type fault int

const (
	none fault = iota
	noKeys
	noKeysButRepeats
	noKeysButRepeatsIfAsked
	newKeyForEachAttempt
	keyOfTheRequest
	keyOfTheClient
	keepsKey
	noWaitForBody
	restOfTheBody
	emptyBody
	noRetryAfter
	localClock
	noLists
	noFractions
	noDates
	noOlderDates
	noJitter
	noJitterAfterRetryAfter
	longWait
	forever
	eachCallAlone
	rejects
	noRetries
	noRetryIfRefused
	noBudget
	earlyRetry
	retries404
	bodiesLeftOpen
)

// model is a small client that fulfils all rows, apart from its fault.
type model struct {
	base  http.RoundTripper
	fault fault

	mu      sync.Mutex
	held    time.Time // the host asked to wait until then
	retries float64   // that are left
}

func newModel(f fault) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper { return &model{base: base, fault: f, retries: 55} }
}

func (m *model) RoundTrip(req *http.Request) (*http.Response, error) {
	body := req.Body
	keyed, key := m.keyed(req)
	for attempt := 1; ; attempt++ {
		if !m.hold(req.Context()) {
			closeBody(body)
			return nil, cmp.Or(context.Cause(req.Context()), errors.New("the host is held"))
		}
		if m.fault == newKeyForEachAttempt && key != "" {
			keyed.Header.Set("Idempotency-Key", uuid.NewString())
		}
		sent := &sentBody{ReadCloser: body, closed: make(chan struct{})}
		if body != nil && body != http.NoBody {
			keyed.Body = sent
		} else {
			close(sent.closed)
		}
		resp, err := m.base.RoundTrip(keyed.Clone(req.Context()))
		wait, again := m.plan(req, keyed, resp, err, attempt)
		if !again {
			return resp, err
		}
		if resp != nil && m.fault != bodiesLeftOpen {
			_ = resp.Body.Close()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
		if body, err = m.next(req, keyed, sent); err != nil {
			return nil, err
		}
	}
}

// keyed returns a copy of the request with a key, and the key if it is a new one.
func (m *model) keyed(req *http.Request) (keyed *http.Request, generated string) {
	keyed = req.Clone(req.Context())
	if before := req.Response; before != nil && before.Request.URL.Host != req.URL.Host && m.fault != keepsKey {
		keyed.Header.Del("Idempotency-Key")
	}
	keyless := m.fault == noKeys || m.fault == noKeysButRepeats || m.fault == noKeysButRepeatsIfAsked
	if req.Method != http.MethodPost || keyed.Header.Get("Idempotency-Key") != "" || keyless {
		return keyed, ""
	}
	generated = uuid.NewString()
	if m.fault == keyOfTheRequest {
		generated = fmt.Sprintf("%s %s %d", req.Method, req.URL, req.ContentLength)
	}
	if m.fault == keyOfTheClient {
		generated = "client-1"
	}
	keyed.Header.Set("Idempotency-Key", generated)
	return keyed, generated
}

// hold waits while the host is held, and then a moment, because others wait too.
func (m *model) hold(ctx context.Context) bool {
	m.mu.Lock()
	wait := time.Until(m.held)
	m.mu.Unlock()
	if wait <= 0 || m.fault == eachCallAlone {
		return ctx.Err() == nil
	}
	if m.fault == rejects {
		return false
	}
	timer := time.NewTimer(wait + rand.N(time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// plan returns the wait before the next attempt, if there is one.
func (m *model) plan(req, keyed *http.Request, resp *http.Response, err error, attempt int) (wait time.Duration, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if attempt == 1 {
		m.retries += 0.1
	}
	refused := errors.Is(err, syscall.ECONNREFUSED)
	throttled := err == nil && resp.StatusCode == http.StatusTooManyRequests
	failed := err != nil || throttled || resp.StatusCode >= 500 || m.fault == retries404 && resp.StatusCode == http.StatusNotFound
	repeatable := req.Method != http.MethodPost || keyed.Header.Get("Idempotency-Key") != "" || m.fault == noKeysButRepeats ||
		m.fault == noKeysButRepeatsIfAsked && m.retryAfter(resp) > 0
	replayable := req.Body == nil || req.Body == http.NoBody || req.GetBody != nil || m.fault == emptyBody
	switch {
	case !failed, req.Context().Err() != nil, !replayable, !repeatable && !refused && !throttled:
		return 0, false
	case m.fault == noRetries, m.fault == noRetryIfRefused && refused:
		return 0, false
	case attempt > 2 && m.fault != forever:
		return 0, false
	case m.retries < 1 && m.fault != noBudget && m.fault != forever:
		return 0, false
	}
	wait = 4500*time.Millisecond + rand.N(500*time.Millisecond)
	switch m.fault { //nolint:exhaustive // the others do not change the wait
	case noWaitForBody:
		wait = 0
	case noJitter:
		wait = 4500 * time.Millisecond
	case longWait:
		wait = 5 * time.Minute
	}
	if asked := m.retryAfter(resp); asked > 0 {
		wait = asked + rand.N(time.Second)
		if m.fault == noJitterAfterRetryAfter {
			wait = asked
		}
		if throttled {
			m.held = time.Now().Add(asked)
		}
	}
	if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) <= wait {
		wait = time.Until(deadline) / 2
		again = m.fault == earlyRetry && m.retryAfter(resp) > 0
		return wait, again
	}
	m.retries--
	return wait, true
}

func (m *model) retryAfter(resp *http.Response) time.Duration {
	if resp == nil || m.fault == noRetryAfter {
		return 0
	}
	values := resp.Header.Values("Retry-After")
	if len(values) == 0 {
		return 0
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || m.fault == localClock {
		now = time.Now()
	}
	if at, err := m.date(values[0]); err == nil && m.fault != noDates {
		return at.Sub(now)
	}
	list := strings.Contains(values[0], ",")
	if m.fault == noLists && list || m.fault == noFractions && !list {
		n, _ := strconv.Atoi(values[0])
		return time.Duration(n) * time.Second
	}
	first, _, _ := strings.Cut(values[0], ",")
	seconds, _ := strconv.ParseFloat(first, 64)
	return time.Duration(seconds * float64(time.Second))
}

func (m *model) date(value string) (time.Time, error) {
	if m.fault == noOlderDates {
		return time.Parse(http.TimeFormat, value)
	}
	return http.ParseTime(value)
}

// next returns the body of the next attempt.
func (m *model) next(req, keyed *http.Request, sent *sentBody) (io.ReadCloser, error) {
	if m.fault == restOfTheBody {
		return io.NopCloser(sent.ReadCloser), nil
	}
	if m.fault == emptyBody && req.GetBody == nil && keyed.ContentLength == -1 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if req.GetBody == nil {
		return req.Body, nil
	}
	if m.fault != noWaitForBody {
		select {
		case <-sent.closed:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	return req.GetBody()
}

// sentBody tells when Base has closed it.
type sentBody struct {
	io.ReadCloser

	once   sync.Once
	closed chan struct{}
}

func (b *sentBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { close(b.closed) })
	return err
}

func closeBody(body io.Closer) {
	if body != nil {
		_ = body.Close()
	}
}

// around makes a wrap function that makes a model with code around it.
func around(f func(model http.RoundTripper, req *http.Request) (*http.Response, error)) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		client := newModel(none)(base)
		return roundTrip(func(req *http.Request) (*http.Response, error) { return f(client, req) })
	}
}

// below makes a wrap function that makes a model with code below it, which sees all attempts.
func below(f func(base http.RoundTripper, req *http.Request) (*http.Response, error)) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return newModel(none)(roundTrip(func(req *http.Request) (*http.Response, error) { return f(base, req) }))
	}
}

// sendOnceMore sends a GET once more, in the background.
func sendOnceMore(client http.RoundTripper, req *http.Request) {
	if req.Method != http.MethodGet {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), 100*time.Millisecond)
	go func() {
		defer cancel()
		if resp, err := client.RoundTrip(req.Clone(ctx)); err == nil {
			_ = resp.Body.Close()
		}
	}()
}

// closer is a client that must be closed.
type closer struct {
	http.RoundTripper

	end func()
}

func (c closer) Close() error {
	c.end()
	return nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// F1: each mistake fails its row, and no row that does not follow from it.
func TestTransport_findsMistakes(t *testing.T) {
	missing := faulttest.RowNames()
	for _, row := range []struct {
		name   string // the mistake, and its row
		wrap   func(http.RoundTripper) http.RoundTripper
		failed []string // that row, and those that follow from it
	}{
		{"none", newModel(none), nil},
		{"response and error: result", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
				err = errors.New("a failure")
			}
			return resp, err
		}), []string{"last-response", "result"}},
		{"neither response nor error: result", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			return resp, err
		}), []string{"result"}},
		{"a header in the caller's request: request", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			req.Header.Set("X-Attempt", "1")
			return model.RoundTrip(req)
		}), []string{"request"}},
		{"another URL in the caller's request: request", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			req.URL.Fragment = "attempt"
			return model.RoundTrip(req)
		}), []string{"request"}},
		{"another Host in the caller's request: request", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			req.Host = strings.ToUpper(req.Host)
			return model.RoundTrip(req)
		}), []string{"request"}},
		{"a second Close: body-closed", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			defer closeBody(req.Body)
			return model.RoundTrip(req)
		}), []string{"body-closed"}},
		{"no Close if the deadline has passed: body-closed", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			if err := req.Context().Err(); err != nil {
				return nil, err
			}
			return model.RoundTrip(req)
		}), []string{"body-closed"}},
		{"GetBody during a Read: whole-body", newModel(noWaitForBody), []string{"jitter", "outage", "whole-body"}},
		{"the rest of the body: whole-body", newModel(restOfTheBody), []string{"whole-body"}},
		{"an empty body: whole-body", newModel(emptyBody), []string{"body-closed", "whole-body"}},
		{"an error for the last status: last-response", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
				_ = resp.Body.Close()
				return nil, errors.New("giving up")
			}
			return resp, err
		}), []string{"last-response"}},
		{"the body is closed: last-response", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
				_ = resp.Body.Close()
			}
			return resp, err
		}), []string{"last-response"}},
		{"the attempt's context ends with RoundTrip: last-response", below(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(req.Context())
			defer time.AfterFunc(time.Second, cancel)
			return base.RoundTrip(req.WithContext(ctx))
		}), []string{"last-response"}},
		{"a 404 is retried: client-errors", newModel(retries404), []string{"client-errors"}},
		{"a goroutine for each call: goroutines", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			go func() { time.Sleep(time.Hour) }()
			return model.RoundTrip(req)
		}), []string{"goroutines"}},
		{"responses that are retried stay open: goroutines", newModel(bodiesLeftOpen), []string{"goroutines"}},
		{"a goroutine of the client, which Close ends: none", func(base http.RoundTripper) http.RoundTripper {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-ctx.Done() }()
			return closer{newModel(none)(base), cancel}
		}, nil},
		{"a goroutine of the client: goroutines", func(base http.RoundTripper) http.RoundTripper {
			go func() { select {} }()
			return newModel(none)(base)
		}, []string{"goroutines"}},
		{"another key in place of the caller's: caller-key", below(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			if strings.HasPrefix(req.Header.Get("Idempotency-Key"), "caller") {
				req = req.Clone(req.Context())
				req.Header.Set("Idempotency-Key", "mine")
			}
			return base.RoundTrip(req)
		}), []string{"caller-key"}},
		{"no key: keys", newModel(noKeys), []string{"keys"}},
		{"an empty key: keys", below(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			if req.Header.Get("Idempotency-Key") != "caller-1" {
				req.Header["Idempotency-Key"] = []string{""}
			}
			return base.RoundTrip(req)
		}), []string{"done-once", "keys"}},
		{"one key for equal calls: keys", newModel(keyOfTheRequest), []string{"keys"}},
		{"one key for all calls: keys", newModel(keyOfTheClient), []string{"keys", "redirects"}},
		{"a new key for each attempt: keys", newModel(newKeyForEachAttempt), []string{"done-once", "keys"}},
		{"a POST without a key is repeated: done-once", newModel(noKeysButRepeats), []string{"done-once", "keys"}},
		{"a POST without a key is repeated after a 503 with Retry-After: done-once", newModel(noKeysButRepeatsIfAsked), []string{"done-once", "keys"}},
		{"the caller's key at another origin: redirects", newModel(keepsKey), []string{"redirects"}},
		{"credentials at another origin: redirects", below(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("Authorization", "Bearer secret")
			return base.RoundTrip(req)
		}), []string{"redirects"}},
		{"the caller's deadline at another origin: redirects", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			if deadline, ok := req.Context().Deadline(); ok {
				req.Header.Set("Grpc-Timeout", time.Until(deadline).String())
			}
			return model.RoundTrip(req)
		}), []string{"redirects"}},
		{"a redirect is an error: redirects", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if err == nil && resp.StatusCode/100 == 3 {
				_ = resp.Body.Close()
				return nil, errors.New("a redirect")
			}
			return resp, err
		}), []string{"redirects"}},
		{"Retry-After is ignored: retry-after", newModel(noRetryAfter), []string{"retry-after", "retry-after-clock", "retry-after-list", "throttled-host"}},
		{"a date by the local clock: retry-after-clock", newModel(localClock), []string{"retry-after-clock"}},
		{"dates are ignored: retry-after", newModel(noDates), []string{"retry-after", "retry-after-clock", "retry-after-list"}},
		{"a list is ignored: retry-after-list", newModel(noLists), []string{"retry-after-list"}},
		{"an older date is ignored: retry-after-list", newModel(noOlderDates), []string{"retry-after-list"}},
		{"a fraction is ignored: retry-after-list", newModel(noFractions), []string{"retry-after-list"}},
		{"a constant wait: jitter", newModel(noJitter), []string{"jitter"}},
		{"the wait that was asked for: jitter", newModel(noJitterAfterRetryAfter), []string{"jitter"}},
		{"five minutes between attempts: bounded", newModel(longWait), []string{"bounded", "outage"}},
		{"attempts without an end: bounded", newModel(forever), []string{"bounded", "budget"}},
		{"the deadline is ignored: deadline", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
			context.AfterFunc(req.Context(), func() {
				if errors.Is(req.Context().Err(), context.Canceled) {
					cancel()
				}
			})
			return model.RoundTrip(req.WithContext(ctx))
		}), []string{"body-closed", "deadline", "done-once", "goroutines", "request", "result"}}, // its calls do not return
		{"an early retry if the deadline leaves no other: retry-after", newModel(earlyRetry), []string{"retry-after"}},
		{"a return after the deadline: deadline", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if errors.Is(err, context.DeadlineExceeded) {
				time.Sleep(50 * time.Millisecond)
			}
			return resp, err
		}), []string{"deadline"}},
		{"an attempt after the deadline: deadline", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if errors.Is(err, context.DeadlineExceeded) {
				sendOnceMore(model, req)
			}
			return resp, err
		}), []string{"deadline"}},
		{"a return after the cancellation: cancel", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if errors.Is(err, context.Canceled) {
				time.Sleep(50 * time.Millisecond)
			}
			return resp, err
		}), []string{"cancel"}},
		{"an attempt after the cancellation: cancel", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := model.RoundTrip(req)
			if errors.Is(err, context.Canceled) {
				sendOnceMore(model, req)
			}
			return resp, err
		}), []string{"cancel"}},
		{"the cancellation is ignored: cancel", around(func(model http.RoundTripper, req *http.Request) (*http.Response, error) {
			ctx := context.WithoutCancel(req.Context())
			if deadline, ok := req.Context().Deadline(); ok {
				timed, cancel := context.WithDeadline(ctx, deadline)
				time.AfterFunc(time.Until(deadline), cancel)
				ctx = timed
			}
			return model.RoundTrip(req.WithContext(ctx))
		}), []string{"cancel"}},
		{"the other calls do not wait: throttled-host", newModel(eachCallAlone), []string{"throttled-host"}},
		{"the other calls fail: throttled-host", newModel(rejects), []string{"throttled-host"}},
		{"no retries: outage", newModel(noRetries), []string{"outage", "throttled-host"}},
		{"no retry after a refused connection: outage", newModel(noRetryIfRefused), []string{"outage"}},
		{"a retry for each call: budget", newModel(noBudget), []string{"budget"}},
		{"base is not used: all", func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { return nil, os.ErrPermission })
		}, faulttest.RowNames()},
		{"a panic: all", func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { panic("a client that panics") })
		}, faulttest.RowNames()},
		{"wrap returns nil: all", func(http.RoundTripper) http.RoundTripper { return nil }, faulttest.RowNames()},
		{"a call that does not return: all", func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { select {} })
		}, faulttest.RowNames()},
	} {
		t.Run(row.name, func(t *testing.T) {
			failed := faulttest.FailedRows(t, row.wrap)
			slices.Sort(row.failed)
			if got := slices.Sorted(maps.Keys(failed)); !slices.Equal(row.failed, got) {
				t.Errorf("failed rows: got %v, want %v", got, row.failed)
				for name, failures := range failed {
					if !slices.Contains(row.failed, name) {
						t.Log(name, failures[len(failures)-1])
					}
				}
			}
		})
		_, its, _ := strings.Cut(row.name, ": ")
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == its && slices.Contains(row.failed, name) })
	}
	require.Empty(t, missing, "rows without a mistake")
}

// F1: the options.
func TestTransport_options(t *testing.T) {
	other := func(base http.RoundTripper) http.RoundTripper {
		return newModel(none)(roundTrip(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			if key := req.Header.Get("Idempotency-Key"); key != "" {
				req.Header.Del("Idempotency-Key")
				req.Header.Set("X-Key", key)
			}
			return base.RoundTrip(req)
		}))
	}
	for _, row := range []struct {
		name    string
		wrap    func(http.RoundTripper) http.RoundTripper
		options []faulttest.TestOption
		failed  []string
	}{
		{"the row that fails is left out", newModel(noKeys), []faulttest.TestOption{faulttest.Without(rowsBut("cancel")...)}, nil},
		{"other rows are left out", newModel(noKeys), []faulttest.TestOption{faulttest.Without(rowsBut("keys", "jitter")...), faulttest.Without("jitter")}, []string{"keys"}},
		{"no rows are left out", newModel(noKeys), []faulttest.TestOption{faulttest.Without()}, []string{"keys"}},
		{"another field of the key", other, []faulttest.TestOption{faulttest.WithKeyHeader("X-Key"), faulttest.Without(rowsBut("keys", "done-once")...)}, nil},
		{"the wrong field of the key", other, []faulttest.TestOption{faulttest.WithKeyHeader(""), faulttest.Without(rowsBut("keys", "done-once")...)}, []string{"done-once", "keys"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.failed, slices.Sorted(maps.Keys(faulttest.FailedRows(t, row.wrap, row.options...))))
		})
	}
}

// rowsBut returns all other rows.
func rowsBut(names ...string) []string {
	return slices.DeleteFunc(faulttest.RowNames(), func(name string) bool { return slices.Contains(names, name) })
}

// F1: each client is closed once.
func TestTransport_closes(t *testing.T) {
	var made, closed atomic.Int64
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		made.Add(1)
		return closer{newModel(none)(base), func() { closed.Add(1) }}
	})
	require.Equal(t, made.Load(), closed.Load())
	require.Greater(t, made.Load(), int64(100))
}

// childTest is the variable of a process in which a test must fail.
const childTest = "FAULTTEST_CHILD"

// F2: mistakes in the use of TestTransport, and the text of a failed row.
func TestTransport_failures(t *testing.T) {
	wrap := func(base http.RoundTripper) http.RoundTripper { return base }
	children := map[string]struct {
		test func(*testing.T)
		want []string
	}{
		"a name that is no row": {
			func(t *testing.T) { faulttest.TestTransport(t, wrap, faulttest.Without("jitter", "budgets")) },
			[]string{`Without: "budgets" is not a row (want some of result, request, `},
		},
		"no wrap":     {func(t *testing.T) { faulttest.TestTransport(t, nil) }, []string{"wrap is nil"}},
		"in a bubble": {func(t *testing.T) { synctest.Test(t, func(t *testing.T) { faulttest.TestTransport(t, wrap) }) }, []string{"in a synctest bubble"}},
		"failed rows": {
			func(t *testing.T) { faulttest.TestTransport(t, wrap) },
			[]string{
				"--- FAIL: TestTransport_failures/keys", "--- PASS: TestTransport_failures/deadline",
				"a lost response: faulttest: idempotency keys, one for each call\n        want: 1\n        got:  0",
				"POST /file", "\n        why: With a new key for each attempt", "\n        source: draft-ietf-httpapi-idempotency-key-header",
				"(failures that are not shown: 1)",
			},
		},
	}
	if name := os.Getenv(childTest); name != "" {
		children[name].test(t)
		return
	}
	for name, child := range children {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTransport_failures$", "-test.v")
			cmd.Env = append(os.Environ(), childTest+"="+name)
			output, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.NotContains(t, string(output), "panic:")
			for _, text := range child.want {
				require.Contains(t, string(output), text)
			}
		})
	}
}

// F2: the documentation has the rows in their order, and each row has a reason and a source.
func TestTransport_documentsItsRows(t *testing.T) {
	text, err := os.ReadFile("conform.go")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^//\t([a-z0-9-]+)  `).FindAllStringSubmatch(string(text), -1) {
		names = append(names, match[1])
	}
	require.Equal(t, faulttest.RowNames(), names)
	require.Empty(t, faulttest.RowsWithoutReason())
}
