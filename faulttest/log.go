package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Log records requests and has assertions about them. Each [Server] has one. On a server of your
// own, serve log.Record(handler). The zero value is ready for use. A Log is safe for concurrent
// use; its fields must not be modified after its first request.
//
// The record of a request is complete before the client gets the end of the response. Exceptions are
// handlers of your own that flush that end or hijack the connection. The cancellation of a client is
// recorded a moment later (in a synctest bubble: after synctest.Wait). After Close of the Server
// all records are complete.
type Log struct {
	// KeyHeader is the field of the idempotency key. "" means Idempotency-Key.
	KeyHeader string
	// DeadlineHeader is the field of the deadline, an RFC 3339 time. "" means X-Request-Deadline.
	DeadlineHeader string

	// MaxRequests is the maximum number of requests that are kept, the latest ones. Zero means
	// 4096. A negative number means no limit.
	MaxRequests int
	// MaxBody is the maximum number of bytes of each request body that are kept, the first ones.
	// Zero means 16 KiB. A negative number means no limit.
	MaxBody int

	// GroupCalls returns the ID of a request's call. Requests with the same ID are attempts of one
	// call. It is called by the methods that return or check calls. nil means the idempotency key;
	// without a key: method, URI and body. A request without a key and with a body that was not
	// read to its end belongs to the latest call with its method and URI.
	GroupCalls func(*Request) string

	// Skew is the time by which the server's clock is ahead, in Date fields and in dates and
	// resets of this package's responses. In a testing/synctest bubble, which starts in the
	// year 2000, many clients cannot distinguish epoch seconds from a number of seconds. If
	// Skew is 0, responses with epoch resets are therefore two years ahead there. For a client
	// that ignores Date, set a Skew of 1 ns, which disables this.
	Skew time.Duration

	mu     sync.Mutex
	tb     TB // the Server's, or nil
	life   context.Context
	begin  time.Time
	total  int
	kept   []*Request
	conns  map[string]int // numbers of open connections by remote address
	opened int
	states map[*state]*state
}

const defaultKeyHeader = "Idempotency-Key"

// maxConns is the maximum number of connections in memory, for servers that do not report closed
// ones.
const maxConns = 1 << 14

// Record returns a handler that records requests and calls next. Several servers can share a Log.
// A nil next means the zero [Reply]. Before next responds over HTTP/1, up to 256 KiB of the unread
// request body are read, as net/http does.
func (l *Log) Record(next http.Handler) http.Handler {
	next = orOK(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := l.arrive(r)
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		if r.Body != nil && r.Body != http.NoBody {
			x.body = newBody(x, r)
			r.Body = x.body
		}
		rec := &recorder{ResponseWriter: w, x: x}
		returned := false
		unwatch := context.AfterFunc(r.Context(), func() { x.gone(r.Context()) })
		defer func() {
			unwatch()
			x.end(r.Context(), returned)
		}()
		next.ServeHTTP(rec, r)
		rec.finish()
		returned = true
	})
}

// Requests returns the latest MaxRequests requests in order of arrival.
func (l *Log) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.last()
	list := make([]Request, len(kept))
	for i, q := range kept {
		list[i] = *q
	}
	return list
}

// Total returns the number of requests, including those that are not kept.
func (l *Log) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Calls returns the calls in the order of their first requests. See [Log.GroupCalls].
func (l *Log) Calls() []Call {
	var calls []Call
	index := make(map[string]int)  // by ID
	latest := make(map[string]int) // by method and URI, for requests without a key
	for _, q := range l.Requests() {
		target := q.Method + " " + q.URI
		var id string
		switch {
		case l.GroupCalls != nil:
			id = l.GroupCalls(&q)
		case q.Key != "":
			id = q.Key
		case q.BodyRead:
			id = fmt.Sprintf("%s %x", target, q.sum[:4])
			// A call that started with unread bodies is this call.
			if i, ok := index[target]; ok {
				delete(index, target)
				calls[i].ID, index[id] = id, i
			}
		default:
			id = target
			if i, ok := latest[target]; ok {
				id = calls[i].ID
			}
		}
		i, ok := index[id]
		if !ok {
			i = len(calls)
			index[id] = i
			calls = append(calls, Call{ID: id})
		}
		if q.Key == "" {
			latest[target] = i
		}
		calls[i].Attempts = append(calls[i].Attempts, q)
	}
	return calls
}

