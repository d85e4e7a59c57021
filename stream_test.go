package resilienthttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

type (
	abort  struct{} // a step of a stream: the connection breaks
	wait   time.Duration
	header map[string]string // the response's, before all other steps
)

// streaming serves a stream of events. Each text is a chunk.
func streaming(steps ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, step := range steps {
			switch step := step.(type) {
			case header:
				for name, value := range step {
					w.Header().Set(name, value)
				}
				continue
			case int:
				w.WriteHeader(step)
			case wait:
				_ = http.NewResponseController(w).Flush()
				if sleep.Context(r.Context(), time.Duration(step)) != nil {
					return
				}
			case string:
				_, _ = io.WriteString(w, step)
			case abort:
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// turns serves the n-th request with the n-th handler, and further ones with the last.
type turns struct {
	handlers []http.Handler
	requests atomic.Int64
}

func inTurn(handlers ...http.Handler) *turns { return &turns{handlers: handlers} }

func (s *turns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(s.requests.Add(1))
	s.handlers[min(n, len(s.handlers))-1].ServeHTTP(w, r)
}

// byName is a Stream that knows the events of these tests.
func byName(name string, data []byte) resilienthttp.Verdict {
	switch {
	case name == "ping":
		return resilienthttp.VerdictPending
	case strings.Contains(string(data), "overloaded"):
		return resilienthttp.VerdictThrottled
	case strings.Contains(string(data), "internal"):
		return resilienthttp.VerdictTransient
	case name == "error":
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

const (
	content    = "data: hello\n\n"
	ping       = "event: ping\ndata: {}\n\n"
	overloaded = "event: error\ndata: overloaded\n\n"
	internal   = "event: error\ndata: internal\n\n"
	invalid    = "event: error\ndata: invalid\n\n"
)

func harmless(*http.Request) bool { return true }

// streamPolicy returns a policy with quick retries.
func streamPolicy() resilienthttp.Policy {
	return resilienthttp.Policy{
		Stream: &resilienthttp.Stream{Classify: byName}, Idempotent: harmless,
		Backoff: resilienthttp.Constant(100 * time.Millisecond), MaxAttempts: 3,
	}
}

// streamClient returns a Transport to a server in memory, and its URL.
func streamClient(t *testing.T, policy resilienthttp.Policy, handler http.Handler, options ...memhttp.Option) (*resilienthttp.Transport, string) {
	t.Helper()
	s := memhttp.NewServer(t, handler, options...)
	tr := &resilienthttp.Transport{Base: s.Transport(), Policy: policy, Idempotency: resilienthttp.Idempotency{Disabled: true}}
	require.NoError(t, tr.Validate())
	return tr, s.URL
}

// S1: when the response is returned, and that the caller reads the server's bytes.
func TestStream_returns(t *testing.T) {
	big := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	for _, row := range []struct {
		name  string
		first time.Duration // FirstEvent
		steps []any
		want  string
		took  time.Duration // until RoundTrip returns
	}{
		{"content at once", 0, []any{content, wait(time.Hour), "data: more\n\n"}, content + "data: more\n\n", 0},
		{"content later", 0, []any{wait(3 * time.Second), content, wait(time.Hour)}, content, 3 * time.Second},
		{"content in pieces", 0, []any{"da", wait(time.Second), "ta: x\n", wait(time.Second), "\n", wait(time.Hour)}, "data: x\n\n", 2 * time.Second},
		{"pending, then content", 0, []any{ping, wait(time.Second), ": c\n\n", wait(time.Second), content}, ping + ": c\n\n" + content, 2 * time.Second},
		{"10 s after the first pending event", 0, []any{wait(time.Second), ping, wait(7 * time.Second), ping, wait(time.Hour), content}, ping + ping + content, 11 * time.Second},
		{"10 s after the first comment", 0, []any{": c\n", wait(time.Hour), content}, ": c\n" + content, 10 * time.Second},
		{"pending, and FirstEvent later", 15 * time.Second, []any{wait(time.Second), ping, wait(time.Hour), content}, ping + content, 11 * time.Second},
		{"pending, and FirstEvent at the same time", 10 * time.Second, []any{ping, wait(time.Hour), content}, ping + content, 10 * time.Second},
		{"content before FirstEvent", 5 * time.Second, []any{wait(4 * time.Second), content, wait(time.Hour), content}, content + content, 4 * time.Second},
		{"a failure after the return for a pending event", 0, []any{ping, wait(11 * time.Second), overloaded}, ping + overloaded, 10 * time.Second},
		{"a failure after content", 0, []any{content, overloaded}, content + overloaded, 0},
		{"a failure after content, in one chunk", 0, []any{content + overloaded}, content + overloaded, 0},
		{"64 KiB of one event", 0, []any{big[:64<<10], wait(time.Hour), big[64<<10:]}, big, 0},
		{"one byte less than 64 KiB", 0, []any{big[:64<<10-1], wait(time.Second), big[64<<10-1:]}, big, time.Second},
		{"64 KiB of comments", 0, []any{strings.Repeat(": c\n", 16<<10), wait(time.Hour), content}, strings.Repeat(": c\n", 16<<10) + content, 0},
		{"L5: five minutes later: no second attempt, because the server has answered", 0, []any{wait(5 * time.Minute), content}, content, 5 * time.Minute},
		{"a permanent failure, with its event", 0, []any{ping, invalid, "data: x\n\n"}, ping + invalid + "data: x\n\n", 0},
	} {
		for protocol, options := range protocols {
			bubble.Run(t, row.name+", "+protocol, func(t *testing.T) {
				server := inTurn(streaming(row.steps...))
				policy := streamPolicy()
				policy.Stream.FirstEvent = row.first
				tr, url := streamClient(t, policy, server, options...)
				start := time.Now()
				resp := roundTrip(t, tr, newRequest(t, "GET", url, ""))
				require.Equal(t, row.took, time.Since(start))
				require.Equal(t, row.want, readAll(t, resp))
				require.EqualValues(t, 1, server.requests.Load(), "nothing is repeated")
			})
		}
	}
}

// S1: once the response is returned, each chunk is there when the server sends it.
func TestStream_chunksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []any{ping, wait(15 * time.Second)} // the response is returned during this wait, and a Read is in flight
		for i := range 5 {
			steps = append(steps, fmt.Sprintf("data: %d\n\n", i), wait(time.Second))
		}
		tr, url := streamClient(t, streamPolicy(), streaming(steps...))
		start := time.Now()
		resp := roundTrip(t, tr, newRequest(t, "POST", url, "{}"))
		require.Equal(t, 10*time.Second, time.Since(start))
		buf := make([]byte, 1000)
		n, err := resp.Body.Read(buf)
		require.NoError(t, err)
		require.Equal(t, ping, string(buf[:n]))
		n, err = resp.Body.Read(nil)
		require.Zero(t, n)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(start), "an empty Read does not wait")
		for i := range 5 {
			n, err := resp.Body.Read(buf)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n\n", i), string(buf[:n]))
			require.Equal(t, time.Duration(15+i)*time.Second, time.Since(start))
		}
		n, err = resp.Body.Read(buf)
		require.Zero(t, n)
		require.Equal(t, io.EOF, err)
		require.NoError(t, resp.Body.Close())
	})
}

// S1: the figures of docs/streams.md: a turn that is pending at once, and has content later, beside a bare client.
func TestStream_turns(t *testing.T) {
	for content, held := range map[time.Duration]time.Duration{500 * time.Millisecond: 500 * time.Millisecond, 30 * time.Second: 10 * time.Second, 300 * time.Second: 10 * time.Second} {
		bubble.Run(t, content.String(), func(t *testing.T) {
			s := memhttp.NewServer(t, streaming(ping, wait(content), "data: x\n\n"))
			for name, row := range map[string]struct {
				rt   http.RoundTripper
				took time.Duration
			}{"bare": {s.Transport(), 0}, "ours": {&resilienthttp.Transport{Base: s.Transport(), Policy: streamPolicy()}, held}} {
				start := time.Now()
				resp := roundTrip(t, row.rt, newRequest(t, "POST", s.URL, "{}"))
				require.Equal(t, row.took, time.Since(start), name)
				first := make([]byte, len(ping))
				_, err := io.ReadFull(resp.Body, first)
				require.NoError(t, err)
				require.Equal(t, row.took, time.Since(start), name)
				readAll(t, resp)
				require.Equal(t, content, time.Since(start), name)
			}
		})
	}
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Flush()
	return b.String()
}

// S2: streams of any form pass byte for byte: what the caller reads, and its error, are those of a bare client.
func TestStream_hostile(t *testing.T) {
	gz := header{"Content-Encoding": "gzip"}
	mebibyte := "data: " + strings.Repeat("0123456789abcde\n"[:15], 1<<16) + "\n\n"
	for _, row := range []struct {
		name  string
		steps []any
		asks  string // Accept-Encoding of the caller
	}{
		{"CRLF over chunks", []any{"data: x\r", wait(time.Second), "\n\r", wait(time.Second), "\ndata: y\r\n\r\n"}, ""},
		{"CR alone", []any{"data: x\r\r", wait(time.Second), "data: y\r\r"}, ""},
		{"a byte order mark over chunks", []any{"\xef", wait(time.Second), "\xbb\xbfdata: x\n\n"}, ""},
		{"data over several lines", []any{"data: {\ndata: }\n\n"}, ""},
		{"events of 1 MiB", []any{mebibyte, mebibyte}, ""},
		{"one byte each", bytewise(ping + content), ""},
		{"gzip", []any{gz, zipped(ping + content)}, ""},
		{"gzip that the caller asked for", []any{gz, zipped(overloaded)}, "gzip"},
		{"broken gzip after content", []any{gz, zipped(content), "no gzip"}, ""},
		{"no empty line at the end", []any{"event: a\ndata: x\n"}, ""},
		{"only comments, for long", []any{": c\n\n", wait(8 * time.Second), ": c\n\n", wait(8 * time.Second), ": c\n\n"}, ""},
		{"break after content", []any{content, abort{}}, ""},
		{"break after content, later", []any{content, wait(time.Second), "data: y", abort{}}, ""},
		{"break after 10 s of pending events", []any{ping, wait(11 * time.Second), abort{}}, ""},
		{"no events at all", []any{strings.Repeat("no event stream", 1<<13)}, ""},
		{"NUL and other bytes", []any{"data: \x00\xff\xfe\n\nevent\x00: x\n\n"}, ""},
		{"content length", []any{header{"Content-Length": "13"}, content}, ""},
		{"a status of 201", []any{201, overloaded}, ""},
		{"an error status", []any{400, invalid}, ""},
		{"another content type", []any{header{"Content-Type": "application/json"}, overloaded}, ""},
		{"a longer content type", []any{header{"Content-Type": "text/event-stream2"}, overloaded}, ""},
	} {
		for protocol, options := range protocols {
			bubble.Run(t, row.name+", "+protocol, func(t *testing.T) {
				s := memhttp.NewServer(t, streaming(row.steps...), options...)
				read := func(rt http.RoundTripper) (string, string) {
					req := newRequest(t, "POST", s.URL, "{}")
					if row.asks != "" {
						req.Header.Set("Accept-Encoding", row.asks)
					}
					resp := roundTrip(t, rt, req)
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, resp.Body.Close())
					return fmt.Sprint(resp.StatusCode, resp.ContentLength, resp.Uncompressed, resp.Header.Get("Content-Type"), string(body)), fmt.Sprint(err)
				}
				wantBody, wantErr := read(s.Transport())
				body, err := read(&resilienthttp.Transport{Base: s.Transport(), Policy: streamPolicy()})
				require.Equal(t, wantBody, body)
				require.Equal(t, wantErr, err)
			})
		}
	}
}

