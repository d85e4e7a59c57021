package resilienthttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// §4.5, §4.13: over HTTP/2, Close of a response body blocks while a Read of the request body
// blocks, unless the context has ended.
func TestDiscardDoesNotWaitForTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int64
		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if served.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "busy")
				http.NewResponseController(w).Flush() //nolint:errcheck // a test's server
				<-r.Context().Done()
			}
		}), memhttp.HTTP2())
		blocked, unblock := io.Pipe()
		t.Cleanup(func() { _ = unblock.Close() })
		req := newRequest(t, http.MethodPut, s.URL, "body")
		req.Body, req.ContentLength = blocked, -1
		tr := &resilienthttp.Transport{Base: s.Transport(), Policy: every(time.Second)}
		start := time.Now()
		resp := roundTrip(t, tr, req)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, time.Second, time.Since(start), "the drain is a part of the wait")
		readAll(t, resp)
	})
}

// rewound is a request body as SDKs make it: GetBody rewinds the one reader.
func rewound(req *http.Request, content []byte, chunked bool) {
	reader := bytes.NewReader(content)
	open := func() (io.ReadCloser, error) {
		_, err := reader.Seek(0, io.SeekStart)
		return io.NopCloser(struct{ io.Reader }{reader}), err
	}
	req.Body, _ = open()
	req.GetBody, req.ContentLength = open, int64(len(content))
	if chunked {
		req.ContentLength = -1
	}
}

// §4.4: functions of the program may read the body of GetBody before the first attempt, also if it rewinds the reader of the request.
func TestFirstBody_thatIsRewound(t *testing.T) {
	const content = "the content of the request"
	closes := 0 // of the body of the request
	body := func(r io.Reader) *closingBody { return &closingBody{Reader: r, closed: func() { closes++ }} }
	reader := strings.NewReader(content)
	start := func() { _, _ = reader.Seek(0, io.SeekStart) }
	same := body(reader)
	for _, row := range []struct {
		name    string
		body    io.ReadCloser
		getBody func() (io.ReadCloser, error)
	}{
		{"a wrapper of one reader", body(reader), func() (io.ReadCloser, error) { start(); return io.NopCloser(reader), nil }},
		{"one body", same, func() (io.ReadCloser, error) { start(); return same, nil }},
		{"a body that cannot be compared", uncomparable{Reader: reader, close: body(nil).Close}, func() (io.ReadCloser, error) {
			start()
			return uncomparable{Reader: reader, close: func() error { return nil }}, nil
		}},
		{"an independent reader", body(reader), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }},
		{"none", body(reader), func() (io.ReadCloser, error) { return nil, nil }}, //nolint:nilnil // breaks the contract
		{"an error", body(reader), func() (io.ReadCloser, error) { return nil, errReset }},
		{"no GetBody", body(reader), nil},
	} {
		read := func(r *http.Request) string {
			if r.GetBody == nil {
				return ""
			}
			if another, err := r.GetBody(); err == nil && another != nil {
				_, _ = io.CopyN(io.Discard, another, 5)
			}
			return "key"
		}
		for name, set := range map[string]func(*resilienthttp.Transport){
			"Scope": func(tr *resilienthttp.Transport) { tr.Scope = read },
			"Idempotent": func(tr *resilienthttp.Transport) {
				tr.Policy.Idempotent = func(r *http.Request) bool { return read(r) != "" }
			},
			"NewKey": func(tr *resilienthttp.Transport) { tr.Idempotency = resilienthttp.Idempotency{NewKey: read} },
			"Key":    func(tr *resilienthttp.Transport) { tr.RateLimit = &resilienthttp.RateLimit{Key: read} },
			"Cost": func(tr *resilienthttp.Transport) {
				tr.RateLimit = &resilienthttp.RateLimit{Cost: func(r *http.Request) float64 { return float64(len(read(r))) }}
			},
		} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				closes = 0
				start()
				tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
					got, err := io.ReadAll(r.Body)
					require.NoError(t, err)
					require.NoError(t, r.Body.Close())
					return response(r, http.StatusOK, string(got)), nil
				}), 1)
				set(tr)
				req := newRequest(t, http.MethodPost, "http://api.test/", "")
				req.Body, req.GetBody, req.ContentLength = row.body, row.getBody, int64(len(content))
				require.Equal(t, content, readAll(t, roundTrip(t, tr, req)))
				require.Equal(t, 1, closes)
			})
		}
	}
}

