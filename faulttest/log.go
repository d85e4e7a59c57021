package faulttest

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"
)

// A Log records requests, and says what is wrong with them. It is a part of each
// [Server]; on a server of your own, serve log.Record(handler). The zero value
// is ready for use. All methods may be called at any time and by many
// goroutines; the fields must be left alone once it has seen a request.
//
// Memory is bounded by MaxRequests and MaxBody.
//
// The record of a request is complete before the client can have seen the end
// of its answer, save where a handler of your own flushes that end or hijacks.
// That a client has left is noticed only moments later (in a synctest bubble:
// after synctest.Wait), and all has come to an end when the Server is closed.
type Log struct {
	KeyHeader      string // the field of the idempotency key; "": Idempotency-Key
	DeadlineHeader string // the field of the deadline, an RFC 3339 time; "": X-Request-Deadline. X-Request-Timeout-Ms has no other name

	MaxRequests int // how many requests are kept, the latest ones; 0: 4096; negative: all
	MaxBody     int // how many bytes of each request body are kept, the first ones; 0: 16 KiB; negative: all

	// CallOf tells which requests are attempts of one call: those for which it
	// returns the same. It is called by the methods that look at calls, not when a
	// request comes, so that it can look at the whole record. Nil: the idempotency
	// key, and without one method, URI and body; two calls that are alike in these
	// count as one. A request whose body was not read to its end (reset before it
	// was read, say) is one of the latest call with its method and URI.
	GroupCalls func(*Request) string

	// Skew is how far the server's clock is ahead of that of the machine: in the
	// Date, in dates and resets of the answers of this package. A bubble of
	// testing/synctest starts in the year 2000, when the seconds since 1970 were
	// too few to be told from a number of seconds to go by many a client; so where
	// Skew is 0, answers that tell resets in seconds since 1970 are dated two years
	// later there. For a client that reads them by its own clock, and not by the
	// Date beside them, set a Skew: of a nanosecond, say.
	Skew time.Duration

	mu     sync.Mutex
	tb     TB // of the Server, or nil
	life   context.Context
	begin  time.Time
	total  int
	kept   []*Request
	conns  map[string]int // open ones, by remote address
	opened int
	states map[*state]*state
}

const defaultKeyHeader = "Idempotency-Key"

// maxConns is the most connections that are remembered where nobody tells when
// they are closed.
const maxConns = 1 << 14

// Record returns a handler that records requests, then has next serve them.
// Several servers can share a Log. A nil next is the zero [Reply].
//
// What next does not read of a request body is read for it when it begins to
// answer, up to 256 KiB and for HTTP/1 alone, where net/http does the same.
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

// Requests returns the requests, in order of arrival: the last MaxRequests.
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

// Total returns how many requests have come, kept or not.
func (l *Log) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Calls returns the requests, call by call, in the order in which the calls
// began. See [Log.GroupCalls].
func (l *Log) Calls() []Call {
	var calls []Call
	index := make(map[string]int)  // by ID
	latest := make(map[string]int) // by what unkeyed attempts have in common beside their bodies
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
			// Those whose bodies were not read have begun a call that is this one.
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

// arrive begins the record of r.
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
	if q.URI == "" { // r was not read from a connection
		q.URI = r.URL.RequestURI()
	}
	field := l.DeadlineHeader
	if field == "" {
		field = "X-Request-Deadline"
	}
	q.readDeadline(field)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin.IsZero() {
		l.begin = now
	}
	l.total++
	q.Number = l.total
	q.Conn, q.Reused = l.conn(r.RemoteAddr)
	l.kept = append(l.kept, q)
	if most := l.most(); most > 0 && len(l.kept) >= 2*most {
		l.kept = slices.Clone(l.last())
	}
	return &exchange{log: l, entry: q}
}

// last returns those of the kept requests that count: dropping some with each
// request would cost a copy each time.
func (l *Log) last() []*Request {
	if most := l.most(); most > 0 && len(l.kept) > most {
		return l.kept[len(l.kept)-most:]
	}
	return l.kept
}

func (l *Log) most() int {
	if l.MaxRequests == 0 {
		return 4096
	}
	return l.MaxRequests
}

func (l *Log) keyHeader() string {
	if l.KeyHeader == "" {
		return defaultKeyHeader
	}
	return l.KeyHeader
}

// conn numbers connections.
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

// forget is told of each connection that is over, since ports are used again.
func (l *Log) forget(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, remote)
}

// start begins the time of the log, if it has not begun.
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

// stop lets go of the test, which is over.
func (l *Log) stop(tb TB) {
	if isKey(tb) {
		servers.CompareAndDelete(tb, l)
	}
}

// servers has the Log of the Server that was started last for each TB, as long as its
// test runs: an Idempotent that was never reached has seen no Log, and the story why.
var servers sync.Map //nolint:gochecknoglobals // by TB, gone with it

// isKey reports whether servers can have the tb: a map panics over what cannot be compared,
// and so may a TB that wraps another, whatever its own type says.
func isKey(tb TB) bool { return tb != nil && reflect.ValueOf(tb).Comparable() }

// logOf is the Log of the tb's Server; nil if there is none.
func logOf(tb TB) *Log {
	if !isKey(tb) {
		return nil
	}
	l, _ := servers.Load(tb)
	log, _ := l.(*Log)
	return log
}

// state returns what a step of a script that keeps s is to keep for this log:
// scripts are values, which many servers may share. It also returns when the
// time of the log began.
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

// misuse tells of a mistake in the test.
func (l *Log) misuse(text string) {
	l.mu.Lock()
	tb := l.tb
	l.mu.Unlock()
	asTesting{tb: tb}.Errorf("faulttest: %s", text)
}