func bytewise(text string) (steps []any) {
	for i := range len(text) {
		steps = append(steps, text[i:i+1])
	}
	return steps
}

// S2: with a byte order mark, CR or gzip the first event is found, so that its failure is retried.
func TestStream_failureInAnyForm(t *testing.T) {
	for name, steps := range map[string][]any{
		"LF":                   {overloaded},
		"CRLF":                 {strings.ReplaceAll(overloaded, "\n", "\r\n")},
		"CR":                   {strings.ReplaceAll(overloaded, "\n", "\r")},
		"byte order mark":      {"\ufeff" + overloaded},
		"over several lines":   {"event: error\ndata: over\ndata: overloaded\n\n"},
		"after comments":       {": c\n\n" + ping + overloaded},
		"one byte each":        bytewise(overloaded),
		"gzip":                 {header{"Content-Encoding": "gzip"}, zipped(overloaded)},
		"no empty line":        {strings.TrimSpace(overloaded)},
		"parameters of type":   {header{"Content-Type": "Text/Event-Stream; charset=utf-8"}, overloaded},
		"with further content": {overloaded + content},
		"the stream goes on":   {overloaded, wait(time.Hour)},
	} {
		for protocol, options := range protocols {
			bubble.Run(t, name+", "+protocol, func(t *testing.T) {
				server := inTurn(streaming(steps...), streaming(content))
				tr, url := streamClient(t, streamPolicy(), server, options...)
				require.Equal(t, content, readAll(t, roundTrip(t, tr, newRequest(t, "POST", url, "{}"))))
				require.EqualValues(t, 2, server.requests.Load())
			})
		}
	}
}