type uncomparable struct {
	io.Reader

	close func() error
}

func (u uncomparable) Close() error { return u.close() }

type closingBody struct {
	io.Reader

	closed func()
}

func (c *closingBody) Close() error {
	c.closed()
	return nil
}

// §4.4: a server that answers before it has read the body gets no mixture of two attempts, also if GetBody rewinds one reader.
func TestRetry_bodyThatIsRewound(t *testing.T) {
	t.Parallel()
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	early := func(w http.ResponseWriter, r *http.Request) { // the client is still sending
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(5 * time.Millisecond)
		_, _ = io.Copy(io.Discard, r.Body)
	}
	store := func(w http.ResponseWriter, r *http.Request) {
		stored, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(stored, content) {
			w.WriteHeader(http.StatusTeapot)
		}
	}
	for _, row := range []struct {
		name    string
		chunked bool
		edit    func(*resilienthttp.Transport)
	}{
		{"chunked, a retry", true, nil},
		{"with a length, a retry", false, nil},
		{"chunked, a retry at once", true, func(t *resilienthttp.Transport) { t.Policy.Backoff = atOnce }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1)%2 == 1 {
					early(w, r)
				} else {
					store(w, r)
				}
			}))
			t.Cleanup(server.Close)
			tr := &resilienthttp.Transport{Base: resilienthttp.NewBase(), Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}}
			tr.Policy = resilienthttp.Policy{MaxAttempts: 10, Backoff: resilienthttp.Constant(10 * time.Millisecond)}
			if row.edit != nil {
				row.edit(tr)
			}
			t.Cleanup(tr.CloseIdleConnections)
			for range 10 {
				req := newRequest(t, http.MethodPut, server.URL, "")
				rewound(req, content, row.chunked)
				resp := roundTrip(t, tr, req)
				readAll(t, resp)
				require.Equal(t, http.StatusOK, resp.StatusCode, resilienthttp.Explain(resp, nil))
			}
		})
	}
}

// §4.4: a RoundTripper may read the body after it has returned, until it closes it. No hedge is sent meanwhile.
func TestRetry_bodyThatIsReadLate(t *testing.T) {
	const content = "the whole content"
	for _, row := range []struct {
		name  string
		hedge *resilienthttp.Hedge
		waits bool // for the body, before it answers
		want  []string
	}{
		{"answers at once: a retry when the body is closed", nil, false, []string{content, content, content}},
		{"answers later: no hedge before the body is closed", &resilienthttp.Hedge{Delay: 2 * time.Millisecond, MaxRatio: -1}, true, []string{content, content, content}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var bodies []string
			var mu sync.Mutex
			tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
				read := make(chan struct{})
				go func() {
					defer close(read)
					defer r.Body.Close()
					text, part := "", make([]byte, 4)
					var failed error
					for failed == nil {
						time.Sleep(time.Millisecond)
						n, err := r.Body.Read(part)
						text += string(part[:n])
						failed = err
					}
					mu.Lock()
					defer mu.Unlock()
					bodies = append(bodies, text)
				}()
				if row.waits {
					<-read
				}
				return response(r, http.StatusServiceUnavailable, "busy"), nil
			}), 3)
			tr.Hedge = row.hedge
			req := newRequest(t, http.MethodPost, "http://api.test/", "")
			rewound(req, []byte(content), false)
			readAll(t, roundTrip(t, tr, req))
			time.Sleep(time.Second) // the last body may still be read
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, row.want, bodies)
		})
	}
}

