package faulttest

import (
	"bytes"
	"cmp"
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

// Idempotent is an endpoint with idempotency keys, as payment APIs have, that counts executions:
//
//   - The first request with a key is executed, also if its client cancels. The response is
//     stored.
//   - Later requests with the key get the stored response with Idempotent-Replayed: true. They
//     get 409 during the execution, and 422 if method, URI or body differ.
//   - Each request without a key is executed.
//
// [Idempotent.AssertExactlyOnce] fails for a client that has no key, or a new one for each
// attempt. Put a fault before an Idempotent to prevent an execution; [LoseResponse] loses the
// response of one. The zero value is ready for use. An Idempotent is safe for concurrent use and
// must not be modified or copied after its first request. All keys are kept in memory.
type Idempotent struct {
	// KeyHeader is the field of the key. "" means the Log's, or Idempotency-Key.
	KeyHeader string
	// Latency is the duration of an execution. Only a Server's Close ends it early. Zero means none.
	Latency time.Duration
	// TTL is the time for which a response is stored. Zero means no limit.
	TTL time.Duration

	// Handler is an execution. Its request has the whole body, and its response is buffered. If it
	// panics, the key can be used again. nil means 201 with {"id":"1"}, counting up.
	Handler http.Handler

	mu         sync.Mutex
	keys       map[string]*execution // the latest execution of each key
	counts     map[string]int        // executions by key; "" for those without one
	executions int
	log        *Log // of the last request
}

var _ http.Handler = (*Idempotent)(nil)

// execution is an execution that was started.
type execution struct {
	sum    [sha256.Size]byte // hash of the request
	done   time.Time         // end of the execution; zero during it
	answer answer
}

// Executions returns the number of executions by key. Those without a key are under "".
func (e *Idempotent) Executions() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// AssertExactlyOnce fails the test unless there was exactly one execution for each of that many
// calls: the number of executions is calls, and no two have the same key. It reports whether that
// is true.
func (e *Idempotent) AssertExactlyOnce(tb TB, calls int) bool {
	orDiscard(tb).Helper()
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
	return cmp.Or(l, logOf(tb)).fail(tb, "executions, exactly one for each call", fmt.Sprint(calls), got.String())
}

// maxBody is the maximum length of a request body, which is read before the execution.
const maxBody = 8 << 20

// ServeHTTP executes the request or replays the stored response.
func (e *Idempotent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	body, err := io.ReadAll(http.MaxBytesReader(w, cmp.Or[io.ReadCloser](r.Body, http.NoBody), maxBody))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		problem(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	} else if err != nil {
		abort() // the client canceled while it sent the request
	}
	key := r.Header.Get(x.keyHeader(e.KeyHeader))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", r.Method, r.URL.RequestURI(), body))
	mine, old, number := e.start(x, key, sum)
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
		problem(w, http.StatusConflict, "the first request with this key is still being executed")
		return
	default:
		x.note("replayed")
		w.Header().Set("Idempotent-Replayed", "true")
		a = old.answer
	}
	Reply{Handler: a}.ServeHTTP(w, r)
}

// start returns a new execution as mine, or the earlier one of the key as old.
func (e *Idempotent) start(x *exchange, key string, sum [sha256.Size]byte) (mine *execution, old execution, number int) {
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

// execute runs an execution. gone is true if Handler took the connection.
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
	if life := x.life(); !wait(life, e.Latency) {
		x.gone(life) // the request's context may end a moment later
		abort()
	}
	created := Reply{Status: http.StatusCreated, Body: fmt.Sprintf(`{"id":"%d"}`, number)}
	a, gone = capture(w, r, cmp.Or[http.Handler](e.Handler, created))
	a.header.Del("Date") // each response has its own
	e.mu.Lock()
	defer e.mu.Unlock()
	done = true
	mine.answer, mine.done = a, time.Now()
	return a, gone
}

// ServeHTTP sends the response.
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