// S3, S5: a failure of each kind, what the call makes of it, and what it says of the work.
func TestStream_failures(t *testing.T) {
	silence := []any{wait(time.Hour)}
	for _, row := range []struct {
		name      string
		first     []any
		harmless  bool
		requests  int64
		class     string // of the result: content, event, error
		is        error
		inDoubt   bool
		didChange func(*resilienthttp.Policy)
	}{
		{"overloaded: no work was done", []any{overloaded}, false, 2, "content", nil, false, nil},
		{"overloaded, idempotent", []any{overloaded}, true, 2, "content", nil, false, nil},
		{"internal: in doubt", []any{internal}, false, 1, "event", nil, true, nil},
		{"internal, idempotent", []any{internal}, true, 2, "content", nil, false, nil},
		{"invalid: permanent", []any{invalid}, true, 1, "event", nil, false, nil},
		{"end: in doubt", []any{ping}, false, 1, "error", io.ErrUnexpectedEOF, true, nil},
		{"end, idempotent", []any{ping}, true, 2, "content", nil, false, nil},
		{"an empty stream", []any{header{"Content-Length": "0"}}, false, 1, "error", io.ErrUnexpectedEOF, true, nil},
		{"an empty stream, idempotent", nil, true, 2, "content", nil, false, nil},
		{"break: in doubt", []any{ping, abort{}}, false, 1, "error", resilienthttp.ErrNotIdempotent, true, nil},
		{"break, idempotent", []any{ping, abort{}}, true, 2, "content", nil, false, nil},
		{"break inside of content", []any{"data: hel", abort{}}, true, 2, "content", nil, false, nil},
		{"silence: in doubt", silence, false, 1, "error", resilienthttp.ErrAttemptTimeout, true, nil},
		{"silence, idempotent", silence, true, 2, "content", nil, false, nil},
		{"silence after a pending event, idempotent", []any{ping, wait(time.Hour)}, true, 2, "content", nil, false, nil},
		{"silence, and AttemptTimeout", silence, true, 2, "content", nil, false, func(p *resilienthttp.Policy) {
			p.Stream.FirstEvent, p.AttemptTimeout = 0, 5*time.Second
		}},
		{"no attempt left: the event is the result", []any{overloaded}, true, 1, "event", nil, false, func(p *resilienthttp.Policy) { p.MaxAttempts = 1 }},
		{"no attempt left after an end", []any{ping}, true, 1, "error", resilienthttp.ErrMaxAttempts, true, func(p *resilienthttp.Policy) { p.MaxAttempts = 1 }},
		{"Classify overrules", []any{invalid}, true, 2, "content", nil, false, func(p *resilienthttp.Policy) {
			p.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				if a.Verdict == resilienthttp.VerdictPermanent {
					return resilienthttp.VerdictTransient
				}
				return resilienthttp.VerdictPending
			}
		}},
		{"§4.10: a header written before the failure says retry, in doubt", []any{header{"X-Should-Retry": "true"}, internal}, false, 1, "event", nil, true, nil},
		{"§4.10: a header written before the failure says retry, permanent", []any{header{"X-Should-Retry": "true"}, invalid}, true, 1, "event", nil, false, nil},
		{"a header says do not retry", []any{header{"X-Should-Retry": "false"}, overloaded}, true, 1, "event", nil, false, nil},
	} {
		for protocol, options := range protocols {
			bubble.Run(t, row.name+", "+protocol, func(t *testing.T) {
				server := inTurn(streaming(row.first...), streaming(content))
				policy := streamPolicy()
				policy.Stream.FirstEvent = 5 * time.Second
				if !row.harmless {
					policy.Idempotent = nil
				}
				if row.didChange != nil {
					row.didChange(&policy)
				}
				tr, url := streamClient(t, policy, server, options...)
				base := &countingBase{base: tr.Base}
				tr.Base = base
				resp, err := tr.RoundTrip(newRequest(t, "POST", url, "{}"))
				require.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, err))
				switch row.class {
				case "content":
					require.NoError(t, err)
					require.Equal(t, content, readAll(t, resp))
					attempts := resilienthttp.Attempts(resp)
					require.Len(t, attempts, 2)
					require.True(t, attempts[0].Verdict == resilienthttp.VerdictThrottled || attempts[0].Verdict == resilienthttp.VerdictTransient)
				case "event":
					require.NoError(t, err)
					require.Equal(t, row.first[len(row.first)-1], readAll(t, resp))
				case "error":
					require.ErrorIs(t, err, row.is)
					require.Nil(t, resp)
					require.False(t, asError(t, err).NotSent())
				}
				require.Equal(t, row.requests, server.requests.Load())
				base.requireBalance(t)
			})
		}
	}
}