// §4.1: an upload that the server rejects early, and of which it resets the connection, is not sent again and again: the retry
// asks first, so the caller gets the response.
func TestRetry_uploadThatIsRejected(t *testing.T) {
	var uploads, asked atomic.Int64
	l, url := listen(t)
	serveRaw(t, l, func(conn net.Conn) {
		defer conn.Close()
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Expect") == "" {
			uploads.Add(1)
			_, _ = io.CopyN(io.Discard, r, 100<<10)
			_ = conn.(*net.TCPConn).SetLinger(0) // the reset destroys the response
		} else {
			asked.Add(1)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	for _, row := range []struct {
		name string
		body func(*http.Request)
	}{
		{"a body in memory", func(*http.Request) {}},
		{"a body that is rewound", func(r *http.Request) { rewound(r, make([]byte, 8<<20), false) }},
		{"a chunked body", func(r *http.Request) { rewound(r, make([]byte, 8<<20), true) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			uploads.Store(0)
			asked.Store(0)
			tr := &resilienthttp.Transport{Base: resilienthttp.NewBase(), Policy: resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}}
			t.Cleanup(tr.CloseIdleConnections)
			req := newRequest(t, http.MethodPost, url, strings.Repeat("x", 8<<20))
			row.body(req)
			resp := roundTrip(t, tr, req)
			readAll(t, resp)
			require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
			require.LessOrEqual(t, uploads.Load(), int64(1))
			require.LessOrEqual(t, asked.Load(), int64(1))
		})
	}
}

// §4.4: a proxy that does not know Expect answers 417. The upload is sent again without it, because only the client has added it.
func TestRetry_uploadThatMustNotBeAsked(t *testing.T) {
	for _, row := range []struct {
		name   string
		own    string   // Expect of the caller
		expect []string // of each attempt
		status int
	}{
		{"the client has added it", "", []string{"", "100-continue", ""}, http.StatusOK},
		{"the caller has set it", "100-continue", []string{"100-continue", "100-continue"}, http.StatusExpectationFailed},
	} {
		t.Run(row.name, func(t *testing.T) {
			var expect []string
			l, url := listen(t)
			serveRaw(t, l, func(conn net.Conn) {
				defer conn.Close()
				r := bufio.NewReader(conn)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				expect = append(expect, req.Header.Get("Expect"))
				switch {
				case len(expect) == 1:
					_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
					_, _ = io.CopyN(io.Discard, r, 100<<10)
					_ = conn.(*net.TCPConn).SetLinger(0)
				case req.Header.Get("Expect") != "":
					_, _ = io.WriteString(conn, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				default:
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				}
			})
			tr := &resilienthttp.Transport{Base: resilienthttp.NewBase(), Policy: resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}}
			t.Cleanup(tr.CloseIdleConnections)
			req := newRequest(t, http.MethodPost, url, strings.Repeat("x", 8<<20))
			if row.own != "" {
				req.Header.Set("Expect", row.own)
			}
			resp := roundTrip(t, tr, req)
			readAll(t, resp)
			require.Equal(t, row.status, resp.StatusCode)
			require.Equal(t, row.expect, expect)
		})
	}
}

// endingBody is the body of a response with which the upload ends, as over HTTP/2.
type endingBody struct {
	io.ReadCloser

	upload io.Closer
}

func (b endingBody) Close() error {
	_ = b.upload.Close()
	return b.ReadCloser.Close()
}

// §4.4: a Base may read the request body until the failed response is closed, so it is closed before GetBody is called.
func TestRetry_bodyThatEndsWithTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls++; calls > 1 {
				readAndClose(r.Body)
				return response(r, http.StatusOK, "stored"), nil
			}
			busy := response(r, http.StatusServiceUnavailable, "busy")
			busy.Body = endingBody{busy.Body, r.Body}
			return busy, nil
		}), 3)
		req := newRequest(t, http.MethodPut, "http://api.test/", "")
		rewound(req, []byte("content"), false)
		require.Equal(t, "stored", readAll(t, roundTrip(t, tr, req)))
		require.Equal(t, 2, calls)
	})
}

func readAndClose(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
}

// §4.4: a Base that never closes the body may still read it, so it gets no retry.
func TestRetry_bodyThatIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			calls++
			return response(r, http.StatusServiceUnavailable, "busy"), nil
		}), 3)
		req := newRequest(t, http.MethodPut, "http://api.test/", "")
		rewound(req, []byte("content"), false)
		resp := roundTrip(t, tr, req)
		require.Equal(t, resilienthttp.ErrNotReplayable, lastOf(t, resp).StopReason)
		require.Equal(t, "busy", readAll(t, resp), "the response is the result")
		require.Equal(t, 1, calls)
	})
}

