package fuzz_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// fault is what a server does with one request.
type fault struct {
	work   bool              // it does the work before it answers
	pause  time.Duration     // before the work
	early  bool              // it sends 103 first
	hasty  bool              // it answers before it has read the body
	late   bool              // it reads the body after the pause, so that a long one waits in the client
	status int               // of the answer; 0: 200
	fields map[string]string // of the answer
	to     string            // Location: the host, "" is its own
	end    string            // instead of an answer, or after it
}

// The ends of a connection.
const (
	endReset = "reset"      // no answer, and a reset
	endClose = "close"      // no answer, and a closed connection or stream
	endDie   = "die"        // no answer, and for some seconds no server
	endShort = "short body" // of the answer
	endIdle  = "idle close" // the connection is closed while it is idle, or used again
)

// servers are the servers of a script, and what they have done.
type servers struct {
	net  *memhttp.Network
	each []*server
	list bool // the client has them in a list

	shared bool // the servers know each other's keys

	hidden bool // Base hides its connections, so a repetition without a body or with a safe method is unseen: docs/errors.md

	mu      sync.Mutex
	seen    map[string][]string       // what the servers did, by call
	moved   map[string]bool           // a server redirected the call
	across  map[string]bool           // to another server
	work    map[string]map[string]int // work by call and server
	torn    map[string]bool           // work was done for a body that the call has not sent
	balance account                   // the regions share it
	running int                       // handlers
}

// account is a resource with an entity tag.
type account struct {
	content string
	version int
}

// server is one of the servers. It has a fault for each of its first requests. Then it is healthy.
type server struct {
	*servers
	*memhttp.Server

	host   string
	faults []fault
	keys   map[string]string // the state of each idempotency key: busy or done
	away   bool              // it refuses connections; guarded by mu
}

func (s *server) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// dial is DialContext of the network, without the servers that are away.
func (s *servers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	away := slices.ContainsFunc(s.each, func(srv *server) bool { return srv.away && address == srv.host+":80" })
	s.mu.Unlock()
	if away {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return s.net.DialContext(ctx, network, address)
}

func startServers(t *testing.T, s *script) *servers {
	t.Helper()
	all := &servers{net: memhttp.NewNetwork(t), list: s.settings.endpoints, shared: s.sharedKeys, hidden: s.settings.base == "hiding", seen: map[string][]string{}, moved: map[string]bool{}, across: map[string]bool{}, work: map[string]map[string]int{}, torn: map[string]bool{}}
	shared := map[string]string{}
	for i, faults := range s.faults {
		srv := &server{servers: all, host: hosts[i], faults: faults, keys: map[string]string{}}
		if s.sharedKeys {
			srv.keys = shared
		}
		var opts []memhttp.Option
		if s.http2 {
			opts = append(opts, memhttp.HTTP2())
		}
		srv.Server = all.net.Serve(t, srv.host, srv, opts...)
		all.each = append(all.each, srv)
	}
	return all
}

// heal makes all servers healthy.
func (s *servers) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, srv := range s.each {
		srv.faults, srv.away = nil, false
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Call")
	f := s.arrive(r, 1)
	defer s.arrive(r, -1)
	if f.hasty && !strings.Contains(r.URL.Path, "/account/") {
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, id)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Millisecond)
		return
	}
	if f.late {
		time.Sleep(f.pause)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f = fault{end: endClose} // the client has left: nothing is done
	}
	key := r.Header.Get("Idempotency-Key") + r.Header.Get("X-Idempotency-Key")
	if r.Method == http.MethodGet {
		key = ""
	}
	state := s.begin(key, f.work)
	time.Sleep(f.pause)
	if f.early {
		w.WriteHeader(http.StatusEarlyHints)
	}
	status, content := f.status, id
	switch {
	case state == "busy":
		status = http.StatusConflict
	case strings.Contains(r.URL.Path, "/account/"):
		status, content = s.account(w, r, f, string(body), state == "done")
	case f.work && state == "new":
		s.finish(r.Method, id, string(body))
	}
	s.end(key, f.work && state == "new" && status/100 != 4)
	switch f.end {
	case endReset:
		memhttp.Reset(memhttp.RequestConn(r))
		panic(http.ErrAbortHandler)
	case endDie:
		s.setAway(true)
		time.AfterFunc(5*time.Second, func() { s.setAway(false) })
		s.ResetConns()
		panic(http.ErrAbortHandler)
	case endClose:
		panic(http.ErrAbortHandler)
	case endShort:
		w.Header().Set("Content-Length", "1000")
	case endIdle:
		conn := memhttp.RequestConn(r)
		time.AfterFunc(idleClose, func() { _ = conn.Close() })
	}
	for name, value := range f.fields {
		if f.work && key == "" && value == "true" {
			continue // no server asks for the repetition of what it has done, and would not recognize
		}
		w.Header().Set(name, value)
	}
	if status/100 == 3 {
		host := s.host
		if f.to != "" {
			host = f.to
		}
		w.Header().Set("Location", "http://"+host+path.Join("/moved", r.URL.Path))
	}
	if status != 0 {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, content)
}

// arrive notes a request, and returns what the server does with it.
func (s *server) arrive(r *http.Request, running int) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += running
	if running < 0 {
		return fault{}
	}
	f := fault{work: true}
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	id := r.Header.Get("Call")
	s.seen[id] = append(s.seen[id], fmt.Sprintf("%s %s %s%s %+v", time.Now().Format("05.000"), r.Method, s.host, r.URL.Path, f))
	if f.status/100 == 3 {
		s.moved[id] = true
		s.across[id] = s.across[id] || f.to != "" && f.to != s.host
	}
	return f
}

// begin returns the state of the key before the request: new, busy or done.
func (s *server) begin(key string, work bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.keys[key]; state != "" && work {
		return state
	}
	if key != "" && work {
		s.keys[key] = "busy"
	}
	return "new"
}

func (s *server) end(key string, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done && key != "" {
		s.keys[key] = "done"
	}
}

// finish does the work of a call.
func (s *server) finish(method, id, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == http.MethodGet {
		return
	}
	if body != "" && body != id && body != long(id) {
		s.torn[id] = true
	}
	if s.work[id] == nil {
		s.work[id] = map[string]int{}
	}
	s.work[id][s.host]++
}

// account reads or writes the resource.
func (s *server) account(w http.ResponseWriter, r *http.Request, f fault, body string, done bool) (status int, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.balance
	tag := fmt.Sprintf("%q", fmt.Sprint(a.version))
	w.Header().Set("ETag", tag)
	switch {
	case r.Method == http.MethodGet || done || !f.work:
		return f.status, a.content
	case r.Header.Get("If-Match") != tag:
		return http.StatusPreconditionFailed, a.content
	}
	a.content, a.version = body, a.version+1
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(a.version)))
	return f.status, a.content
}
