package faulttest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// An Idempotent is an endpoint that heeds idempotency keys as a payment API
// does, and counts how often it really did its work:
//
//   - The first request of a key is executed, which takes Work, also when its
//     client leaves. What Do answers, whatever it is, is remembered.
//   - Later requests of the key get the same answer again, beside it
//     Idempotent-Replayed: true, or 409 while the first is still at work, or 422
//     if they are for something else (method, URI or body).
//   - Requests without a key are executed each time.
//
// So a client that takes a new key for each attempt, or none, is charged twice,
// and [Idempotent.AssertExactlyOnce] says so. For executions that come to nothing
// put a fault in front, for answers that are lost see [Lose].
//
// The zero value is ready for use. It may be used by many goroutines, and its
// fields must be left alone once it has seen a request. It counts for itself,
// also where several servers share it, and it remembers every key, and the
// answer to it. It must not be copied.
type Idempotent struct {
	KeyHeader string        // "": that of the Log, which is Idempotency-Key by default
	Latency   time.Duration // how long an execution takes; only a Server's Close ends it early. 0: no time
	TTL       time.Duration // how long an answer is remembered; then the key is like a new one. 0: for good

	// Do is an execution. It is given the whole body, and what it writes is held
	// back in memory. If it panics, the key is free again. Nil: 201 and {"id":"1"},
	// counting up.
	Handler http.Handler

	mu         sync.Mutex
	keys       map[string]*execution // the latest of each key
	counts     map[string]int        // executions by key; "" is none
	executions int
	log        *Log // of the last request
}

var _ http.Handler = (*Idempotent)(nil)

// An execution is one that was begun.
type execution struct {
	sum    [sha256.Size]byte // of the request
	done   time.Time         // zero: at work
	answer answer
}

// Executions returns how often the work was done for each key, and with the key
// "" how often without one.
func (e *Idempotent) Executions() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// AssertExactlyOnce fails the test unless the work was done exactly once for
// each of that many calls: so many executions, no two of them for one key. It
// reports whether it was.
func (e *Idempotent) AssertExactlyOnce(tb TB, calls int) bool {
	tb = orNobody(tb)
	tb.Helper()
	e.mu.Lock()
	executions, counts, l := e.executions, maps.Clone(e.counts), e.log
	e.mu.Unlock()
	once := true
	var got strings.Builder
	fmt.Fprintf(&got, "%d", executions)
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		once = once && (key == "" || counts[key] == 1)
		name := "for key " + key
		if key == "" {
			name = "without a key"
		}
		fmt.Fprintf(&got, "\n      %d %s", counts[key], name)
	}
	if once && executions == calls {
		return true
	}
	if l == nil {
		l = logOf(tb)
	}
	return l.fail(tb, "executions, exactly one for each call", fmt.Sprint(calls), got.String())
}

// maxBody is how long a request body may be, which must be read before it is
// known whether the work was done already.
const maxBody = 8 << 20

// ServeHTTP does the work, or answers as it did before.
func (e *Idempotent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	body, err := io.ReadAll(http.MaxBytesReader(w, orNoBody(r.Body), maxBody))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		problem(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	} else if err != nil {
		abort() // the client left in the middle of its request
	}
	key := r.Header.Get(x.keyHeader(e.KeyHeader))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", r.Method, r.URL.RequestURI(), body))
	mine, old, number := e.enter(x, key, sum)
	var a answer
	switch {
	case mine != nil:
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		var gone bool
		if a, gone = e.execute(w, r, key, mine, number); gone {
			return
		}
	case old.sum != sum:
		x.note("other request")
		problem(w, http.StatusUnprocessableEntity, "this key was used for another request")
		return
	case old.done.IsZero():
		x.note("in flight")
		problem(w, http.StatusConflict, "the first request of this key is still at work")
		return
	default:
		x.note("replayed")
		w.Header().Set("Idempotent-Replayed", "true")
		a = old.answer
	}
	Reply{Handler: a}.ServeHTTP(w, r)
}

// enter says what to do: an execution, which is returned as mine, or what the
// old one says.
func (e *Idempotent) enter(x *exchange, key string, sum [sha256.Size]byte) (mine *execution, old execution, number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x != nil {
		e.log = x.log
	}
	if was := e.keys[key]; was != nil {
		expired := e.TTL > 0 && !was.done.IsZero() && time.Since(was.done) >= e.TTL
		if !expired {
			return nil, *was, 0
		}
	}
	if e.counts == nil {
		e.counts = make(map[string]int)
		e.keys = make(map[string]*execution)
	}
	mine = &execution{sum: sum}
	if key != "" {
		e.keys[key] = mine
	}
	e.counts[key]++
	e.executions++
	return mine, execution{}, e.executions
}

// execute does the work.
func (e *Idempotent) execute(w http.ResponseWriter, r *http.Request, key string, mine *execution, number int) (a answer, gone bool) {
	x := exchangeOf(r)
	x.note("executed")
	done := false
	defer func() {
		if !done {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.keys, key)
		}
	}()
	if !wait(x.life(), e.Latency) {
		abort()
	}
	do := e.Handler
	if do == nil {
		do = Reply{Status: http.StatusCreated, Body: fmt.Sprintf(`{"id":"%d"}`, number)}
	}
	a, gone = capture(w, r, do)
	a.header.Del("Date") // it will be that of each answer
	e.mu.Lock()
	defer e.mu.Unlock()
	done = true
	mine.answer, mine.done = a, time.Now()
	return a, gone
}

// ServeHTTP repeats the answer.
func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func problem(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"title":%q,"status":%d,"detail":%q}`, http.StatusText(status), status, text)
}

func orNoBody(body io.ReadCloser) io.ReadCloser {
	if body == nil {
		return http.NoBody
	}
	return body
}