// §4.1, §4.4: if a retry gets no body, the call returns the response before it, with what was read of its body.
func TestRetry_bodyThatFails(t *testing.T) {
	for _, size := range []int{10, 10_000, 60_000} {
		bubble.Run(t, fmt.Sprint(size, " bytes"), func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			}))
			tr := &resilienthttp.Transport{Base: s.Transport(), Policy: every(time.Second)}
			req := newRequest(t, http.MethodPut, s.URL, "body")
			req.GetBody = func() (io.ReadCloser, error) { return nil, errReset }
			resp := roundTrip(t, tr, req)
			require.Equal(t, resilienthttp.ErrNotReplayable, lastOf(t, resp).StopReason)
			require.Len(t, readAll(t, resp), size)
		})
	}
}

// §4.1: after the response headers, a truncated body is an error of Read, and there is no retry.
func TestTruncatedBody(t *testing.T) {
	for name, script := range map[string]http.Handler{
		"of a known length": faulttest.Reply{Body: "fine weather", Fault: faulttest.Truncated, At: 3},
		"chunked": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "fin")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := faulttest.New(t, script)
			resp := roundTrip(t, overSockets(t), newRequest(t, "GET", s.URL, ""))
			text, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, "fin", string(text))
			require.NoError(t, resp.Body.Close())
			s.AssertAttempts(t, 1)
		})
	}
}

// §4.5: a discarded body is read for at most 64 KiB and 100 ms, and always closed.
func TestDiscardedResponsesAreDrained(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name  string
		body  io.ReadCloser
		took  time.Duration
		reads int64 // at most; negative: exactly
	}{
		{"short", io.NopCloser(strings.NewReader("short")), 0, -5},
		{"64 KiB", io.NopCloser(io.LimitReader(zeros{}, 64<<10)), 0, -64 << 10},
		{"endless and quick", io.NopCloser(zeros{}), 0, 64 << 10},
		{"endless and slow", trickle{10 * ms}, 100 * ms, 11},
		{"blocked until Close", nil, 100 * ms, 0},
		{"in time", trickle{0}, 0, 64 << 10},
		{"fails", errorBody{}, 0, 0},
		{"panics", panickyBody{}, 0, 0},
		{"none", http.NoBody, 0, 0},
		{"nil", nil, 0, 0},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			if tt.name == "blocked until Close" {
				tt.body = newBlocking() // of this bubble
			}
			base := script(withBody(503, tt.body), status(200))
			tr := &resilienthttp.Transport{Base: base, Policy: every(0)}
			start := time.Now()
			resp := roundTrip(t, tr, get(t))
			require.Equal(t, tt.took, time.Since(start))
			time.Sleep(time.Second) // until a Read that cannot be canceled returns
			drained := base.reads.Load()
			if tt.reads < 0 {
				require.Equal(t, -tt.reads, drained)
			} else {
				require.LessOrEqual(t, drained, tt.reads)
			}
			require.Equal(t, 200, resp.StatusCode)
			readAll(t, resp)
			base.requireBalance(t)
		})
	}
}