// S4, S5: the error of a stream that was silent.
func TestStream_silenceIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := resilienthttp.Policy{Stream: &resilienthttp.Stream{FirstEvent: 5 * time.Second}}
		tr, url := streamClient(t, policy, streaming(wait(time.Hour)))
		_, err := tr.RoundTrip(newRequest(t, "POST", url, "{}"))
		failed := asError(t, err)
		require.Equal(t, resilienthttp.ErrAttemptTimeout, failed.Reason)
		require.True(t, failed.Timeout())
		require.Equal(t, resilienthttp.ErrNotIdempotent, failed.Attempts[0].StopReason)
		require.Equal(t, "timeout", resilienthttp.ErrorType(err))
		require.Equal(t, "resilienthttp: attempt timed out: event stream had no event of content within FirstEvent (attempt 1)", failed.Error())
	})
}

// S5: when its stream has begun the server has the request, whatever the error of the body looks like.
func TestStream_begunIsInDoubt(t *testing.T) {
	for name, broken := range map[string]error{
		"as if not connected": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"as if not processed": errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer"),
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := script(withBody(200, &pieces{stream: ping, piece: 100, end: broken}, "Content-Type", "text/event-stream"), status(200))
			policy := streamPolicy()
			policy.Idempotent = nil
			tr := &resilienthttp.Transport{Base: base, Policy: policy, Idempotency: resilienthttp.Idempotency{Disabled: true}}
			_, err := tr.RoundTrip(newRequest(t, "POST", "http://mem.test", "{}"))
			require.ErrorIs(t, err, broken)
			require.Len(t, asError(t, err).Attempts, 1)
			require.True(t, resilienthttp.InDoubt(nil, err))
			require.False(t, asError(t, err).NotSent())
		})
	}
}

