package faulttest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

var work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Work", "done")
	w.Header().Set("X-Replaced", "work")
	w.WriteHeader(http.StatusAccepted)
	w.Header().Set("X-Late", "too late")
	_, _ = io.WriteString(w, "worked on ")
	_, _ = io.Copy(w, r.Body)
})

// seen is what a client saw.
type seen struct {
	*http.Response

	text string
	err  error // of the exchange or of the body
	took time.Duration
}

// TestReplies looks at each reply from a plain http.Client, on both fronts.
func TestReplies(t *testing.T) {
	t.Parallel()
	ok := func(status int, text string) func(*testing.T, seen) {
		return func(t *testing.T, s seen) {
			require.NoError(t, s.err)
			assert.Equal(t, status, s.StatusCode)
			assert.Equal(t, text, s.text)
			assert.EqualValues(t, len(text), s.ContentLength)
		}
	}
	fails := func(target ...error) func(*testing.T, seen) {
		return func(t *testing.T, s seen) {
			require.Error(t, s.err)
			assert.Nil(t, s.Response, "there must be no answer")
			for _, one := range target {
				if errors.Is(s.err, one) {
					return
				}
			}
			assert.Fail(t, "another error", "%v", s.err)
		}
	}
	breaks := func(text string, target error) func(*testing.T, seen) {
		return func(t *testing.T, s seen) {
			require.ErrorIs(t, s.err, target)
			require.NotNil(t, s.Response)
			assert.Equal(t, http.StatusOK, s.StatusCode)
			assert.Equal(t, text, s.text)
		}
	}
	timesOut := func(t *testing.T, s seen) {
		var timeout net.Error
		require.ErrorAs(t, s.err, &timeout)
		assert.True(t, timeout.Timeout())
	}

	for _, row := range []struct {
		name    string
		reply   func(unit time.Duration) http.Handler
		timeout int    // of the client, in units: over sockets, from when it has seen what it sees
		sees    string // then: "", an answer to come, "200", one whose body is to come, or of that
		body    string // of the request; "": hello
		want    func(*testing.T, seen)
		least   int // units that it takes
		outcome string
		unread  bool // the request body
	}{
		{
			name: "zero value", reply: always(faulttest.Reply{}),
			want: ok(200, ""), outcome: "200",
		}, {
			name: "status", reply: always(faulttest.Status(503)),
			want: ok(503, ""), outcome: "503",
		}, {
			name: "body", reply: always(faulttest.OK("hi")),
			want: ok(200, "hi"), outcome: "200",
		}, {
			name: "JSON", reply: always(faulttest.OK(` {"id":1}`)),
			want: func(t *testing.T, s seen) {
				ok(200, ` {"id":1}`)(t, s)
				assert.Equal(t, "application/json", s.Header.Get("Content-Type"))
			}, outcome: "200",
		}, {
			name: "JSON of another type", reply: always(faulttest.Reply{Body: `[]`, Header: http.Header{"content-type": {"text/x"}}}),
			want: func(t *testing.T, s seen) {
				ok(200, `[]`)(t, s)
				assert.Equal(t, []string{"text/x"}, s.Header.Values("Content-Type"))
			}, outcome: "200",
		}, {
			name: "no JSON", reply: always(faulttest.OK(`{"id":`)),
			want: func(t *testing.T, s seen) {
				assert.Equal(t, "text/plain; charset=utf-8", s.Header.Get("Content-Type"))
			}, outcome: "200",
		}, {
			name: "headers", reply: always(faulttest.Reply{Header: http.Header{"X-A": {"1", "2"}, "Date": {"never"}}}),
			want: func(t *testing.T, s seen) {
				assert.Equal(t, []string{"1", "2"}, s.Header.Values("X-A"))
				assert.Equal(t, "never", s.Header.Get("Date"))
			}, outcome: "200",
		}, {
			name: "no content", reply: always(faulttest.Status(204)),
			want: func(t *testing.T, s seen) {
				require.NoError(t, s.err)
				assert.Equal(t, 204, s.StatusCode)
				assert.Empty(t, s.Header.Values("Content-Length"))
			}, outcome: "204",
		}, {
			name: "redirect", reply: always(faulttest.Redirect(307, "://")),
			want: func(t *testing.T, s seen) {
				require.Error(t, s.err) // a bad Location is net/http's error
				assert.ErrorContains(t, s.err, "Location")
			}, outcome: "307",
		}, {
			name:  "delay",
			reply: func(unit time.Duration) http.Handler { return faulttest.Reply{Delay: 3 * unit} },
			want:  ok(200, ""), least: 3, outcome: "200",
		}, {
			name:    "delay, and the client leaves",
			reply:   func(unit time.Duration) http.Handler { return faulttest.Reply{Delay: 100 * unit} },
			timeout: 3, want: timesOut, least: 3, outcome: "client left",
		}, {
			name:  "slow body",
			reply: func(unit time.Duration) http.Handler { return faulttest.Reply{Body: "12345", Pause: unit, Chunk: 2} },
			want:  ok(200, "12345"), least: 3, outcome: "200",
		}, {
			name:  "slow body, byte by byte",
			reply: func(unit time.Duration) http.Handler { return faulttest.Reply{Body: "12345", Pause: unit} },
			want:  ok(200, "12345"), least: 5, outcome: "200",
		}, {
			name:    "slow body, and the client leaves",
			reply:   func(unit time.Duration) http.Handler { return faulttest.Reply{Body: "123", Pause: 100 * unit} },
			timeout: 3, sees: "200", want: timesOut, least: 3, outcome: "200, client left",
		}, {
			name: "reset before read", reply: always(faulttest.ResetBeforeRead),
			want: fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), outcome: "reset before read", unread: true,
		}, {
			name: "reset before a long body is read", reply: always(faulttest.ResetBeforeRead),
			body: strings.Repeat("x", 4<<20),
			want: fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), outcome: "reset before read", unread: true,
		}, {
			name: "reset before read, after a delay",
			reply: func(unit time.Duration) http.Handler {
				return faulttest.Reply{Fault: faulttest.ResetBeforeRead, Delay: 2 * unit}
			},
			want: fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), least: 2, outcome: "reset before read", unread: true,
		}, {
			name: "reset after read", reply: always(faulttest.ResetAfterRead),
			want: fails(syscall.ECONNRESET), outcome: "reset after read",
		}, {
			name: "reset after a long body is read", reply: always(faulttest.ResetAfterRead),
			body: strings.Repeat("x", 1<<20),
			want: fails(syscall.ECONNRESET), outcome: "reset after read",
		}, {
			name: "reset after read, after a delay",
			reply: func(unit time.Duration) http.Handler {
				return faulttest.Reply{Fault: faulttest.ResetAfterRead, Delay: 2 * unit}
			},
			want: fails(syscall.ECONNRESET), least: 2, outcome: "reset after read",
		}, {
			name: "closed after read", reply: always(faulttest.CloseAfterRead),
			want: fails(io.EOF), outcome: "closed after read",
		}, {
			name: "reset in mid-body", reply: always(faulttest.Reply{Body: "12345678", Fault: faulttest.ResetMidBody}),
			want: breaks("1234", syscall.ECONNRESET), outcome: "200, reset in mid-body after 4 bytes",
		}, {
			name: "reset in mid-body, of its own", reply: always(faulttest.ResetMidBody),
			want: breaks(`{"faulttest":"a body that the cl`, syscall.ECONNRESET), outcome: "200, reset in mid-body after 32 bytes",
		}, {
			name: "reset in a slow mid-body",
			reply: func(unit time.Duration) http.Handler {
				return faulttest.Reply{Body: "12345678", Fault: faulttest.ResetMidBody, At: 3, Pause: unit}
			},
			want: breaks("123", syscall.ECONNRESET), least: 3, outcome: "200, reset in mid-body after 3 bytes",
		}, {
			name: "truncated", reply: always(faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated}),
			want: func(t *testing.T, s seen) {
				breaks("1234", io.ErrUnexpectedEOF)(t, s)
				assert.EqualValues(t, 8, s.ContentLength)
			}, outcome: "200, truncated after 4 bytes",
		}, {
			name: "truncated, of its own", reply: always(faulttest.Truncated),
			want: breaks(`{"faulttest":"a body that the cl`, io.ErrUnexpectedEOF), outcome: "200, truncated after 32 bytes",
		}, {
			name: "truncated at once", reply: always(faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated, At: -1}),
			want: breaks("", io.ErrUnexpectedEOF), outcome: "200, truncated after 0 bytes",
		}, {
			name: "truncated at the end", reply: always(faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated, At: 8}),
			want: breaks("1234567", io.ErrUnexpectedEOF), outcome: "200, truncated after 7 bytes",
		}, {
			name: "stalled", reply: always(faulttest.Reply{Body: "12345678", Fault: faulttest.Stalled}), timeout: 3, sees: "2001234",
			want: func(t *testing.T, s seen) {
				timesOut(t, s)
				assert.Equal(t, "1234", s.text)
			}, least: 3, outcome: "200, stalled after 4 bytes, client left",
		}, {
			name: "hang", reply: always(faulttest.Hang), timeout: 3,
			want: timesOut, least: 3, outcome: "hang, client left",
		}, {
			name: "work", reply: always(faulttest.Reply{Handler: work, Header: http.Header{"x-replaced": {"reply"}}}),
			want: func(t *testing.T, s seen) {
				ok(202, "worked on hello")(t, s)
				assert.Equal(t, "done", s.Header.Get("X-Work"))
				assert.Equal(t, []string{"reply"}, s.Header.Values("X-Replaced"))
				assert.Empty(t, s.Header.Get("X-Late"))
			}, outcome: "202",
		}, {
			name: "work, and another answer", reply: always(faulttest.Reply{Handler: work, Status: 500, Body: "no"}),
			want: ok(500, "no"), outcome: "500",
		}, {
			name: "work that says nothing", reply: always(faulttest.Reply{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.(http.Flusher).Flush()
				if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
				}
			})}),
			want: ok(200, ""), outcome: "200",
		}, {
			name: "work, slow, and cut off",
			reply: func(unit time.Duration) http.Handler {
				return faulttest.Reply{Handler: faulttest.OK("123456"), Delay: unit, Pause: unit, Fault: faulttest.Truncated}
			},
			want: breaks("123", io.ErrUnexpectedEOF), least: 4, outcome: "200, truncated after 3 bytes",
		}, {
			name: "work that is lost", reply: always(faulttest.LoseResponse(work)),
			want: fails(syscall.ECONNRESET), outcome: "reset after read",
		}, {
			name: "fault within a reply", reply: always(faulttest.Reply{Delay: 1, Handler: faulttest.ResetAfterRead}),
			want: fails(syscall.ECONNRESET), outcome: "reset after read",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			onBothFronts(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
				srv := start(row.reply(unit))
				client := srv.Client()
				client.CheckRedirect = nil
				if patience := time.Duration(row.timeout) * unit; unit == time.Hour {
					client.Timeout = patience
				} else if patience > 0 {
					client.Transport = &leaving{
						RoundTripper: client.Transport, patience: patience, over: make(chan struct{}), sees: len(row.sees),
						reached: func() bool { return srv.Total() == 1 && srv.Requests()[0].BodyRead },
					}
				}
				body := row.body
				if body == "" {
					body = "hello"
				}

				begin := time.Now()
				resp, text, err := send(t, client, http.MethodPost, srv.URL+"/things?a=b", body)
				s := seen{resp, text, err, time.Since(begin)}
				row.want(t, s)
				assert.GreaterOrEqual(t, s.took, time.Duration(row.least)*unit)
				if unit == time.Hour {
					assert.Less(t, s.took, time.Duration(row.least)*unit+time.Second)
				}

				if row.timeout > 0 && unit == time.Hour {
					synctest.Wait()
				}
				if row.timeout > 0 && unit != time.Hour {
					// Only the server can tell when it has seen that.
					require.Eventually(t, func() bool { return !srv.Requests()[0].EndedAt.IsZero() }, time.Minute, time.Millisecond)
				}
				require.Len(t, srv.Requests(), 1)
				q := srv.Requests()[0]
				assert.Equal(t, row.outcome, q.Outcome())
				assert.Equal(t, "POST", q.Method)
				assert.Equal(t, "/things?a=b", q.URI)
				if row.timeout == 0 || unit == time.Hour { // else the client's time began before
					assert.GreaterOrEqual(t, q.EndedAt.Sub(q.ReceivedAt), time.Duration(row.least)*unit)
				}
				if !row.unread {
					assert.True(t, q.BodyRead)
					assert.EqualValues(t, len(body), q.BodySize)
					assert.Equal(t, body[:min(len(body), 16<<10)], string(q.Body))
				} else {
					assert.Empty(t, q.Body)
				}
			})
		})
	}
}