// §4.5: only the time for which a Read blocks counts.
func TestReadTimeout(t *testing.T) {
	steady := faulttest.Reply{Body: "0123456789", Pause: 900 * time.Millisecond}
	silent := faulttest.Reply{Body: "first and last", Fault: faulttest.Stalled, At: 5}
	big := faulttest.OK(strings.Repeat("x", 1<<20))

	tests := []struct {
		name    string
		handler http.Handler
		limit   time.Duration
		pause   time.Duration // of the reader, between reads
		got     int
		took    time.Duration // 0: not checked
		is      error
	}{
		{"steady server", steady, time.Second, 0, 10, 9 * time.Second, nil},
		{"steady server, short limit", steady, 800 * time.Millisecond, 0, 0, 800 * time.Millisecond, resilienthttp.ErrReadTimeout},
		{"silent server", silent, time.Second, 0, 5, time.Second, resilienthttp.ErrReadTimeout},
		{"slow reader", big, time.Second, time.Minute, 1 << 20, 0, nil},
		{"slow reader of a silent server", silent, time.Second, time.Minute, 5, time.Minute + time.Second, resilienthttp.ErrReadTimeout},
		{"huge", steady, 1<<63 - 1, 0, 10, 9 * time.Second, nil},
		{"negative", steady, -1, 0, 10, 9 * time.Second, nil},
		{"none", steady, 0, 0, 10, 9 * time.Second, nil},
	}
	for _, tt := range tests {
		for protocol, options := range protocols {
			bubble.Run(t, tt.name+", "+protocol, func(t *testing.T) {
				s := memhttp.NewServer(t, tt.handler, options...)
				base := &countingBase{base: s.Transport()}
				tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{ReadTimeout: tt.limit}}
				resp, err := tr.RoundTrip(newRequest(t, "GET", s.URL, ""))
				require.NoError(t, err)
				start := time.Now()
				got, buf := 0, make([]byte, 128<<10)
				for err == nil {
					var n int
					n, err = resp.Body.Read(buf)
					got += n
					if n > 0 && err == nil {
						time.Sleep(tt.pause)
					}
				}
				require.Equal(t, tt.got, got)
				if tt.took > 0 {
					require.Equal(t, tt.took, time.Since(start))
				}
				if tt.is == nil {
					require.Equal(t, io.EOF, err)
				} else {
					require.ErrorIs(t, err, tt.is)
					require.True(t, asError(t, err).Timeout())
					require.NotErrorIs(t, err, context.Canceled)
					require.Len(t, asError(t, err).Attempts, 1)
					_, err = resp.Body.Read(buf)
					require.ErrorIs(t, err, tt.is, "a second Read returns the same error")
				}
				require.NoError(t, resp.Body.Close())
				synctest.Wait() // at the limit the timer's goroutine closes it
				base.requireBalance(t)
			})
		}
	}
}

// An error of the body is returned unchanged, and ends the attempt.
func TestReadErrorsPass(t *testing.T) {
	var seen context.Context
	base := script(func(r *http.Request) (*http.Response, error) {
		seen = r.Context() //nolint:fatcontext // looked at, not passed on
		return withBody(200, errorBody{})(r)
	})
	tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{ReadTimeout: time.Minute}}
	resp := roundTrip(t, tr, get(t))
	_, err := resp.Body.Read(make([]byte, 1))
	require.Equal(t, errReset, err)
	require.Error(t, seen.Err())
	require.Equal(t, errReset, resp.Body.Close())
	require.NoError(t, resp.Body.Close())
	base.requireBalance(t)
}

// §4.7: if the caller cancels, Read of the body returns the context's error.
func TestCancelWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulttest.NewInMemory(t, faulttest.Reply{Fault: faulttest.Stalled, At: -1})
		for _, limit := range []time.Duration{0, time.Hour} {
			tr := &resilienthttp.Transport{Base: s.Transport(), Policy: resilienthttp.Policy{ReadTimeout: limit}}
			ctx, cancel := context.WithCancel(t.Context())
			resp := roundTrip(t, tr, newRequest(t, "GET", s.URL, "").WithContext(ctx))
			time.AfterFunc(time.Second, cancel)
			_, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, resilienthttp.ErrReadTimeout)
			require.NoError(t, resp.Body.Close())
		}
		synctest.Wait()
		for _, q := range s.Requests() {
			require.Equal(t, time.Second, q.CanceledAt.Sub(q.ReceivedAt), "the server sees the cancellation")
		}
	})
}

// An upgraded connection still has CloseWrite, for httputil.ReverseProxy.
func TestUpgradedBodyHalfCloses(t *testing.T) {
	for _, can := range []bool{true, false} {
		t.Run(fmt.Sprint(can), func(t *testing.T) {
			half := &halfCloser{}
			var body io.ReadWriteCloser = half
			if !can {
				body = struct{ io.ReadWriteCloser }{half}
			}
			base := roundTripper(func(r *http.Request) (*http.Response, error) { return withBody(101, body)(r) })
			resp := roundTrip(t, &resilienthttp.Transport{Base: base}, get(t))
			err := resp.Body.(interface{ CloseWrite() error }).CloseWrite()
			require.Equal(t, can, err == nil)
			require.Equal(t, can, half.closed)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// A body with a Write method is a connection only with status 101.
func TestOnlyUpgradesAreWritable(t *testing.T) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) { return withBody(200, &halfCloser{})(r) })
	resp := roundTrip(t, (&resilienthttp.Transport{Base: base}), get(t))
	_, writable := resp.Body.(io.Writer)
	require.False(t, writable)
	require.NoError(t, resp.Body.Close())
}

// inParts is a body that arrives in parts, 50 ms apart, and fails after the end of its request.
type inParts struct {
	ctx  context.Context
	left int
}

func (b *inParts) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if err := sleep.Context(b.ctx, 50*time.Millisecond); err != nil {
		return 0, err
	}
	b.left--
	return copy(p, "x"), nil
}

