package faulttest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// A Script is a table of what happens to which request: the first [Rule] whose
// conditions all hold takes the request. One that no rule takes gets an empty
// 200.
//
//	faulttest.Script{
//		{Route: "POST /charges", From: 10 * time.Second, To: 40 * time.Second, Do: faulttest.Status(503)},
//		{Chance: 0.01, Seed: 1, Do: faulttest.ResetAfterRead},
//		{Route: "POST /charges", Do: charges},
//		{Do: faulttest.Status(404)},
//	}
//
// What a Script, and [Steps], must remember (times, turns, random numbers) they
// remember for each [Log] apart, so that one of them can be used by several
// servers, the rows of a table for instance, and begins afresh with each. On a
// server without a Log they remember it themselves. They may be used by many
// goroutines, and must be left alone once they have seen a request.
type Script []*Rule

// A Rule says which requests it takes, and what happens to those. All conditions
// that are set must hold, in the order of the fields; for "or" write two rules,
// for "and then" have Do be a Script. The zero value takes every request and
// answers 200.
type Rule struct {
	// Route is a pattern of [http.ServeMux], with its meaning: "POST /charges",
	// "/charges/{id}", "/v1/", "GET api.test/". "": every request.
	Route string

	// If is called by many goroutines at once, and must not read the body. Nil:
	// every request.
	Match func(*http.Request) bool

	// From and To are the times from and before which the rule holds, since the
	// Server started; on other servers, since the first request. To 0: no end.
	After, Until time.Duration

	// Chance is the share of requests that the rule takes, drawn at random from
	// those for which all of the above holds. 0: all of them, also where a table
	// means none; negative: none.
	// The draws depend on Seed and on the order of arrival alone.
	Probability float64
	Seed        uint64 // of Chance

	// Times is how many requests the rule takes, the first ones. 0: no limit;
	// negative: none.
	Times int

	Handler http.Handler // nil: the zero Reply

	once  sync.Once
	mux   *http.ServeMux // of Route alone
	wrong any            // with Route
	own   state
}

var (
	_ http.Handler = Script(nil)
	_ http.Handler = (*Steps)(nil)
)

// ServeHTTP has the first rule that takes the request do what it does.
func (s Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, rule := range s {
		if rule == nil {
			continue
		}
		if rule.compile(); rule.wrong != nil {
			misuse(w, r, fmt.Sprintf("Rule.Route: %v", rule.wrong))
			return
		}
		if rule.takes(r) {
			rule.do(w, r)
			return
		}
	}
	exchangeOf(r).note("no rule")
	Reply{}.ServeHTTP(w, r)
}

// compile makes the mux. ServeMux panics where a pattern is wrong.
func (rule *Rule) compile() {
	rule.once.Do(func() {
		if rule.Route == "" {
			return
		}
		defer func() { rule.wrong = recover() }()
		mux := http.NewServeMux()
		mux.Handle(rule.Route, orOK(rule.Handler))
		rule.mux = mux
	})
}

func (rule *Rule) takes(r *http.Request) bool {
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

func (rule *Rule) do(w http.ResponseWriter, r *http.Request) {
	if rule.mux != nil {
		rule.mux.ServeHTTP(w, r) // it sets the request's path values
		return
	}
	orOK(rule.Handler).ServeHTTP(w, r)
}

// Steps answers each request with its next step, and all that come after the
// last step with the last. See [Script] for how they are remembered.
type Steps struct {
	Handlers []http.Handler // a nil step is the zero Reply, and so are no steps at all
	Loop     bool           // after the last step comes the first

	// By sorts requests: those for which it returns the same go through the
	// steps together, others by themselves. Nil: all together.
	KeyFunc func(*http.Request) string

	own state
}

// Sequence returns Steps for all requests together: the first request gets the
// first step.
func Sequence(steps ...http.Handler) *Steps { return &Steps{Handlers: steps} }

// Cycle returns Steps for all requests together that begin again after the last:
// Cycle(Status(503), OK("")) fails every other request.
func Cycle(steps ...http.Handler) *Steps { return &Steps{Handlers: steps, Loop: true} }

// PerKey returns Steps for each call by itself: for the requests of one
// idempotency key, or, without a key, of one method and path. What a hundred
// concurrent calls get does not depend on their order then. Every key is
// remembered.
func PerKey(steps ...http.Handler) *Steps { return &Steps{Handlers: steps, KeyFunc: keyOrPath} }

func keyOrPath(r *http.Request) string {
	if key := r.Header.Get(exchangeOf(r).keyHeader("")); key != "" {
		return key
	}
	return r.Method + " " + r.URL.Path
}

// ServeHTTP serves the next step.
func (s *Steps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(s.Handlers) == 0 {
		Reply{}.ServeHTTP(w, r)
		return
	}
	by := ""
	if s.KeyFunc != nil {
		by = s.KeyFunc(r)
	}
	mine, _ := s.own.of(r)
	mine.mu.Lock()
	turn := mine.next(by)
	mine.mu.Unlock()
	if s.Loop {
		turn %= len(s.Handlers)
	}
	step := s.Handlers[min(turn, len(s.Handlers)-1)]
	orOK(step).ServeHTTP(w, r)
}

// A state is what a Rule or Steps remember. The zero value is the beginning.
type state struct {
	mu    sync.Mutex
	begin time.Time
	turns map[string]int
	rng   *rand.Rand
}

// of returns the state that r belongs to, and when its time began.
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

// next returns 0, 1, 2 and so on.
func (s *state) next(by string) int {
	if s.turns == nil {
		s.turns = make(map[string]int)
	}
	n := s.turns[by]
	s.turns[by]++
	return n
}

func (s *state) random(seed uint64) float64 {
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(seed, 0))
	}
	return s.rng.Float64()
}

// misuse answers a request for which the test has made a mistake.
func misuse(w http.ResponseWriter, r *http.Request, text string) {
	if x := exchangeOf(r); x != nil {
		x.log.misuse(text)
	}
	http.Error(w, "faulttest: "+text, http.StatusInternalServerError)
}
