package faulttest_test

import (
	"cmp"
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

// seen is the result of a call.
type seen struct {
	*http.Response

	text string
	err  error // of the call or of the body
	took time.Duration
}

// Each Reply has the expected result for an http.Client, on both servers.
func TestReply(t *testing.T) {
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
			assert.Nil(t, s.Response, "want no response")
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
		reply   http.Handler // its Delay and Pause are in units
		timeout int          // of the client, in units; over sockets it starts after the client has received sees
		sees    string       // status and body; "": none
		body    string       // of the request; "": hello
		want    func(*testing.T, seen)
		units   int // minimum duration
		outcome string
		unread  bool // the request body is not read
	}{
		{name: "zero value", reply: faulttest.Reply{}, want: ok(200, ""), outcome: "200"},
		{name: "status", reply: faulttest.Status(503), want: ok(503, ""), outcome: "503"},
		{name: "body", reply: faulttest.OK("hi"), want: ok(200, "hi"), outcome: "200"},
		{name: "JSON", reply: faulttest.OK(` {"id":1}`),
			want: func(t *testing.T, s seen) {
				ok(200, ` {"id":1}`)(t, s)
				assert.Equal(t, "application/json", s.Header.Get("Content-Type"))
			}, outcome: "200"},
		{name: "JSON with another Content-Type", reply: faulttest.Reply{Body: `[]`, Header: http.Header{"content-type": {"text/x"}}},
			want: func(t *testing.T, s seen) {
				ok(200, `[]`)(t, s)
				assert.Equal(t, []string{"text/x"}, s.Header.Values("Content-Type"))
			}, outcome: "200"},
		{name: "invalid JSON", reply: faulttest.OK(`{"id":`),
			want: func(t *testing.T, s seen) {
				assert.Equal(t, "text/plain; charset=utf-8", s.Header.Get("Content-Type"))
			}, outcome: "200"},
		{name: "headers", reply: faulttest.Reply{Header: http.Header{"X-A": {"1", "2"}, "Date": {"never"}}},
			want: func(t *testing.T, s seen) {
				assert.Equal(t, []string{"1", "2"}, s.Header.Values("X-A"))
				assert.Equal(t, "never", s.Header.Get("Date"))
			}, outcome: "200"},
		{name: "no content", reply: faulttest.Status(204),
			want: func(t *testing.T, s seen) {
				require.NoError(t, s.err)
				assert.Equal(t, 204, s.StatusCode)
				assert.Empty(t, s.Header.Values("Content-Length"))
			}, outcome: "204"},
		{name: "redirect", reply: faulttest.Redirect(307, "://"),
			want: func(t *testing.T, s seen) {
				require.Error(t, s.err) // a bad Location is net/http's error
				assert.ErrorContains(t, s.err, "Location")
			}, outcome: "307"},
		{name: "delay", reply: faulttest.Reply{Delay: 3}, want: ok(200, ""), units: 3, outcome: "200"},
		{name: "delay, and the client cancels", reply: faulttest.Reply{Delay: 100}, timeout: 3, want: timesOut, units: 3, outcome: "client canceled"},
		{name: "slow body", reply: faulttest.Reply{Body: "12345", Pause: 1, Chunk: 2}, want: ok(200, "12345"), units: 3, outcome: "200"},
		{name: "slow body, byte by byte", reply: faulttest.Reply{Body: "12345", Pause: 1}, want: ok(200, "12345"), units: 5, outcome: "200"},
		{name: "slow body, and the client cancels",
			reply:   faulttest.Reply{Body: "123", Pause: 100},
			timeout: 3, sees: "200", want: timesOut, units: 3, outcome: "200, client canceled"},
		{name: "reset before read", reply: faulttest.ResetBeforeRead,
			want: fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), outcome: "reset before read", unread: true},
		{name: "reset before a long body is read", reply: faulttest.ResetBeforeRead,
			body: strings.Repeat("x", 4<<20),
			want: fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), outcome: "reset before read", unread: true},
		{name: "reset before read, after a delay",
			reply: faulttest.Reply{Fault: faulttest.ResetBeforeRead, Delay: 2},
			want:  fails(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), units: 2, outcome: "reset before read", unread: true},
		{name: "reset after read", reply: faulttest.ResetAfterRead, want: fails(syscall.ECONNRESET), outcome: "reset after read"},
		{name: "reset after a long body is read", reply: faulttest.ResetAfterRead,
			body: strings.Repeat("x", 1<<20),
			want: fails(syscall.ECONNRESET), outcome: "reset after read"},
		{name: "reset after read, after a delay",
			reply: faulttest.Reply{Fault: faulttest.ResetAfterRead, Delay: 2},
			want:  fails(syscall.ECONNRESET), units: 2, outcome: "reset after read"},
		{name: "closed after read", reply: faulttest.CloseAfterRead, want: fails(io.EOF), outcome: "closed after read"},
		{name: "reset in mid-body", reply: faulttest.Reply{Body: "12345678", Fault: faulttest.ResetMidBody},
			want: breaks("1234", syscall.ECONNRESET), outcome: "200, reset in mid-body after 4 bytes"},
		{name: "reset in the default body", reply: faulttest.ResetMidBody,
			want: breaks(`{"faulttest":"a body that the cl`, syscall.ECONNRESET), outcome: "200, reset in mid-body after 32 bytes"},
		{name: "reset in a slow mid-body",
			reply: faulttest.Reply{Body: "12345678", Fault: faulttest.ResetMidBody, At: 3, Pause: 1},
			want:  breaks("123", syscall.ECONNRESET), units: 3, outcome: "200, reset in mid-body after 3 bytes"},
		{name: "truncated", reply: faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated},
			want: func(t *testing.T, s seen) {
				breaks("1234", io.ErrUnexpectedEOF)(t, s)
				assert.EqualValues(t, 8, s.ContentLength)
			}, outcome: "200, truncated after 4 bytes"},
		{name: "truncated default body", reply: faulttest.Truncated,
			want: breaks(`{"faulttest":"a body that the cl`, io.ErrUnexpectedEOF), outcome: "200, truncated after 32 bytes"},
		{name: "truncated at once", reply: faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated, At: -1},
			want: breaks("", io.ErrUnexpectedEOF), outcome: "200, truncated after 0 bytes"},
		{name: "truncated at the end", reply: faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated, At: 8},
			want: breaks("1234567", io.ErrUnexpectedEOF), outcome: "200, truncated after 7 bytes"},
		{name: "stalled", reply: faulttest.Reply{Body: "12345678", Fault: faulttest.Stalled}, timeout: 3, sees: "2001234",
			want: func(t *testing.T, s seen) {
				timesOut(t, s)
				assert.Equal(t, "1234", s.text)
			}, units: 3, outcome: "200, stalled after 4 bytes, client canceled"},
		{name: "hang", reply: faulttest.Hang, timeout: 3, want: timesOut, units: 3, outcome: "hang, client canceled"},
		{name: "work", reply: faulttest.Reply{Handler: work, Header: http.Header{"x-replaced": {"reply"}}},
			want: func(t *testing.T, s seen) {
				ok(202, "worked on hello")(t, s)
				assert.Equal(t, "done", s.Header.Get("X-Work"))
				assert.Equal(t, []string{"reply"}, s.Header.Values("X-Replaced"))
				assert.Empty(t, s.Header.Get("X-Late"))
			}, outcome: "202"},
		{name: "work, and another response", reply: faulttest.Reply{Handler: work, Status: 500, Body: "no"}, want: ok(500, "no"), outcome: "500"},
		{name: "work without a response", reply: faulttest.Reply{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})},
			want: ok(200, ""), outcome: "200"},
		{name: "work, slow, and truncated",
			reply: faulttest.Reply{Handler: faulttest.OK("123456"), Delay: 1, Pause: 1, Fault: faulttest.Truncated},
			want:  breaks("123", io.ErrUnexpectedEOF), units: 4, outcome: "200, truncated after 3 bytes"},
		{name: "work with a lost response", reply: faulttest.LoseResponse(work), want: fails(syscall.ECONNRESET), outcome: "reset after read"},
		{name: "fault within a reply", reply: faulttest.Reply{Delay: 1, Handler: faulttest.ResetAfterRead},
			want: fails(syscall.ECONNRESET), outcome: "reset after read"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
				handler := row.reply
				if reply, ok := handler.(faulttest.Reply); ok {
					reply.Delay = time.Duration(int64(reply.Delay) * int64(unit))
					reply.Pause = time.Duration(int64(reply.Pause) * int64(unit))
					handler = reply
				}
				srv := start(handler)
				client := srv.Client()
				client.CheckRedirect = nil
				if timeout := time.Duration(row.timeout) * unit; unit == time.Hour {
					client.Timeout = timeout
				} else if timeout > 0 {
					client.Transport = &canceling{
						RoundTripper: client.Transport, timeout: timeout, ended: make(chan struct{}), sees: len(row.sees),
						reached: func() bool { return srv.Total() == 1 && srv.Requests()[0].BodyRead },
					}
				}
				body := cmp.Or(row.body, "hello")
				begin := time.Now()
				resp, text, err := send(t, client, http.MethodPost, srv.URL+"/things?a=b", body)
				s := seen{resp, text, err, time.Since(begin)}
				row.want(t, s)
				assert.GreaterOrEqual(t, s.took, time.Duration(row.units)*unit)
				if unit == time.Hour {
					assert.Less(t, s.took, time.Duration(row.units)*unit+time.Second)
				}

				if row.timeout > 0 && unit == time.Hour {
					synctest.Wait()
				}
				if row.timeout > 0 && unit != time.Hour {
					// The server notices the cancellation a moment later.
					require.Eventually(t, func() bool { return !srv.Requests()[0].EndedAt.IsZero() }, time.Minute, time.Millisecond)
				}
				require.Len(t, srv.Requests(), 1)
				q := srv.Requests()[0]
				assert.Equal(t, row.outcome, q.Outcome())
				assert.Equal(t, "POST", q.Method)
				assert.Equal(t, "/things?a=b", q.URI)
				if row.timeout == 0 || unit == time.Hour { // otherwise the client's time started earlier
					assert.GreaterOrEqual(t, q.EndedAt.Sub(q.ReceivedAt), time.Duration(row.units)*unit)
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

// canceling is a transport with a timeout that starts after the client has received a part of the
// response. On a slow machine a usual timeout could end before the request is sent.
type canceling struct {
	http.RoundTripper

	timeout time.Duration
	reached func() bool   // whether the server has the request
	sees    int           // bytes of status and body to receive before the timeout
	seen    atomic.Int64  // received bytes
	ended   chan struct{} // closed after the timeout
}

func (l *canceling) RoundTrip(r *http.Request) (*http.Response, error) {
	go func() {
		for begun := time.Now(); !l.reached() || int(l.seen.Load()) < l.sees; time.Sleep(time.Millisecond) {
			if time.Since(begun) > time.Minute {
				break
			}
		}
		time.Sleep(l.timeout)
		close(l.ended)
	}()
	resp, err := l.RoundTripper.RoundTrip(r.WithContext(endingContext{r.Context(), l.ended}))
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

// endingContext ends with a deadline that is not known before.
type endingContext struct {
	context.Context

	ended chan struct{}
}

func (c endingContext) Done() <-chan struct{} { return c.ended }

func (c endingContext) Err() error {
	select {
	case <-c.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestReply_head(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.OK("12345678"))
	resp, text := answered(t, srv.Client(), http.MethodHead, srv.URL, "")
	assert.EqualValues(t, 8, resp.ContentLength)
	assert.Empty(t, text)
}