func (b *inParts) Close() error { return nil }

// §4.12: once the duration of a body is known, no attempt is sent if the deadline would cut its
// body. A stream of minutes prevents no retry.
func TestDeadline_timeForBody(t *testing.T) {
	answer := func(code, parts int) step {
		return func(r *http.Request) (*http.Response, error) {
			return withBody(code, &inParts{r.Context(), parts})(r)
		}
	}
	for _, row := range []struct {
		name  string
		known step   // response with a body that is read before
		steps []step // steps of each call; the last is repeated
		ends  int    // the status that each call ends with
	}{
		{"a failure's", answer(200, 6), []step{answer(503, 6)}, 503},
		{"an answer's, after two failures", answer(200, 6), []step{status(503), status(503), answer(200, 6)}, 200},
		{"after one of ten minutes", answer(200, 12000), []step{status(503), status(503), status(200)}, 200},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(row.known)
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) { return base.RoundTrip(r) })}
			readAll(t, roundTrip(t, tr, get(t)))
			ends := 0
			for range 100 {
				base = script(row.steps...)
				resp := roundTrip(t, tr, get(t).WithContext(withDeadline(t, 2*time.Second)))
				if resp.StatusCode == row.ends {
					ends++
				}
				readAll(t, resp) // or it fails
				time.Sleep(20 * time.Second)
			}
			require.GreaterOrEqual(t, ends, 95, "calls that end in time")
		})
	}
}

// §4.2: a server may answer before it has read the body, and Base may still read that when the caller has closed the response. The
// caller may use its request again then. Run it with -race.
func TestRequestIsReusedDuringUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, sender := io.Pipe()
		uploaded := make(chan struct{})
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			go func() {
				defer close(uploaded)
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}()
			return response(r, http.StatusRequestEntityTooLarge, ""), nil
		})}
		req := newRequest(t, http.MethodPost, "http://api.test/things", "")
		req.Body, req.ContentLength = body, -1
		readAll(t, roundTrip(t, tr, req))
		go func() { _ = sender.Close() }()
		req.Body, req.ContentLength = http.NoBody, 0
		<-uploaded
	})
}

// §4.5: a server may respond before it has read the request body, and read on. The upload is not cut off.
func TestUploadGoesOnAfterTheResponse(t *testing.T) {
	const pieces = 10
	for name, row := range map[string]struct {
		status  int
		content io.ReadCloser
		end     func(*http.Response) // what the caller does with the response
		want    int64                // bytes that Base has read when the context has ended
	}{
		"without a body":     {204, http.NoBody, func(*http.Response) {}, pieces},
		"nil body":           {202, nil, func(*http.Response) {}, pieces},
		"read to its end":    {200, io.NopCloser(strings.NewReader("ok")), func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) }, pieces},
		"closed":             {200, io.NopCloser(strings.NewReader("ok")), func(r *http.Response) { _ = r.Body.Close() }, 0},
		"read, and closed":   {200, io.NopCloser(strings.NewReader("ok")), func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body); _ = r.Body.Close() }, 0},
		"a retry follows it": {503, http.NoBody, func(*http.Response) {}, 0},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			uploaded := make(chan int64, 1)
			attempts := 0
			tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
				if attempts++; attempts > 1 {
					readAndClose(r.Body)
					return response(r, http.StatusOK, ""), nil
				}
				// As HTTP/2 of net/http: it sends the body until the context ends.
				stop := context.AfterFunc(r.Context(), func() { _ = r.Body.Close() })
				go func() {
					n, _ := io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
					stop()
					<-r.Context().Done()
					uploaded <- n
				}()
				resp := response(r, row.status, "")
				resp.Body = row.content
				return resp, nil
			}), 2)
			req := newRequest(t, http.MethodPut, "http://api.test/things", "")
			req.Body, req.ContentLength = newSlowUpload(pieces), -1
			req.GetBody = func() (io.ReadCloser, error) { return newSlowUpload(1), nil }
			row.end(roundTrip(t, tr, req))
			require.Equal(t, row.want, <-uploaded)
		})
	}
}

