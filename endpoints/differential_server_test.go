package endpoints_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// callField carries the number of the caller's call to the servers. No library knows it.
const callField = "X-Call"

// ledger is what really became of each call: the oracle of the differential test.
type ledger struct {
	mu    sync.Mutex
	rng   *rand.Rand
	calls map[string]*entry
}

type entry struct {
	seen  int // requests that a server has read
	works int // executions, at all servers
	moved int // executions that were answered with a redirect
	log   []string
}

func (l *ledger) of(call string) *entry {
	if l.calls[call] == nil {
		l.calls[call] = &entry{}
	}
	return l.calls[call]
}

// faultyServer is a server of the script. It honours idempotency keys, as real APIs do.
type faultyServer struct {
	*ledger

	host, other string
	trouble     float64         // share of the requests that meet a fault; 0: it is healthy
	done        map[string]bool // keys of the work done; servers with shared keys have one map
}

// fault is what happens to a request, in this order: a status without work, the work, and the loss or the delay of its result.
type fault struct {
	before string        // a response without any work; "": none
	works  bool          // although there is no good result
	after  string        // what becomes of the result; "": 200 or 201
	delay  time.Duration // before the result
}

// claims are responses of servers that did nothing. The first say so.
var claims = []string{
	"429", "429 Retry-After: 1", "429 Retry-After: 30", "503 Retry-After: 2", "503 Retry-After: 200", "408", "425", "421",
	"429 X-RateLimit-Limit: 5;X-RateLimit-Remaining: 0;X-RateLimit-Reset: 3", "503 Retry-After: 1;X-Should-Retry: false",
	"503", "500", "502", "504", "400", "402", "404", "409", "409 Retry-After: 1", "500 X-Should-Retry: true", "409 X-Should-Retry: true",
	"504 Stripe-Should-Retry: true", "103", "103 429", "307 here", "308 here", "307 there", "307 there", "307 there", "307 here",
}

// losses are what becomes of the result of work that was done.
var losses = []string{
	"reset", "close", "reset", "close", "500", "502", "503", "504", "500 X-Should-Retry: true", "504 Stripe-Should-Retry: true", "short", "303", "303", "hang", "103",
}

// afterwards are responses to the repetition of work that is done, by a check in front of the keys.
var afterwards = []string{"307 here", "307 there", "429", "402", "404", "409", "503 Retry-After: 1", "409 Retry-After: 1", "401"}

func (s *faultyServer) draw(repeated bool) (f fault) {
	pick := func(from []string) string { return from[s.rng.IntN(len(from))] }
	if s.rng.Float64() >= s.trouble {
		return fault{}
	}
	switch n := s.rng.IntN(10); {
	case repeated && n < 4:
		f.before = pick(afterwards)
	case n < 5:
		f.before = pick(claims)
	case n < 9:
		f.works, f.after = true, pick(losses)
	}
	if s.rng.IntN(4) == 0 {
		f.delay = time.Duration(s.rng.IntN(5000)) * time.Millisecond
	}
	return f
}

// ServeHTTP implements http.Handler.
func (s *faultyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	call, key := r.Header.Get(callField), r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	e := s.of(call)
	e.seen++
	f := s.draw(key != "" && s.done[key])
	if (f.before == "" || f.before == "103") && r.Method != http.MethodGet {
		if key == "" || !s.done[key] {
			e.works++
		}
		if s.done[key] = key != ""; f.after == "303" {
			e.moved++
		}
	}
	e.log = append(e.log, fmt.Sprintf("\n%s %s%s, key %.8s: %s, %+v", r.Method, s.host, r.URL.Path, key, time.Now().Format("05.000"), f))
	if key == "" { // a server that permits a repetition of what it has done without a key asks for a second one
		f.after, _, _ = strings.Cut(f.after, " ")
	}
	s.mu.Unlock()
	if rest, early := strings.CutPrefix(f.before, "103"); early {
		w.WriteHeader(http.StatusEarlyHints)
		f.before = strings.TrimSpace(rest)
	}
	if f.delay > 0 || f.after == "hang" {
		wait := time.NewTimer(max(f.delay, time.Duration(len(f.after)/4)*time.Minute))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.Context().Done():
			return
		}
	}
	s.respond(w, r, f.before+f.after)
}

func (s *faultyServer) respond(w http.ResponseWriter, r *http.Request, how string) {
	code, fields, _ := strings.Cut(how, " ")
	status, text := http.StatusOK, fmt.Sprint("done ", r.Header.Get(callField))
	switch code {
	case "reset":
		memhttp.Reset(memhttp.RequestConn(r))
		return
	case "close":
		panic(http.ErrAbortHandler)
	case "short":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, text)
		return
	case "103":
		w.WriteHeader(http.StatusEarlyHints)
	case "", "hang":
		if r.Method == http.MethodPost {
			status = http.StatusCreated
		}
	case "303":
		w.Header().Set("Location", "/status")
		status = http.StatusSeeOther
	case "307", "308":
		host := map[string]string{"here": s.host, "there": s.other}[fields]
		w.Header().Set("Location", "http://"+host+"/moved")
		_, _ = fmt.Sscan(code, &status)
	default:
		_, _ = fmt.Sscan(code, &status)
		text = "refused"
		for field := range strings.SplitSeq(fields, ";") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				w.Header().Set(name, value)
			}
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// world is two regions in one network.
type world struct {
	*ledger

	network *memhttp.Network
	regions [2]*faultyServer
}

func newWorld(t *testing.T, rng *rand.Rand, shared bool) *world {
	w := &world{ledger: &ledger{rng: rng, calls: map[string]*entry{}}, network: memhttp.NewNetwork(t)}
	hosts := [2]string{"a.test", "b.test"}
	for i, host := range hosts {
		s := &faultyServer{ledger: w.ledger, host: host, other: hosts[1-i], done: map[string]bool{}}
		if s.trouble = rng.Float64(); shared && i == 1 {
			s.done = w.regions[0].done
		}
		w.regions[i] = s
		w.network.Serve(t, host, s)
	}
	return w
}

// heal ends the trouble.
func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.regions {
		s.trouble = 0
		w.network.SetDialFault(s.host, nil)
	}
}
