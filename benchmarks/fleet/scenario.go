package fleet

import (
	"fmt"
	"time"
)

// The model's constants, which all scenarios share.
const (
	Rate     = 1000 // offered, requests per second, unless the scenario says otherwise
	Clients  = 1000
	queueMax = 1000
	workers  = 12
	service  = 10 * time.Millisecond
	giveUp   = 500 * time.Millisecond // of the base, for each attempt
	patience = 30 * time.Second       // of the caller, for each call
)

// Seed is the one that the tables use. The arrivals of a Poisson process differ
// from seed to seed: in the outage, a client without retries gets 0.7497 of its
// requests answered on average, and 0.7517 with this one, which is near the
// 0.7516 by which the targets were set.
const Seed = 12

// Scenario is what befalls the server. Arrivals go on for Before, During and
// After; what the scenario is about happens in During.
type Scenario struct {
	Name, Note            string
	Before, During, After time.Duration
	Rate                  float64 // offered, requests per second

	outage    bool    // every request is answered 503 at once
	workers   int     // that are left; 0: all
	errorRate float64 // of answers that are 500, after the work
	quota     int     // requests per second that are let in, the others get 429; 0: all
	tail      bool    // no queue: 5 % of answers take 1 s, the others 20 ms, and the base waits for them
}

// Scenarios are those of the experiment.
//
// The brownout is followed by two minutes, so that a client which never recovers
// shows that it never does; and there are but ten seconds before it. A perfect
// shedder serves 0.874 of all requests: all but 400 per second of that minute.
//
// In the tail, slow answers are answers: the base waits for them. If it gave up
// after 500 ms, no client in which all calls succeed could keep to 1.05 attempts
// per request, since 0.05 of the first attempts, and of the second ones, would
// have to be repeated; that alone makes 1.0526.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "healthy", Note: "nothing happens", During: 120 * time.Second, Rate: Rate},
		{Name: "outage", Note: "every request is answered 503 for 30 s", outage: true, Rate: Rate,
			Before: 10 * time.Second, During: 30 * time.Second, After: 80 * time.Second},
		{Name: "brownout", Note: "half the workers for 60 s", workers: workers / 2, Rate: Rate,
			Before: 10 * time.Second, During: 60 * time.Second, After: 120 * time.Second},
		{Name: "errors", Note: "1 % of answers are 500", errorRate: 0.01, During: 120 * time.Second, Rate: Rate},
		{Name: "quota", Note: "100 req/s are let in, 200 req/s are offered", quota: 100, Rate: 200, During: 120 * time.Second},
		{Name: "tail", Note: "5 % of answers take 1 s, the others 20 ms", tail: true, During: 120 * time.Second, Rate: Rate},
	}
}

// Named returns the scenarios of that name, or all of them for "all".
func Named(name string) ([]Scenario, error) {
	if name == "all" {
		return Scenarios(), nil
	}
	for _, s := range Scenarios() {
		if s.Name == name {
			return []Scenario{s}, nil
		}
	}
	return nil, fmt.Errorf("no scenario %q", name)
}

// Length is how long requests arrive.
func (s Scenario) Length() time.Duration { return s.Before + s.During + s.After }

// Scaled returns the scenario with all its times shortened, or lengthened, in
// proportion, so that it is as long as asked.
func (s Scenario) Scaled(length time.Duration) Scenario {
	scale := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * float64(length) / float64(s.Length())).Round(time.Second / 10)
	}
	s.Before, s.During, s.After = scale(s.Before), scale(s.During), scale(s.After)
	return s
}