// slowUpload is a body of so many bytes, one each second.
type slowUpload struct {
	left   int
	closed chan struct{}
}

func newSlowUpload(bytes int) *slowUpload { return &slowUpload{bytes, make(chan struct{})} }

func (s *slowUpload) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(time.Second):
		s.left--
		return copy(p, "x"), nil
	case <-s.closed:
		return 0, io.ErrClosedPipe
	}
}

func (s *slowUpload) Close() error {
	close(s.closed)
	return nil
}

// §4.4: a Read that comes after Close does not end the Read that Close is to unblock: GetBody waits for that one.
func TestRetry_bodyThatIsReadTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const closes, unblocked = 10 * time.Millisecond, 20 * time.Millisecond
		body := &slowSource{read: unblocked, closes: closes}
		var attempts int
		tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			if attempts++; attempts == 2 {
				_ = r.Body.Close()
				return response(r, http.StatusOK, ""), nil
			}
			read := func() { _, _ = r.Body.Read(make([]byte, 1)) }
			go read()
			synctest.Wait()
			go func() { _ = r.Body.Close() }()
			synctest.Wait()
			read()
			return nil, errReset
		}), 2)
		tr.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
		start := time.Now()
		req := newRequest(t, http.MethodPut, "http://api.test/things", "")
		req.Body, req.ContentLength = body, 1
		req.GetBody = func() (io.ReadCloser, error) {
			require.Equal(t, unblocked, time.Since(start))
			return body, nil
		}
		readAll(t, roundTrip(t, tr, req))
		require.Equal(t, 2, attempts)
	})
}

// slowSource is a request body that needs some time for each Read, and for Close.
type slowSource struct{ read, closes time.Duration }

func (b *slowSource) Read(p []byte) (int, error) {
	time.Sleep(b.read)
	return len(p), nil
}

func (b *slowSource) Close() error {
	time.Sleep(b.closes)
	return nil
}

// §4.4: a Base may hash a copy of the body, or send the copy in place of the body. Each attempt sends all of it, and does not time
// out while it makes progress.
func TestBody_copies(t *testing.T) {
	content := strings.Repeat("charge", 20_000)
	hashes := func(t *testing.T, req *http.Request) *http.Request {
		body, err := req.GetBody()
		require.NoError(t, err)
		readAndClose(body)
		return req
	}
	sendsCopy := func(t *testing.T, req *http.Request) *http.Request {
		require.NoError(t, req.Body.Close())
		clone := req.Clone(req.Context())
		body, err := req.GetBody()
		require.NoError(t, err)
		clone.Body = body
		return clone
	}
	reader := strings.NewReader(content)
	for _, row := range []struct {
		name    string
		sign    func(*testing.T, *http.Request) *http.Request
		getBody func() (io.ReadCloser, error) // nil: that of http.NewRequest
	}{
		{"hashes", hashes, nil},
		{"hashes, new readers", hashes, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }},
		{"sends the copy", sendsCopy, nil},
		{"sends the copy, one reader that is rewound", sendsCopy, func() (io.ReadCloser, error) {
			_, err := reader.Seek(0, io.SeekStart)
			return io.NopCloser(reader), err
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var got []string
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				req = row.sign(t, req)
				body, part := strings.Builder{}, make([]byte, 20_000)
				for ended := false; !ended; time.Sleep(300 * time.Millisecond) { // slower than AttemptTimeout
					n, err := req.Body.Read(part)
					body.Write(part[:n])
					ended = err != nil
				}
				require.NoError(t, errors.Join(req.Body.Close(), req.Context().Err()))
				if got = append(got, body.String()); len(got) < 3 {
					return response(req, http.StatusServiceUnavailable, ""), nil
				}
				return response(req, http.StatusCreated, ""), nil
			})}
			req := newRequest(t, http.MethodPost, "http://api.test/", content)
			if row.getBody != nil {
				req.GetBody = row.getBody
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			readAll(t, resp)
			require.Equal(t, []string{content, content, content}, got)
		})
	}
}
