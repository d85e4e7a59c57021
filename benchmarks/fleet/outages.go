package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// baseScenarios affect the whole server. All libraries run them.
//
// The brownout has two minutes after it, so that a client without recovery is visible. A
// perfect load shedder serves 0.874 of all calls: all except 400 per second of that minute.
//
// In the tail scenario, attempts have no timeout. A timeout of 500 ms would force 5 % of
// first and second attempts to be retried, which is 1.0526 attempts per call.
func baseScenarios() []Scenario {
	return []Scenario{
		{
			Name: "healthy", Note: "no fault", During: 120 * time.Second,
			Targets: []Target{
				atMost("attempts per call", Result.AttemptsPerCall, 1, "%.4f"),
				atLeast("success", Result.Success, 1, "%.5f"),
			},
		},
		{
			Name: "outage", Note: "all responses are 503 for 30 s",
			Before: 10 * time.Second, During: 30 * time.Second, After: 80 * time.Second,
			Server: Server{Faults: []Fault{{Response: Response{Status: 503}}}},
			Targets: []Target{
				atMost("load in the worst second", worstDuring, 1.25, "%.3f").shared().worstSeed(),
				atMost("load in the worst second", worstDuring, 2.1, "%.3f").perClient().worstSeed(),
				atMost("attempts per call", Result.AttemptsPerCall, 1.02, "%.3f").shared(),
				atMost("attempts per call", Result.AttemptsPerCall, 1.2, "%.3f").perClient(),
				atLeast("success", Result.Success, 0.750, "%.4f").orBare(),
				recoversWithin(2 * time.Second).shared(),
				recoversWithin(5 * time.Second).perClient(),
				atMost("peak load after recovery", peakAfter, 1.5, "%.3f").shared().worstSeed(),
				atMost("peak load after recovery", peakAfter, 3, "%.3f").perClient().worstSeed(),
			},
		},
		{
			Name: "brownout", Note: "half of the workers for 60 s",
			Before: 10 * time.Second, During: 60 * time.Second, After: 120 * time.Second,
			Server: Server{Staff: []Staff{{Workers: defaultWorkers / 2}}},
			Targets: []Target{
				atLeast("success", Result.Success, 0.85, "%.4f").shared(),
				atLeast("success", Result.Success, 0.86, "%.4f").shared().goal(),
				atLeast("success", Result.Success, 0.81, "%.4f").perClient(),
				atLeast("success", Result.Success, 0.84, "%.4f").perClient().goal().reason(whyBrownout),
				atMost("attempts per call", Result.AttemptsPerCall, 1, "%.3f"),
				atMost("longest outage (goodput below 10 %), s", longestOutage, 5, "%.0f").perClient().goal(),
				recoversWithin(3 * time.Second),
			},
		},
		{
			Name: "errors", Note: "1 % of responses are 500", During: 120 * time.Second,
			Server: Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}, Worked: true}}},
			Targets: []Target{
				atLeast("success", Result.Success, 0.99995, "%.5f"),
				atMost("attempts per call", Result.AttemptsPerCall, 1.011, "%.4f"),
				atMost("p99.9, ms", p999, 125, "%.1f"),
			},
		},
		{
			Name: "quota", Note: "200 calls/s, quota 100/s", During: 120 * time.Second,
			Server: Server{Limit: Limit{Quota: 100}}, Load: Load{Rate: 200},
			Targets: []Target{
				atMost("429s after the first window", tooManyLater, 0, "%.0f").shared(),
				atLeast("used part of the quota", quotaUsed, 0.98, "%.4f"),
				atLeast("failures within 100 ms", failedFast, 0.99, "%.4f").shared(),
				atMost("429s", tooMany, 1, "%.0f").perClient().timesBare(tooMany),
			},
		},
		{
			Name: "tail", Note: "5 % of responses take 1 s, the others 20 ms", During: 120 * time.Second,
			Ours: []string{peers.OursHedged, peers.OursHedgedAt},
			Server: Server{
				Workers: -1, Service: 20 * time.Millisecond, AttemptTimeout: -1,
				Faults: []Fault{{Share: 0.05, Response: Response{Status: 200, After: time.Second}}},
			},
			Targets: []Target{
				atMost("p99, ms", p99, 71, "%.1f").shared(),
				atMost("p99, ms", p99, 71, "%.1f").perClient().reason(whyMeasured),
				atMost("attempts per call", Result.AttemptsPerCall, 1.05, "%.4f").reason(whyChance),
				atMost("p99.9, ms", p999, 200, "%.1f").goal().reason(whyTwice),
			},
		},
	}
}

// Reasons for missed targets.
const (
	whyNoCap = "the peers have no retry budget and send at least twice the load; the budget of this library limits the worst " +
		"second of an outage to 1.15 times the load"
	whyAllAttempts = "a client with few calls has five retry tokens; each retry that an exhausted quota rejects is one more 429"
	whyGrowing     = "the slow-start limit finds the capacity by exceeding it now and then; here the capacity grows every 2.5 s"
	whyFew         = "each client starts with five retry tokens, which permit more retries than a tenth of its first calls"
	whyExact       = "the budget has five tokens plus a tenth of the calls, which is too little for 24 failures at one instant"
	whySlow        = "a client with a success in the last 10 s makes one quick retry after a timeout, so the server's queue " +
		"drains later"
	whyTipped = "the server is not overloaded only because it rejects or loses some requests; retries overload it, and a client " +
		"with few calls cannot detect that. The peers' retries overload it too"

	whyBrownout = "a client with one call a second cannot distinguish half of the capacity from none before it has seen some " +
		"failures; each failure occupies the queue"
	whyMeasured = "a zero Hedge measures its delay from 20 responses, which take 20 s at one call a second, and sends at most " +
		"one hedge in ten calls, which is too few for two slow responses within 10 s. *hedged-50ms* sets Hedge{Delay: 50ms, MaxRatio: 0.2}"
	whyChance = "5 % of responses are slow by definition, plus or minus 0.06 % by chance"
	whyTwice  = "in one call of 400 the original and the hedge are both slow; only a third copy would help, and this library " +
		"does not send it"
)