// S5: a failure event is to the circuit, the counts and the quotas what its status is.
func TestStream_countsAsStatus(t *testing.T) {
	for _, row := range []struct {
		name   string
		events string
		open   bool
		check  func(*testing.T, resilienthttp.ScopeState)
	}{
		{"internal: a server's error", internal, true, func(t *testing.T, s resilienthttp.ScopeState) {
			require.Equal(t, 30, s.Responses.ServerErrors+s.Responses.Rejected)
		}},
		{"overloaded: throttled", overloaded, false, func(t *testing.T, s resilienthttp.ScopeState) { require.NotZero(t, s.Responses.Throttled) }},
		{"invalid: a client's error", invalid, false, func(t *testing.T, s resilienthttp.ScopeState) { require.Equal(t, 30, s.Responses.ClientErrors) }},
		{"an end: a network error", ping, true, func(t *testing.T, s resilienthttp.ScopeState) { require.NotZero(t, s.Responses.NetworkErrors) }},
		{"content: a success", content, false, func(t *testing.T, s resilienthttp.ScopeState) { require.Zero(t, s.Responses.Failures()) }},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			policy := streamPolicy()
			policy.MaxAttempts = 1
			tr, url := streamClient(t, policy, streaming(row.events))
			tr.Breaker = &resilienthttp.Breaker{MaxWait: -1, Cooldown: time.Minute, MaxCooldown: time.Minute}
			for range 30 {
				resp, err := tr.RoundTrip(newRequest(t, "POST", url, "{}"))
				finish(t, resp, err)
				time.Sleep(10 * time.Millisecond)
			}
			s := tr.State().Scopes[0]
			require.Equal(t, row.open, s.Breaker.State == resilienthttp.StateOpen)
			row.check(t, s)
		})
	}
}

// S5: State, and the records of LogTrace, name the verdict of a failure event, because its status is 200.
func TestStream_failureIsNamed(t *testing.T) {
	for _, row := range []struct{ name, events, want string }{
		{"overloaded: throttled", overloaded, "throttled"},
		{"internal: transient", internal, "transient"},
		{"invalid: permanent", invalid, "permanent"},
		{"content: none", content, ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var text bytes.Buffer
			policy := streamPolicy()
			policy.MaxAttempts = 1
			tr, url := streamClient(t, policy, streaming(row.events))
			tr.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
			readAll(t, roundTrip(t, tr, newRequest(t, "POST", url, "{}")))
			want := resilienthttp.FailureStatus{}
			if row.want != "" {
				want = resilienthttp.FailureStatus{At: time.Now(), Status: 200, ErrorType: row.want}
			}
			require.Equal(t, want, tr.State().Scopes[0].Failure)
			records := strings.Split(strings.TrimSpace(text.String()), "\n")
			require.Len(t, records, 2, "of the attempt and of the call")
			for _, record := range records {
				require.Contains(t, record, "http.response.status_code=200")
				require.Equal(t, row.want != "", strings.Contains(record, " error.type="+row.want), record)
			}
		})
	}
}

// S5: a throttled event reaches the quotas as a 429 does: eight in a row hold the scope, and others do not.
func TestStream_throttledReachesQuotas(t *testing.T) {
	for _, row := range []struct {
		name, events string
		status       int
		held         bool
	}{
		{"throttled", overloaded, http.StatusOK, true},
		{"429", content, http.StatusTooManyRequests, true},
		{"transient", internal, http.StatusOK, false},
		{"permanent", invalid, http.StatusOK, false},
		{"content", content, http.StatusOK, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			policy := streamPolicy()
			policy.MaxAttempts = 1
			tr, url := streamClient(t, policy, streaming(header{"Retry-After": "20"}, row.status, row.events))
			tr.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
			for range 8 {
				readAll(t, roundTrip(t, tr, newRequest(t, "POST", url, "{}")))
				time.Sleep(150 * time.Millisecond)
			}
			blocked := time.Time{}
			for _, q := range tr.State().Scopes[0].Quotas {
				blocked = q.BlockedUntil
			}
			require.Equal(t, row.held, !blocked.IsZero(), blocked)
		})
	}
}

// oneAndTwo is a Transport to the endpoints one.test and two.test, without keys.
func oneAndTwo(base http.RoundTripper, policy resilienthttp.Policy) *endpoints.Transport {
	return &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "one", URL: &url.URL{Scheme: "http", Host: "one.test"}}, {Name: "two", URL: &url.URL{Scheme: "http", Host: "two.test"}}},
		Transport: &resilienthttp.Transport{Base: base, Policy: policy, Idempotency: resilienthttp.Idempotency{Disabled: true}},
	}
}

