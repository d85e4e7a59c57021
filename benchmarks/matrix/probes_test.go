package matrix

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// tables returns the probes by table: attempts; bodies and results; waits and side effects.
func tables() [][]probe {
	var attempts []probe
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests, 0} {
			attempts = append(attempts, attemptsAt(method, status))
		}
	}
	return [][]probe{attempts, {
		{"body replayed", "a PUT of 64 KiB, 503 until the third attempt: whether all attempts have the same complete body", bodyReplayed},
		{"body of a stream", "a PUT of 1 MiB from a reader without GetBody: streamed, or read into memory first", bodyStreamed},
		{"Retry-After: 3", "on a 429, twenty calls: whether the library waits as long, or sends a retry earlier (undercut)", retryAfter(http.StatusTooManyRequests, seconds)},
		{"Retry-After: date", "the same with a 503 and a date in three to four seconds", retryAfter(http.StatusServiceUnavailable, date)},
		{"exhausted", "the result if all attempts get 503", exhausted},
		{"bodies left open", "number of response bodies that the library did not close, in the same test", bodiesOpen},
	}, {
		{"wait after the last", "time from the last attempt until the call returns, in the same test", waitAfterLast},
		{"wait past the deadline", "a 503 with Retry-After: 5, and a deadline in two seconds: when the call returns", pastDeadline},
		{"canceled", "a cancellation during the wait after a 503 with Retry-After: 5: time until the call returns", canceled},
		{"request modified", "fields of the caller's request that the library changed", modified},
		{"other hosts' idle connections", "whether the library closes them after all attempts have failed", idleClosed},
	}}
}

// allProbes returns the probes of all tables.
func allProbes() []probe { return slices.Concat(tables()...) }

// seconds and date are the formats of Retry-After, with the time that they mean.
func seconds() (string, time.Time) { return "3", time.Now().Add(3 * time.Second) }

func date() (string, time.Time) {
	at := time.Now().Add(4 * time.Second).UTC().Truncate(time.Second)
	return at.Format(http.TimeFormat), at
}

func bodyReplayed(p peers.Peer) string {
	want := strings.Repeat("0123456789abcdef", 4<<10)
	tr := ask(p, http.MethodPut, want, func(n int) answer {
		if n < 3 {
			return answer{status: http.StatusServiceUnavailable}
		}
		return answer{status: http.StatusOK}
	})
	if len(tr.server.attempts) < 2 {
		return "not retried"
	}
	for _, a := range tr.server.attempts {
		if string(a.body) != want {
			return "**no**"
		}
	}
	return "yes"
}

// source is a body without GetBody that counts the bytes read.
type source struct{ left, size int }

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left)
	clear(p[:n])
	s.left -= n
	return n, nil
}

func bodyStreamed(p peers.Peer) string {
	src := &source{left: 1 << 20, size: 1 << 20}
	tr := &trial{server: &server{answer: always(http.StatusOK)}, request: newRequest(context.Background(), http.MethodPut, src)}
	tr.request.ContentLength = int64(src.size)
	read := 0
	tr.server.arrived = func() { read = src.size - src.left }
	tr.do(p)
	switch {
	case tr.err != nil:
		return "**error**"
	case len(tr.server.attempts[0].body) != src.size:
		return fmt.Sprintf("**%d bytes of it**", len(tr.server.attempts[0].body))
	case read == src.size:
		return "in memory"
	}
	return "streamed"
}

// retryAfter makes several calls, because jitter is random. The value comes with the earliest
// permitted time of a retry.
func retryAfter(status int, value func() (string, time.Time)) func(peers.Peer) string {
	return func(p peers.Peer) string {
		for range 20 {
			var notBefore time.Time
			tr := ask(p, http.MethodGet, "", func(n int) answer {
				if n > 1 {
					return answer{status: http.StatusOK}
				}
				var text string
				text, notBefore = value()
				return answer{status: status, header: http.Header{"Retry-After": {text}}}
			})
			switch attempts := tr.server.attempts; {
			case len(attempts) < 2:
				return "not retried"
			case attempts[1].at.Before(notBefore):
				return "**undercut**"
			}
		}
		return "waited for"
	}
}

func exhausted(p peers.Peer) string {
	tr := ask(p, http.MethodGet, "", always(http.StatusServiceUnavailable))
	switch {
	case tr.status == 0:
		return "error"
	case tr.err != nil:
		return "response and error"
	case tr.text != "answer":
		return "**503 without its body**"
	}
	return "503"
}

func bodiesOpen(p peers.Peer) string {
	tr := ask(p, http.MethodGet, "", always(http.StatusServiceUnavailable))
	if tr.server.open > 0 {
		return fmt.Sprintf("**%d**", tr.server.open)
	}
	return "0"
}

func waitAfterLast(p peers.Peer) string {
	tr := ask(p, http.MethodGet, "", always(http.StatusServiceUnavailable))
	first, last := tr.server.attempts[0].at, tr.server.attempts[len(tr.server.attempts)-1].done
	if wait := tr.took - last.Sub(first); wait > 0 {
		return "**" + wait.Round(time.Millisecond).String() + "**"
	}
	return "0"
}

