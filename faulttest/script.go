package faulttest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Script is a handler with a table of rules. The first [Rule] that matches a request handles
// it. A request without a matching rule gets an empty 200.
//
//	faulttest.Script{
//		{Route: "POST /charges", After: 10 * time.Second, Until: 40 * time.Second, Handler: faulttest.Status(503)},
//		{Probability: 0.01, Seed: 1, Handler: faulttest.ResetAfterRead},
//		{Route: "POST /charges", Handler: charges},
//		{Handler: faulttest.Status(404)},
//	}
//
// A Script and [Steps] have separate state (times, counts, random numbers) for each [Log]. Both
// are safe for concurrent use and must not be modified after their first request.
type Script []*Rule

// Rule is a row of a [Script]: conditions and a handler. It matches a request if all conditions
// are true, which are evaluated in the order of the fields. The zero value matches every request
// and answers 200.
type Rule struct {
	// Route is a pattern of [http.ServeMux], such as "POST /charges" or "/charges/{id}". An
	// empty Route matches every request.
	Route string

	// Match is a predicate, which must be safe for concurrent use and must not read the
	// body. Nil matches every request.
	Match func(*http.Request) bool

	// After and Until are the start and the end of the time in which the rule matches. They
	// count from the start of the Server, or on other servers from the first request. An
	// Until of zero means no end.
	After, Until time.Duration

	// Probability is the ratio of requests that match, among those that fulfill all
	// conditions above. Zero means all, and a negative number none. Above 1 and NaN are errors.
	Probability float64
	// Seed determines, with the order of the requests, the random numbers for Probability.
	Seed uint64

	// Times is the number of requests that match, the first ones. Zero means no limit, and a
	// negative number none.
	Times int

	// Handler handles the requests that match. nil means the zero Reply.
	Handler http.Handler

	once     sync.Once
	mux      *http.ServeMux // has Route only
	badRoute any            // the panic of ServeMux
	own      state
}

var (
	_ http.Handler = Script(nil)
	_ http.Handler = (*Steps)(nil)
)

// ServeHTTP calls the handler of the first rule that matches.
func (s Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, rule := range s {
		if rule == nil {
			continue
		}
		if rule.compile(); rule.badRoute != nil {
			misuse(w, r, fmt.Sprintf("Rule.Route: %v", rule.badRoute))
			return
		}
		if !(rule.Probability <= 1) { // or NaN
			misuse(w, r, fmt.Sprintf("Rule.Probability: %v is not a ratio of at most 1", rule.Probability))
			return
		}
		if rule.matches(r) {
			rule.serve(w, r)
			return
		}
	}
	exchangeOf(r).note("no rule")
	Reply{}.ServeHTTP(w, r)
}

// compile makes the mux. ServeMux panics for an invalid pattern.
func (rule *Rule) compile() {
	rule.once.Do(func() {
		if rule.Route == "" {
			return
		}
		defer func() { rule.badRoute = recover() }()
		mux := http.NewServeMux()
		mux.Handle(rule.Route, orOK(rule.Handler))
		rule.mux = mux
	})
}

func (rule *Rule) matches(r *http.Request) bool {
	if rule.mux != nil {
		if _, pattern := rule.mux.Handler(r); pattern == "" {
			return false
		}
	}
	if rule.Match != nil && !rule.Match(r) {
		return false
	}
	s, begin := rule.own.of(r)
	if since := time.Since(begin); since < rule.After || rule.Until != 0 && since >= rule.Until {
		return false
	}
	if rule.Probability == 0 && rule.Times == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rule.Probability != 0 && s.random(rule.Seed) >= rule.Probability {
		return false
	}
	return rule.Times == 0 || s.next("") < rule.Times
}

func (rule *Rule) serve(w http.ResponseWriter, r *http.Request) {
	if rule.mux != nil {
		rule.mux.ServeHTTP(w, r) // the mux sets the request's path values
		return
	}
	orOK(rule.Handler).ServeHTTP(w, r)
}

// Steps is a handler that uses one handler after the other, one per request, and the last one
// for all further requests. See [Script] for its state.
type Steps struct {
	// Handlers are the steps. A nil step is the zero Reply.
	Handlers []http.Handler
	// Loop starts again with the first step after the last one.
	Loop bool

	// KeyFunc returns the key of a request. Requests with the same key share a sequence of
	// steps. Nil means one sequence for all requests.
	KeyFunc func(*http.Request) string

	own state
}

// Sequence returns Steps with one sequence for all requests.
func Sequence(steps ...http.Handler) *Steps { return &Steps{Handlers: steps} }

// Cycle returns Steps with one sequence for all requests that starts again after the last step:
// Cycle(Status(503), OK("")) fails every other request.
func Cycle(steps ...http.Handler) *Steps { return &Steps{Handlers: steps, Loop: true} }

// PerKey returns Steps with a sequence for each idempotency key, or without a key for each
// method and path. The steps of concurrent calls then do not depend on their order. All keys are
// kept in memory.
func PerKey(steps ...http.Handler) *Steps { return &Steps{Handlers: steps, KeyFunc: keyOrPath} }

func keyOrPath(r *http.Request) string {
	if key := r.Header.Get(exchangeOf(r).keyHeader("")); key != "" {
		return key
	}
	return r.Method + " " + r.URL.Path
}

// ServeHTTP calls the next step.
func (s *Steps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(s.Handlers) == 0 {
		Reply{}.ServeHTTP(w, r)
		return
	}
	key := ""
	if s.KeyFunc != nil {
		key = s.KeyFunc(r)
	}
	mine, _ := s.own.of(r)
	mine.mu.Lock()
	n := mine.next(key)
	mine.mu.Unlock()
	if s.Loop {
		n %= len(s.Handlers)
	}
	step := s.Handlers[min(n, len(s.Handlers)-1)]
	orOK(step).ServeHTTP(w, r)
}

// state is the state of a Rule or of Steps. The zero value is the initial state.
type state struct {
	mu     sync.Mutex
	begin  time.Time
	counts map[string]int // by key
	rng    *rand.Rand
}

// of returns the state for r's Log, and the start of its time.
func (s *state) of(r *http.Request) (mine *state, begin time.Time) {
	if x := exchangeOf(r); x != nil {
		return x.log.state(s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin.IsZero() {
		s.begin = time.Now()
	}
	return s, s.begin
}

// next counts the requests of a key: it returns 0, 1, 2 and so on.
func (s *state) next(key string) int {
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	n := s.counts[key]
	s.counts[key]++
	return n
}

func (s *state) random(seed uint64) float64 {
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(seed, 0))
	}
	return s.rng.Float64()
}

// misuse reports a mistake in the test, and answers 500.
func misuse(w http.ResponseWriter, r *http.Request, text string) {
	if x := exchangeOf(r); x != nil {
		x.log.misuse(text)
	}
	http.Error(w, "faulttest: "+text, http.StatusInternalServerError)
}