// S4: FirstEvent ends the attempt, and a call with endpoints goes to the next one; without Idempotent it stays.
func TestStream_firstEventMoves(t *testing.T) {
	for _, harmlessCall := range []bool{true, false} {
		bubble.Run(t, fmt.Sprintf("Idempotent %v", harmlessCall), func(t *testing.T) {
			network := memhttp.NewNetwork(t)
			silent, healthy := inTurn(streaming(wait(time.Hour))), inTurn(streaming(wait(time.Second), content))
			one := network.Serve(t, "one.test", silent)
			network.Serve(t, "two.test", healthy)
			policy := resilienthttp.Policy{Stream: &resilienthttp.Stream{FirstEvent: 5 * time.Second, Classify: byName}}
			if harmlessCall {
				policy.Idempotent = harmless
			}
			client := &http.Client{Transport: oneAndTwo(one.Transport(), policy)}
			start := time.Now()
			resp, err := client.Do(newRequest(t, "POST", "http://one.test/", "{}"))
			if !harmlessCall {
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
				require.Equal(t, 5*time.Second, time.Since(start))
				require.Zero(t, healthy.requests.Load())
				return
			}
			require.NoError(t, err)
			require.Equal(t, 6*time.Second, time.Since(start), "the next endpoint gets it at once")
			require.Equal(t, content, readAll(t, resp))
			require.Equal(t, "two", lastOf(t, resp).Endpoint)
			require.EqualValues(t, 1, silent.requests.Load())
		})
	}
}

// S4: ReadTimeout counts after the return, and only while the server is silent.
func TestStream_readTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := streamPolicy()
		policy.ReadTimeout = 3 * time.Second
		tr, url := streamClient(t, policy, streaming(wait(8*time.Second), content, wait(2*time.Second), content, wait(time.Hour), content))
		start := time.Now()
		resp, err := tr.RoundTrip(newRequest(t, "POST", url, "{}"))
		require.NoError(t, err)
		require.Equal(t, 8*time.Second, time.Since(start), "silence before the return is not counted")
		time.Sleep(time.Hour / 2) // the caller is slow
		got, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, resilienthttp.ErrReadTimeout)
		require.Equal(t, content+content, string(got))
		require.Equal(t, 8*time.Second+time.Hour/2+3*time.Second, time.Since(start))
		require.NoError(t, resp.Body.Close())
	})
}

// S6: State's latency is the time to the return, and the slot of MaxInFlight is held until then.
func TestStream_slotAndLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, url := streamClient(t, streamPolicy(), streaming(wait(4*time.Second), content, wait(time.Hour)))
		tr.RateLimit = &resilienthttp.RateLimit{MaxInFlight: 1}
		start := time.Now()
		var calls sync.WaitGroup
		var last atomic.Int64
		for range 3 {
			calls.Go(func() {
				resp, err := tr.RoundTrip(newRequest(t, "POST", url, "{}"))
				if err == nil {
					last.Store(int64(time.Since(start)))
					_ = resp.Body.Close()
				}
			})
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, tr.State().Scopes[0].InFlight)
		calls.Wait()
		require.EqualValues(t, 12*time.Second, last.Load(), "one after the other")
		s := tr.State().Scopes[0]
		require.Zero(t, s.InFlight)
		require.InDelta(t, 4, s.Latency.P50.Seconds(), 0.01)
		require.Equal(t, 3, s.Latency.Samples)
	})
}

// A call that is canceled, or past its deadline, while its stream is held ends at once and closes the body.
func TestStream_cancel(t *testing.T) {
	for name, row := range map[string]struct {
		ctx func(*testing.T) context.Context
		is  error
	}{
		"cancel":   {func(t *testing.T) context.Context { return canceledAfter(t.Context(), 2*time.Second) }, context.Canceled},
		"deadline": {func(t *testing.T) context.Context { return withDeadline(t, 2*time.Second) }, resilienthttp.ErrDeadline},
	} {
		for kind, base := range map[string]func(*testing.T) http.RoundTripper{
			"net/http": func(t *testing.T) http.RoundTripper {
				return memhttp.NewServer(t, streaming(ping, wait(time.Hour))).Transport()
			},
			"a body that only Close unblocks": func(*testing.T) http.RoundTripper {
				return script(withBody(200, newBlocking(), "Content-Type", "text/event-stream"))
			},
		} {
			bubble.Run(t, name+", "+kind, func(t *testing.T) {
				counted := &countingBase{base: base(t)}
				tr := &resilienthttp.Transport{Base: counted, Policy: streamPolicy()}
				start := time.Now()
				_, err := tr.RoundTrip(newRequest(t, "POST", "http://mem.test", "{}").WithContext(row.ctx(t)))
				require.ErrorIs(t, err, row.is)
				require.Equal(t, 2*time.Second, time.Since(start))
				require.Len(t, asError(t, err).Attempts, 1)
				counted.requireBalance(t)
			})
		}
	}
}

