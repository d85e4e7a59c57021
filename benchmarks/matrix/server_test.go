package matrix

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// server is a scripted base RoundTripper that records its requests.
type server struct {
	answer  func(attempt int) answer // counted from 1
	arrived func()                   // nil, or called before a request's body is read

	mu       sync.Mutex
	attempts []attempt
	open     int // response bodies
	idle     int // calls of CloseIdleConnections
}

type answer struct {
	status int // 0: a timeout
	header http.Header
	after  time.Duration
}

type attempt struct {
	at, done time.Time
	body     []byte
	key      string // Idempotency-Key
}

func always(status int) func(int) answer {
	return func(int) answer { return answer{status: status} }
}

// timeoutError is the error of a timeout of the network.
type timeoutError struct{}

func (timeoutError) Error() string   { return "matrix: timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attempt{at: time.Now(), key: req.Header.Get("Idempotency-Key")}
	s.mu.Lock()
	n := len(s.attempts)
	s.attempts = append(s.attempts, a)
	s.mu.Unlock()
	if s.arrived != nil {
		s.arrived()
	}
	if req.Body != nil {
		a.body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	said := s.answer(n + 1)
	if said.after > 0 {
		timer := time.NewTimer(said.after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	a.done = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[n] = a
	if said.status == 0 {
		return nil, timeoutError{}
	}
	s.open++
	header := said.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Date", a.done.UTC().Format(http.TimeFormat))
	return &http.Response{
		Status: strconv.Itoa(said.status) + " " + http.StatusText(said.status), StatusCode: said.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: req,
		Body: &body{Reader: bytes.NewReader([]byte("answer")), server: s}, ContentLength: int64(len("answer")),
	}, nil
}

// CloseIdleConnections counts its calls. http.Transport closes the connections of all hosts.
func (s *server) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle++
}

// body is a response body that records Close.
type body struct {
	io.Reader
	server *server
	once   sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		b.server.open--
	})
	return nil
}