// leaving is a client that waits for so long from when it has seen something: on a machine
// that stands still, a timeout would be over before the request has left.
type leaving struct {
	http.RoundTripper

	patience time.Duration
	reached  func() bool   // the server has the request
	sees     int           // bytes of status and body
	seen     atomic.Int64  // of these
	over     chan struct{} // closed then
}

func (l *leaving) RoundTrip(r *http.Request) (*http.Response, error) {
	go func() {
		for begun := time.Now(); !l.reached() || int(l.seen.Load()) < l.sees; time.Sleep(time.Millisecond) {
			if time.Since(begun) > time.Minute {
				break
			}
		}
		time.Sleep(l.patience)
		close(l.over)
	}()
	resp, err := l.RoundTripper.RoundTrip(r.WithContext(overContext{r.Context(), l.over}))
	if err == nil {
		l.seen.Add(int64(len("200")))
		resp.Body = &seenBody{resp.Body, &l.seen}
	}
	return resp, err
}

type seenBody struct {
	io.ReadCloser

	seen *atomic.Int64
}

func (b *seenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Add(int64(n))
	return n, err
}

// overContext is one whose deadline nobody knew before.
type overContext struct {
	context.Context

	over chan struct{}
}

func (c overContext) Done() <-chan struct{} { return c.over }

func (c overContext) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func always(h http.Handler) func(time.Duration) http.Handler {
	return func(time.Duration) http.Handler { return h }
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	onBothFronts(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		srv := start(faulttest.Script{
			{Route: "/old", Handler: faulttest.Redirect(308, "/new")},
			{Route: "POST /new", Handler: faulttest.OK("here")},
		})
		resp, text, err := send(t, srv.Client(), http.MethodPost, srv.URL+"/old", "hello", "Idempotency-Key", "k")
		require.NoError(t, err)
		assert.Equal(t, "here", text)
		assert.Equal(t, "/new", resp.Request.URL.Path)
		srv.AssertKeys(t, 1)
		srv.AssertBodies(t)
		srv.AssertAttempts(t, 2)
	})
}

// TestHead: what has no body has no fault in it.
func TestHead(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.OK("12345678"))
	resp, text, err := send(t, srv.Client(), http.MethodHead, srv.URL, "")
	require.NoError(t, err)
	assert.EqualValues(t, 8, resp.ContentLength)
	assert.Empty(t, text)
}