// A panic of Classify reaches the caller, and the body is closed. One of the body comes when the caller reads.
func TestStream_panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := streamPolicy()
		policy.Stream.Classify = func(string, []byte) resilienthttp.Verdict { panic("oops") }
		tr, url := streamClient(t, policy, streaming(content, wait(time.Hour)))
		base := &countingBase{base: tr.Base}
		tr.Base = base
		require.PanicsWithValue(t, "oops", func() { _, _ = tr.RoundTrip(newRequest(t, "POST", url, "{}")) })
		base.requireBalance(t)
		require.Zero(t, tr.State().Scopes[0].InFlight)
	})
	synctest.Test(t, func(t *testing.T) {
		base := script(withBody(200, panickyBody{}, "Content-Type", "text/event-stream"))
		resp := roundTrip(t, (&resilienthttp.Transport{Base: base, Policy: streamPolicy()}), newRequest(t, "POST", "http://mem.test", "{}"))
		require.PanicsWithValue(t, "a body that panics", func() { _, _ = resp.Body.Read(make([]byte, 1)) })
		require.NoError(t, resp.Body.Close())
	})
}

// A hedge is sent while the first stream is silent, if Hedge is set and the request may be done twice. Its event wins, unless it
// is a failure: that is like a 4xx, and the first request may still succeed.
func TestStream_hedge(t *testing.T) {
	for _, row := range []struct {
		name          string
		harmless      bool
		first, second []any
		requests      int64
		took          time.Duration
	}{
		{"sent", true, []any{wait(time.Minute), "data: first\n\n"}, []any{wait(time.Second), content}, 2, 3 * time.Second},
		{"not sent", false, []any{wait(time.Minute), content}, []any{"data: second\n\n"}, 1, time.Minute},
		{"failed", true, []any{wait(5 * time.Second), content}, []any{invalid}, 2, 5 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			server := inTurn(streaming(row.first...), streaming(row.second...))
			policy := streamPolicy()
			if !row.harmless {
				policy.Idempotent = nil
			}
			tr, url := streamClient(t, policy, server)
			tr.Hedge = &resilienthttp.Hedge{Delay: 2 * time.Second, MaxRatio: -1}
			start := time.Now()
			resp := roundTrip(t, tr, newRequest(t, "POST", url, "{}"))
			require.Equal(t, row.took, time.Since(start))
			require.Equal(t, row.requests, server.requests.Load())
			require.Equal(t, content, readAll(t, resp))
		})
	}
}

// The answer to HEAD has no events.
func TestStream_head(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, url := streamClient(t, streamPolicy(), streaming())
		resp := roundTrip(t, tr, newRequest(t, "HEAD", url, ""))
		require.Len(t, resilienthttp.Attempts(resp), 1)
		readAll(t, resp)
	})
}

// A nil Classify, and events that it does not know, are content.
func TestStream_withoutClassify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, classify := range []func(string, []byte) resilienthttp.Verdict{nil, func(string, []byte) resilienthttp.Verdict { return 99 }, func(string, []byte) resilienthttp.Verdict { return resilienthttp.VerdictSuccess }} {
			tr, url := streamClient(t, resilienthttp.Policy{Stream: &resilienthttp.Stream{Classify: classify}}, streaming(": c\n", wait(time.Second), overloaded, wait(time.Hour)))
			start := time.Now()
			resp := roundTrip(t, tr, newRequest(t, "POST", url, "{}"))
			require.Equal(t, time.Second, time.Since(start))
			require.Equal(t, resilienthttp.VerdictSuccess, lastOf(t, resp).Verdict)
			_ = resp.Body.Close()
		}
	})
}

// Explain says that an event failed, because the status does not.
func TestStream_explain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, url := streamClient(t, streamPolicy(), inTurn(streaming(overloaded), streaming(ping), streaming(content)))
		resp := roundTrip(t, tr, newRequest(t, "POST", url, "{}"))
		text := resilienthttp.Explain(resp, nil)
		require.Contains(t, text, "200, failure event, throttled")
		require.Contains(t, text, "eof (event stream ended before its first event")
		readAll(t, resp)
	})
}

// The program may change its Stream, and that of State, for the next SetPolicy.
func TestStream_isCopied(t *testing.T) {
	mine := &resilienthttp.Stream{FirstEvent: time.Second}
	tr := &resilienthttp.Transport{}
	require.NoError(t, tr.SetPolicy(resilienthttp.Policy{Stream: mine}))
	mine.FirstEvent = time.Minute
	tr.State().Policy.Stream.FirstEvent = time.Hour
	require.Equal(t, time.Second, tr.State().Policy.Stream.FirstEvent)
}

