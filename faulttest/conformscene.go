package faulttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// scene is a server that behaves in one way, and a client. It is the TB of its server and of
// assertions.
type scene struct {
	*Server

	name   string
	trial  *trial
	client http.RoundTripper
	end    func() // closes the client
	failed atomic.Bool
}

var _ TB = (*scene)(nil)

// scene starts a server and makes a client.
func (c *trial) scene(name string, script http.Handler, edit ...func(*Server)) *scene {
	s := &scene{Server: &Server{Script: capped(script), InMemory: true}, name: name, trial: c}
	s.KeyHeader = c.keyHeader
	s.MaxRequests = -1
	s.GroupCalls = func(q *Request) string { return q.URI }
	for _, f := range edit {
		f(s.Server)
	}
	s.Start(s)
	if a, ok := script.(away); ok {
		s.refuse(a.time)
	}
	c.servers = append(c.servers, s.Server)
	s.client, s.end = s.another()
	return s
}

// another returns one more client of the server. end closes it, if it can be closed.
func (s *scene) another() (client http.RoundTripper, end func()) {
	client = s.trial.wrap(s.Transport())
	if client == nil {
		s.Errorf("wrap returned nil (want a client)")
		return s.Transport(), func() {}
	}
	end = sync.OnceFunc(func() {
		if c, ok := client.(io.Closer); ok {
			_ = c.Close()
		}
	})
	s.Cleanup(end)
	return client, end
}

// maxRequests is the number of requests of a scene that are answered. A client that never waits
// between attempts sends more. The time of the bubble would then stand still, and the test would hang.
const maxRequests = 3000

func capped(script http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > maxRequests {
			Hang.ServeHTTP(w, r)
		}
		script.ServeHTTP(w, r)
	})
}

// away is a server that refuses connections for so long, and then answers as its handler.
type away struct {
	http.Handler

	time time.Duration
}

// refuse makes the server refuse connections for so long.
func (s *scene) refuse(d time.Duration) {
	dial := s.Transport().DialContext
	back := time.Now().Add(d)
	s.Transport().DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if time.Now().Before(back) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return dial(ctx, network, address)
	}
}

func (s *scene) Helper() {}

// Errorf records the first failure of the scene. Later ones mostly follow from it.
func (s *scene) Errorf(format string, args ...any) {
	if !s.failed.Swap(true) {
		s.trial.errorf("%s: %s", s.name, fmt.Sprintf(format, args...))
	}
}

func (s *scene) Logf(format string, args ...any) { s.trial.t.Logf(format, args...) }

func (s *scene) Cleanup(f func()) { s.trial.t.Cleanup(f) }

// want fails the row with the requests of the scene, unless it is ok.
func (s *scene) want(ok bool, what, want, got string) { s.wantAt(s.Server, ok, what, want, got) }

// wantAt is want with the requests of another server.
func (s *scene) wantAt(server *Server, ok bool, what, want, got string) {
	if !ok {
		server.fail(s, what, want, got)
	}
}

// fetched is the result of a call, with the body of its response.
type fetched struct {
	resp *http.Response
	err  error
	at   time.Time // when RoundTrip returned

	body    string
	bodyErr error
}

// served reports whether the call succeeded.
func (f fetched) served() bool {
	return f.err == nil && f.resp != nil && f.resp.StatusCode < 300 && f.bodyErr == nil
}

func (f fetched) String() string {
	switch {
	case f.err != nil:
		return cut(f.err.Error(), 200)
	case f.resp == nil:
		return "neither response nor error"
	case f.bodyErr != nil:
		return fmt.Sprintf("%d, then %v after %d bytes of the body", f.resp.StatusCode, f.bodyErr, len(f.body))
	}
	return fmt.Sprintf("%d with %d bytes", f.resp.StatusCode, len(f.body))
}

// usual is the time that a call has.
const usual = time.Minute

// call makes a call that has so long. edit changes its request.
func (s *scene) call(left time.Duration, method, body string, edit ...func(*http.Request)) fetched {
	ctx, cancel := context.WithTimeout(s.trial.life, left)
	defer cancel()
	req := s.request(ctx, method, "/file", body)
	for _, f := range edit {
		f(req)
	}
	return s.fetch(s.client.RoundTrip, req)
}

// get makes a call of GET that has so long.
func (s *scene) get(left time.Duration, client http.RoundTripper, path string) fetched {
	ctx, cancel := context.WithTimeout(s.trial.life, left)
	defer cancel()
	return s.fetch(client.RoundTrip, s.request(ctx, http.MethodGet, path, ""))
}

// request returns a request to the server.
func (s *scene) request(ctx context.Context, method, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		panic(err) // all methods and paths are constants
	}
	return req
}

// fetch makes a call by do and reads the response.
func (s *scene) fetch(do func(*http.Request) (*http.Response, error), req *http.Request) (got fetched) {
	defer func() {
		if cause := recover(); cause != nil {
			s.Errorf("panic: %v\n%s", cause, debug.Stack())
			got = fetched{err: errors.New("the client panicked"), at: time.Now()}
		}
	}()
	got.resp, got.err = do(req) //nolint:bodyclose // it is closed below
	got.at = time.Now()
	if got.resp == nil {
		return got
	}
	if got.resp.Body == nil {
		s.Errorf("the response has no Body (want http.NoBody if it is empty)")
		return got
	}
	defer got.resp.Body.Close()
	body, err := io.ReadAll(got.resp.Body)
	got.body, got.bodyErr = string(body), err
	return got
}

// load makes calls, one after each pause, and returns how many succeeded.
func (s *scene) load(client http.RoundTripper, calls int, pause, left time.Duration) int64 {
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			if s.get(left, client, fmt.Sprintf("/calls/%d", i)).served() {
				served.Add(1)
			}
		})
		_ = sleep.Context(s.trial.life, pause) // it ends after the row
	}
	wg.Wait()
	return served.Load()
}

// bubbleGoroutines returns the stacks of the goroutines of the caller's bubble, by their IDs.
func bubbleGoroutines() map[string]string {
	trace := make([]byte, 1<<16)
	for {
		n := runtime.Stack(trace, true)
		if n < len(trace) {
			trace = trace[:n]
			break
		}
		trace = make([]byte, 2*len(trace))
	}
	stacks := strings.Split(string(trace), "\n\n") // the caller's is the first one
	head, _, _ := strings.Cut(stacks[0], "\n")
	_, bubble, _ := strings.Cut(head, ", synctest bubble ")
	all := make(map[string]string)
	for _, stack := range stacks {
		head, _, _ := strings.Cut(stack, "\n")
		id, _, _ := strings.Cut(head, " [")
		if strings.HasSuffix(head, ", synctest bubble "+bubble) {
			all[id] = stack
		}
	}
	return all
}
