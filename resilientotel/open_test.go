package resilientotel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// T2: no span stays open after a panic of a hook, a broken Base, a 101 or a cancellation.
func TestNoOpenSpan(t *testing.T) {
	fail := func() { panic("boom") }
	failing := script(answer{status: 503}, answer{status: 200})
	for name, row := range map[string]struct {
		transport *resilienthttp.Transport
		ctx       func(context.Context) context.Context
		panics    bool
		call      func(t *testing.T, rt http.RoundTripper, req *http.Request)
	}{
		"AttemptStart panics": {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"AttemptDone panics":  {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"RetryWait panics":    {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"CallDone panics":     {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) { fail() }}}, panics: true},
		"a context's hook panics": {ctx: func(ctx context.Context) context.Context {
			return resilienthttp.WithTrace(ctx, &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) { fail() }})
		}, panics: true},
		"Classify panics": {transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { panic("boom") }}}, panics: true},
		"Base panics":     {transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { panic("boom") })}, panics: true},
		"Base panics in a hedge": {transport: &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: time.Second}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, hedge := resilienthttp.AttemptNumber(r.Context()); hedge {
				panic("boom")
			}
			time.Sleep(2 * time.Second)
			return respond(r, 200), nil
		})}},
		"Base ends the goroutine": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil })},
			call: func(_ *testing.T, rt http.RoundTripper, req *http.Request) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = rt.RoundTrip(req)
				}()
				<-done
			},
		},
		"Base returns nothing": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })},
			call:      func(t *testing.T, rt http.RoundTripper, req *http.Request) { require.Error(t, called(t, rt, req)) },
		},
		"Base returns both": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) { return respond(r, 200), io.EOF })},
			call:      func(t *testing.T, rt http.RoundTripper, req *http.Request) { require.Error(t, called(t, rt, req)) },
		},
		"no body at all": {transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := respond(r, 200)
			resp.Body, resp.ContentLength = nil, 5
			return resp, nil
		})}},
		"an upgraded connection": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				resp := respond(r, 101, "Upgrade", "x")
				resp.Body = &conn{}
				return resp, nil
			})},
			call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				_, err = resp.Body.(io.Writer).Write([]byte("s3cr3t"))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			},
		},
		"no URL": {call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
			req.URL = nil
			require.Error(t, called(t, rt, req))
		}},
		"no request": {call: func(t *testing.T, rt http.RoundTripper, _ *http.Request) {
			_, err := rt.RoundTrip(nil)
			require.Error(t, err)
		}},
		"canceled in the queue": {
			transport: &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}},
			call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
				require.NoError(t, called(t, rt, req))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				require.ErrorIs(t, called(t, rt, req.WithContext(ctx)), context.Canceled)
			},
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r, tr := record(), row.transport
			if tr == nil {
				tr = &resilienthttp.Transport{}
			}
			if tr.Base == nil {
				failing.parent = nil
				tr.Base = failing
			}
			rt, ctx := r.Wrap(tr), t.Context()
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			req := get(t, ctx, url)
			switch {
			case row.call != nil:
				row.call(t, rt, req)
			case row.panics:
				require.Panics(t, func() { _, _ = rt.RoundTrip(req) })
			default:
				require.NoError(t, called(t, rt, req))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			r.allEnded(t)
			require.NotContains(t, r.everything(t), "s3cr3t")
		})
	}
}

// conn is the body of a 101.
type conn struct{ bytes.Buffer }

func (*conn) Close() error { return nil }

// The result of a broken Base is that of a Transport that is not wrapped.
func TestBrokenBase(t *testing.T) {
	for name, base := range map[string]roundTripper{
		"nothing": func(*http.Request) (*http.Response, error) { return nil, nil },
		"no body": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: 5, Request: r}, nil
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			_, bare := (&resilienthttp.Transport{Base: base}).RoundTrip(get(t, t.Context(), url))
			_, wrapped := record().Wrap(&resilienthttp.Transport{Base: base}).RoundTrip(get(t, t.Context(), url))
			require.Equal(t, fmt.Sprint(bare), fmt.Sprint(wrapped))
		})
	}
}