// busy has a Retry-After after the deadline.
func busy(int) answer {
	return answer{status: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {"5"}}}
}

func pastDeadline(p peers.Peer) string {
	const left = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	tr := askWith(ctx, p, http.MethodGet, "", busy)
	switch {
	case tr.took == 0:
		return "at once"
	case tr.took < left:
		return "after " + tr.took.Round(10*time.Millisecond).String()
	case tr.took == left:
		return "at the deadline"
	}
	return "**" + (tr.took - left).Round(10*time.Millisecond).String() + " late**"
}

func canceled(p peers.Peer) string {
	const after = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(after, cancel)
	switch tr := askWith(ctx, p, http.MethodGet, "", busy); {
	case tr.took < after:
		return "does not wait"
	case tr.took == after:
		return "0"
	default:
		return "**" + (tr.took - after).Round(time.Millisecond).String() + "**"
	}
}

func modified(p peers.Peer) string {
	req := newRequest(context.Background(), http.MethodPut, strings.NewReader("payload"))
	req.Header.Set("X-Test", "1")
	before, header := *req, req.Header.Clone()
	tr := &trial{server: &server{answer: always(http.StatusServiceUnavailable)}, request: req}
	tr.do(p)
	var fields []string
	was, is := reflect.ValueOf(&before).Elem(), reflect.ValueOf(req).Elem()
	for i := range was.NumField() {
		if field := was.Type().Field(i); field.IsExported() && !same(was.Field(i), is.Field(i)) {
			fields = append(fields, field.Name)
		}
	}
	if !reflect.DeepEqual(header, req.Header) {
		fields = append(fields, "Header")
	}
	if len(fields) == 0 {
		return "no"
	}
	return "**" + strings.Join(fields, ", ") + "**"
}

// same reports whether two fields of a request are identical: the same body, map or
// function, not an equal one.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func, reflect.Map, reflect.Slice, reflect.Chan, reflect.Pointer:
		return a.Pointer() == b.Pointer()
	default:
		return a.Equal(b)
	}
}

func idleClosed(p peers.Peer) string {
	for _, status := range []int{0, http.StatusServiceUnavailable} {
		if ask(p, http.MethodGet, "", always(status)).server.idle > 0 {
			return "**closed**"
		}
	}
	return "kept"
}

// probe is one test.
type probe struct {
	Name string
	Note string // a description
	run  func(peers.Peer) string
}

// ask runs the probe with one peer in virtual time.
func (p probe) ask(t *testing.T, peer peers.Peer) string {
	t.Helper()
	return bubble.Run(t, func() string { return p.run(peer) })
}

const target = "http://api.example/v1/charges"

// trial is one call to a scripted server.
type trial struct {
	server  *server
	request *http.Request
	err     error
	status  int    // of the response; 0: none
	text    string // of its body
	took    time.Duration
}

// do sends the request and reads the response.
func (tr *trial) do(peer peers.Peer) {
	client := peer.New(peers.Setting{Base: tr.server})
	start := time.Now()
	resp, err := client.Do(tr.request)
	tr.took, tr.err = time.Since(start), err
	if resp != nil {
		text, _ := io.ReadAll(resp.Body)
		tr.status, tr.text = resp.StatusCode, string(text)
		_ = resp.Body.Close()
	}
	synctest.Wait() // for bodies that are drained in the background
}

// ask sends one request with the method and the body; "": none.
func ask(peer peers.Peer, method, body string, script func(int) answer) *trial {
	return askWith(context.Background(), peer, method, body, script)
}

func askWith(ctx context.Context, peer peers.Peer, method, body string, script func(int) answer) *trial {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	tr := &trial{server: &server{answer: script}, request: newRequest(ctx, method, reader)}
	tr.do(peer)
	return tr
}

func newRequest(ctx context.Context, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		panic(err) // the arguments are constants
	}
	return req
}

// attemptsAt counts the attempts if all of them get the status, or a timeout.
func attemptsAt(method string, status int) probe {
	what := "timeout"
	if status > 0 {
		what = fmt.Sprint(status)
	}
	script := func(int) answer { return answer{status: status, after: 10 * time.Millisecond} }
	return probe{
		Name: method + " " + what,
		Note: fmt.Sprintf("the most attempts of a %s if all responses are %s", method, what),
		run: func(p peers.Peer) string {
			body := ""
			if method == http.MethodPost {
				body = "payload" // and no key
			}
			most := ask(p, method, body, script).server
			for range 30 { // random waits may leave time for one more
				if again := ask(p, method, body, script).server; len(again.attempts) > len(most.attempts) {
					most = again
				}
			}
			return counted(method, most)
		},
	}
}

// counted is the number of attempts, and whether a retried POST had a key. Without a key,
// each attempt may be a separate write.
func counted(method string, s *server) string {
	n := fmt.Sprint(len(s.attempts))
	keys := map[string]bool{}
	for _, a := range s.attempts {
		keys[a.key] = true
	}
	switch {
	case method != http.MethodPost || len(s.attempts) == 1:
		return n
	case len(keys) > 1 || keys[""]:
		return "**" + n + "**"
	}
	return n + ", one key"
}
