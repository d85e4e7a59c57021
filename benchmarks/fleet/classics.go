package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// classics are the fleet's own scenarios, of a server that is in trouble wholly.
//
// The brownout is followed by two minutes, so that a client which never recovers
// shows that it never does; and there are but ten seconds before it. A perfect
// shedder serves 0.874 of all requests: all but 400 per second of that minute.
//
// In the tail, slow answers are answers: the base waits for them. If it gave up
// after 500 ms, no client in which all calls succeed could keep to 1.05 attempts
// per request, since 0.05 of the first attempts, and of the second ones, would
// have to be repeated; that alone makes 1.0526.
func classics() []Scenario {
	return []Scenario{
		{
			Name: "healthy", Note: "nothing happens", During: 120 * time.Second,
			Goals: []Goal{
				atMost("attempts per request", Result.AttemptsPerCall, 1, "%.4f"),
				atLeast("success", Result.Success, 1, "%.5f"),
			},
		},
		{
			Name: "outage", Note: "every request is answered 503 for 30 s",
			Before: 10 * time.Second, During: 30 * time.Second, After: 80 * time.Second,
			Server: Server{Faults: []Fault{{Answer: Answer{Status: 503}}}},
			Goals: []Goal{
				atMost("load in the worst second of the outage", worstDuring, 1.25, "%.3f").shared().ofWorst(),
				atMost("load in the worst second of the outage", worstDuring, 2.1, "%.3f").own().ofWorst(),
				atMost("attempts per request", Result.AttemptsPerCall, 1.02, "%.3f"),
				atLeast("success", Result.Success, 0.750, "%.4f").orBare(),
				recoversWithin(2 * time.Second),
				atMost("peak load after recovery", peakAfter, 1.15, "%.3f").ofWorst(),
			},
		},
		{
			Name: "brownout", Note: "half the workers for 60 s",
			Before: 10 * time.Second, During: 60 * time.Second, After: 120 * time.Second,
			Server: Server{Staff: []Staff{{Workers: workers / 2}}},
			Goals: []Goal{
				atLeast("success", Result.Success, 0.85, "%.4f").shared(),
				atLeast("success", Result.Success, 0.86, "%.4f").shared().aim(),
				atLeast("success", Result.Success, 0.81, "%.4f").own(),
				atLeast("success", Result.Success, 0.84, "%.4f").own().aim().because(whyBrownout),
				atMost("attempts per request", Result.AttemptsPerCall, 1, "%.3f"),
				atMost("longest time with next to no service, s", dark, 5, "%.0f").own().aim(),
				recoversWithin(3 * time.Second),
			},
		},
		{
			Name: "errors", Note: "1 % of answers are 500", During: 120 * time.Second,
			Server: Server{Faults: []Fault{{Share: 0.01, Answer: Answer{Status: 500}, Worked: true}}},
			Goals: []Goal{
				atLeast("success", Result.Success, 0.99995, "%.5f"),
				atMost("attempts per request", Result.AttemptsPerCall, 1.011, "%.4f"),
				atMost("p99.9, ms", p999, 125, "%.1f"),
			},
		},
		{
			Name: "quota", Note: "100 req/s are let in, 200 req/s are offered", During: 120 * time.Second,
			Server: Server{Limit: Limit{Quota: 100}}, Load: Load{Rate: 200},
			Goals: []Goal{
				atMost("429s after the first window", tooManyLater, 0, "%.0f").shared(),
				atLeast("quota used", quotaUsed, 0.98, "%.4f"),
				atLeast("failures told within 100 ms", toldAtOnce, 0.99, "%.4f").shared(),
				atMost("429s", tooMany, 1, "%.0f").own().timesBare(tooMany),
			},
		},
		{
			Name: "tail", Note: "5 % of answers take 1 s, the others 20 ms", During: 120 * time.Second,
			Ours: []string{peers.OursHedged, peers.OursHedgedAt},
			Server: Server{
				Workers: -1, Service: 20 * time.Millisecond, GiveUp: -1,
				Faults: []Fault{{Share: 0.05, Answer: Answer{Status: 200, After: time.Second}}},
			},
			Goals: []Goal{
				atMost("p99, ms", p99, 71, "%.1f").shared(),
				atMost("p99, ms", p99, 71, "%.1f").own().because(whyMeasured),
				atMost("attempts per request", Result.AttemptsPerCall, 1.05, "%.4f").because(whyChance),
				atMost("p99.9, ms", p999, 200, "%.1f").aim().because(whyTwice),
			},
		},
	}
}

// Why a target can be out of reach.
const (
	whyNoCap = "the peers have no retry budget, and send twice the load and more; a budget that keeps the worst second " +
		"of an outage at 1.15 times the load cannot"
	whyAllAttempts = "a client with few calls has five retry tokens, and each retry that a full quota rejects is one more 429"
	whyGrowing     = "the limit on requests in flight finds what a server can do by asking for too much now and then, and here " +
		"that is more each 2.5 s"
	whyFew   = "each client starts with five retry tokens, which beside 3.6 calls a second is more than a tenth of its calls"
	whyExact = "the bucket holds five tokens and a tenth of the calls: for 24 failures at one instant that is too little"
	whySlow  = "a client that had a success within 10 s makes one quick retry after a timeout, and the server's queue takes that " +
		"much longer to drain"
	whyTipped = "the server bears what is offered only because it rejects or loses a part of it; retries push it over, and no " +
		"client with few calls can know. The peers' retries do, too"

	whyBrownout = "a client with one request a second cannot tell a server with half its capacity from one with none " +
		"before it has seen some failures, each of which costs a place in the queue"
	whyMeasured = "a zero Hedge measures its delay, and wants 20 answers for that, which are 20 s of one request a " +
		"second; and its one hedge in ten requests is none where two slow answers come within ten seconds. Such " +
		"clients are given a Delay and a greater MaxRatio: *hedged-50ms* is Hedge{Delay: 50ms, MaxRatio: 0.2}"
	whyChance = "5 % of answers are slow by the scenario's definition, plus or minus 0.06 % by chance"
	whyTwice  = "one request in 400 meets a slow answer twice, the original's and the hedge's. It takes a third copy, " +
		"which this library does not send"
)