// T2: no span stays open after random scripts of servers and clients.
func TestNoOpenSpan_randomScripts(t *testing.T) {
	scripts, each := 2000, 50
	if raceEnabled || testing.Short() {
		scripts = 200
	}
	for n := range scripts / each {
		synctest.Test(t, func(t *testing.T) {
			for i := range each {
				randomScript(t, rand.New(rand.NewPCG(uint64(n), uint64(i))))
			}
		})
	}
}

func randomScript(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	steps := make([]http.Handler, 1+rnd.IntN(6))
	for i := range steps {
		steps[i] = randomReply(rnd)
	}
	server := faulttest.NewInMemory(nil, faulttest.Sequence(steps...))
	defer server.Close()
	r := record()
	tr := &resilienthttp.Transport{Base: server.Transport(), Policy: resilienthttp.Policy{MaxAttempts: rnd.IntN(5) - 1, ReadTimeout: time.Second}}
	if rnd.IntN(2) == 0 {
		tr.Policy.AttemptTimeout = time.Duration(1+rnd.IntN(5)) * time.Second
	}
	if rnd.IntN(3) == 0 {
		tr.Hedge = &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1}
	}
	if rnd.IntN(4) == 0 {
		tr.RateLimit = &resilienthttp.RateLimit{Limit: 1, Burst: 1}
	}
	if rnd.IntN(8) == 0 {
		tr.Trace = &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) {
			if rnd.IntN(2) == 0 {
				panic("boom")
			}
		}}
	}
	rt, calls := r.Wrap(tr), 1+rnd.IntN(3)
	for range calls {
		randomCall(t, rnd, rt, server.URL)
	}
	time.Sleep(time.Minute) // bodies that are read in the background end
	synctest.Wait()
	r.allEnded(t)
	all := 0
	for _, s := range r.spans.Ended() {
		if s.SpanKind().String() == "internal" {
			all++
		} else {
			require.True(t, s.Parent().SpanID().IsValid())
		}
	}
	require.Equal(t, calls, all)
	rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

func randomReply(rnd *rand.Rand) http.Handler {
	statuses := []int{200, 200, 201, 204, 301, 404, 409, 429, 500, 502, 503, 529}
	reply := faulttest.Reply{Status: statuses[rnd.IntN(len(statuses))], Body: strings.Repeat("x", rnd.IntN(200))}
	if reply.Status == http.StatusNoContent {
		reply.Body = ""
	}
	if rnd.IntN(3) == 0 {
		reply.Fault = faulttest.Fault(rnd.IntN(int(faulttest.Hang) + 1))
	}
	if rnd.IntN(3) == 0 {
		reply.Delay = time.Duration(rnd.IntN(8000)) * time.Millisecond
	}
	if reply.Status >= 429 && rnd.IntN(2) == 0 {
		reply.RetryAfter = time.Duration(1+rnd.IntN(3)) * time.Second
	}
	return reply
}

func randomCall(t *testing.T, rnd *rand.Rand, rt http.RoundTripper, to string) {
	t.Helper()
	defer func() { _ = recover() }() // from the hook
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(30))*time.Second)
	defer cancel()
	if rnd.IntN(4) == 0 {
		time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Millisecond, cancel)
	}
	method, body := http.MethodGet, io.Reader(nil)
	if rnd.IntN(2) == 0 {
		method, body = http.MethodPost, strings.NewReader(strings.Repeat("y", rnd.IntN(1000)))
	}
	req, err := http.NewRequestWithContext(ctx, method, to+"/s3cr3t", body)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		_, ok := errors.AsType[*resilienthttp.Error](err)
		require.True(t, ok, "%T", err)
		return
	}
	if rnd.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	require.NoError(t, resp.Body.Close())
}