// Policy.Idempotent: repeats a POST that is in doubt, and is asked once a call.
func TestPolicy_Idempotent(t *testing.T) {
	for _, row := range []struct {
		name       string
		idempotent func(*http.Request) bool
		method     string
		status     int
		attempts   int
	}{
		{"nil: by method", nil, "POST", 500, 1},
		{"true", harmless, "POST", 500, 3},
		{"true, 503", harmless, "POST", 503, 3},
		{"nil, 503", nil, "POST", 503, 1},
		{"false", func(*http.Request) bool { return false }, "POST", 500, 1},
		{"false does not make a PUT unsafe", func(*http.Request) bool { return false }, "PUT", 500, 3},
		{"by path", func(r *http.Request) bool { return r.URL.Path == "/v1/responses" }, "POST", 500, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			asked := 0
			policy := streamPolicy()
			if policy.Idempotent = nil; row.idempotent != nil {
				policy.Idempotent = func(r *http.Request) bool { asked++; return row.idempotent(r) }
			}
			tr, url := streamClient(t, policy, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(row.status) }))
			resp := roundTrip(t, tr, newRequest(t, row.method, url, "{}"))
			require.Len(t, resilienthttp.Attempts(resp), row.attempts)
			require.True(t, resilienthttp.InDoubt(resp, nil), "it may be done twice, but it may have been done")
			require.Empty(t, resp.Request.Header)
			if row.idempotent != nil {
				require.Equal(t, 1, asked)
			}
			readAll(t, resp)
		})
	}
	t.Run("a panic reaches the caller, and the body is closed", func(t *testing.T) {
		req := newRequest(t, "POST", "http://mem.test", "")
		bodies := trackBody(req, "{}")
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{Idempotent: func(*http.Request) bool { panic("oops") }}}
		require.Panics(t, func() { _, _ = tr.RoundTrip(req) })
		bodies.requireClosedOnce(t, 1)
	})
}

// A POST that may be done twice moves to the next endpoint after a failure in doubt, as a GET does.
func TestPolicy_Idempotent_moves(t *testing.T) {
	for _, may := range []bool{true, false} {
		bubble.Run(t, fmt.Sprint(may), func(t *testing.T) {
			network := memhttp.NewNetwork(t)
			one := network.Serve(t, "one.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
			network.Serve(t, "two.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			policy := resilienthttp.Policy{Idempotent: func(*http.Request) bool { return may }}
			tr := oneAndTwo(one.Transport(), policy)
			start := time.Now()
			resp, err := tr.RoundTrip(newRequest(t, "POST", "http://one.test/", "{}"))
			if !may {
				require.ErrorIs(t, err, resilienthttp.ErrNotIdempotent)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "two", lastOf(t, resp).Endpoint)
			require.Zero(t, time.Since(start), "without a wait")
			readAll(t, resp)
		})
	}
}

// L5: a slow request gets no second attempt because of Idempotent.
func TestPolicy_Idempotent_noSecondAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := streamPolicy()
		policy.Stream = nil
		server := inTurn(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { time.Sleep(5 * time.Minute) }))
		tr, url := streamClient(t, policy, server)
		readAll(t, roundTrip(t, tr, newRequest(t, "POST", url, "{}")))
		require.EqualValues(t, 1, server.requests.Load())
	})
}

var errStop = errors.New("stop")

// FuzzStream: whatever the server sends, in whatever pieces, the caller reads the same bytes, or the call fails.
func FuzzStream(f *testing.F) {
	f.Add(content, 3, false)
	f.Add(ping+overloaded, 1, false)
	f.Add("\ufeffdata: x\r\n\r\n"+internal, 5, true)
	f.Fuzz(func(t *testing.T, stream string, piece int, breaks bool) {
		synctest.Test(t, func(t *testing.T) {
			end := io.EOF
			if breaks {
				end = errStop
			}
			body := &pieces{stream: stream, piece: max(piece, 1), end: end}
			base := script(withBody(200, body, "Content-Type", "text/event-stream"))
			policy := streamPolicy()
			policy.MaxAttempts = 1
			resp, err := (&resilienthttp.Transport{Base: base, Policy: policy}).RoundTrip(newRequest(t, "POST", "http://mem.test", "{}"))
			if err == nil {
				var got []byte
				got, err = io.ReadAll(resp.Body)
				require.Equal(t, stream, string(got))
				require.NoError(t, resp.Body.Close())
			}
			if breaks {
				require.ErrorIs(t, err, errStop)
			}
			base.requireBalance(t)
		})
	})
}

// pieces is a body that arrives in pieces, its last one with the end.
type pieces struct {
	stream string
	piece  int
	end    error
}

func (b *pieces) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), b.piece)], b.stream)
	if b.stream = b.stream[n:]; b.stream == "" {
		return n, b.end
	}
	return n, nil
}

func (b *pieces) Close() error { return nil }

// A Base that returns an error has failed, also if it returns an event stream beside it.
func TestStream_errorBesideAResponse(t *testing.T) {
	bubble.Run(t, "an event has come", func(t *testing.T) {
		tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			return response(r, http.StatusOK, "data: x\n\n", "Content-Type", "text/event-stream"), errReset
		}), 1)
		tr.Policy.Stream = &resilienthttp.Stream{FirstEvent: time.Second}
		require.ErrorIs(t, discard(tr, get(t)), errReset)
	})
}