// arrive starts the record of r.
func (l *Log) arrive(r *http.Request) *exchange {
	now := time.Now()
	q := &Request{
		Method:     r.Method,
		Host:       r.Host,
		URI:        r.RequestURI,
		Path:       r.URL.Path,
		Header:     r.Header.Clone(),
		BodyRead:   r.Body == nil || r.Body == http.NoBody || r.ProtoMajor >= 2 && r.ContentLength == 0,
		Key:        r.Header.Get(l.keyHeader()),
		ReceivedAt: now,

		ContentLength: r.ContentLength,
	}
	if q.URI == "" { // r does not come from a connection
		q.URI = r.URL.RequestURI()
	}
	q.readDeadline(cmp.Or(l.DeadlineHeader, "X-Request-Deadline"))

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin.IsZero() {
		l.begin = now
	}
	l.total++
	q.Number = l.total
	q.Conn, q.Reused = l.conn(r.RemoteAddr)
	l.kept = append(l.kept, q)
	if limit := l.maxRequests(); limit > 0 && len(l.kept) >= 2*limit {
		l.kept = slices.Clone(l.last())
	}
	return &exchange{log: l, entry: q}
}

// last returns the latest MaxRequests requests. More are kept, because removing one with each
// request would copy the others each time.
func (l *Log) last() []*Request {
	if limit := l.maxRequests(); limit > 0 && len(l.kept) > limit {
		return l.kept[len(l.kept)-limit:]
	}
	return l.kept
}

func (l *Log) maxRequests() int { return cmp.Or(l.MaxRequests, 4096) }

func (l *Log) keyHeader() string { return cmp.Or(l.KeyHeader, defaultKeyHeader) }

// conn returns the number of the connection.
func (l *Log) conn(remote string) (number int, reused bool) {
	if n, ok := l.conns[remote]; ok {
		return n, true
	}
	if l.conns == nil || len(l.conns) >= maxConns {
		l.conns = make(map[string]int)
	}
	l.opened++
	l.conns[remote] = l.opened
	return l.opened, false
}

// forget removes a closed connection, because its port may be used again.
func (l *Log) forget(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, remote)
}

// start sets the start of the Log's time, unless it is set.
func (l *Log) start(tb TB, life context.Context) { //nolint:revive // context-as-argument: tb comes first here
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tb, l.life = tb, life
	if l.begin.IsZero() {
		l.begin = time.Now()
	}
	if isKey(tb) {
		servers.Store(tb, l)
	}
}

// stop removes the test, which has ended.
func (l *Log) stop(tb TB) {
	if isKey(tb) {
		servers.CompareAndDelete(tb, l)
	}
}

// servers has the Log of the latest Server for each TB during its test. An Idempotent without any
// request has no Log of its own, and prints the transcript of that one.
var servers sync.Map //nolint:gochecknoglobals // by TB, removed at the end of the test

// isKey reports whether tb can be a key of servers. A map panics for keys that are not comparable,
// such as a struct with a slice.
func isKey(tb TB) bool { return tb != nil && reflect.ValueOf(tb).Comparable() }

// logOf returns the Log of tb's Server, or nil.
func logOf(tb TB) *Log {
	if !isKey(tb) {
		return nil
	}
	l, _ := servers.Load(tb)
	log, _ := l.(*Log)
	return log
}

// state returns the state of a Rule or of Steps for this Log, because several servers may share
// them. It also returns the start of the Log's time.
func (l *Log) state(s *state) (mine *state, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine = l.states[s]
	if mine == nil {
		if l.states == nil {
			l.states = make(map[*state]*state)
		}
		mine = new(state)
		l.states[s] = mine
	}
	return mine, l.begin
}

// misuse fails the test because of a mistake in it.
func (l *Log) misuse(text string) {
	l.mu.Lock()
	tb := l.tb
	l.mu.Unlock()
	asTesting{tb: tb}.Errorf("faulttest: %s", text)
}
