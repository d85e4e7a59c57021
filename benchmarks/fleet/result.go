package fleet

import (
	"time"
)

// Result is what was measured in one run. Loads and rates are in multiples of
// what was offered.
type Result struct {
	Config `json:"-"`
	Took   time.Duration // in real time

	Offered   int // logical requests
	Succeeded int
	Attempts  int // that reached the server

	WorstSecond  float64 // attempts per logical request, in the worst second of all
	WorstDuring  float64 // and in the worst second of the scenario's trouble
	PeakAfter    float64 // the server's load in the busiest second after it, over the offered rate
	Recovery     time.Duration
	Recovered    bool
	P50          time.Duration // latencies of those that succeeded
	P99          time.Duration
	P999         time.Duration
	FailedP50    time.Duration // and of those that failed
	FailedP99    time.Duration
	ToldAtOnce   float64 // share of those that failed within 100 ms
	TooMany      int     // 429s
	TooManyLater int     // those after the quota's first window
	TooManyBare  int     // those that a client which makes single attempts gets
	QuotaUsed    float64

	Load, Goodput, Arrivals []int // by the second
}

// AttemptsPerCall is the load on the server over all, and Success the share of
// logical requests that succeeded.
func (r Result) AttemptsPerCall() float64 { return float64(r.Attempts) / float64(r.Offered) }

// Success is the share of the logical requests that succeeded.
func (r Result) Success() float64 { return float64(r.Succeeded) / float64(r.Offered) }

func (r *run) result() Result {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	good, bad := sorted(r.succeeded), sorted(r.failed)
	res := Result{
		Config: r.Config, Offered: r.offered.total(), Succeeded: len(good), Attempts: s.load.total(),
		P50: quantile(good, 0.5), P99: quantile(good, 0.99), P999: quantile(good, 0.999),
		FailedP50: quantile(bad, 0.5), FailedP99: quantile(bad, 0.99), ToldAtOnce: 1,
		TooMany: s.limited.total(), TooManyLater: s.limited.sum(1, len(s.limited.counts)),
		Load: s.load.counts, Goodput: r.served.counts, Arrivals: r.offered.counts,
	}
	atOnce := 0
	for _, latency := range bad {
		if latency <= 100*time.Millisecond {
			atOnce++
		}
	}
	if len(bad) > 0 {
		res.ToldAtOnce = float64(atOnce) / float64(len(bad))
	}
	from, to := r.seconds()
	for i := range r.offered.counts {
		perCall := float64(s.load.at(i)) / float64(max(r.offered.at(i), 1))
		res.WorstSecond = max(res.WorstSecond, perCall)
		if i >= from && i < to {
			res.WorstDuring = max(res.WorstDuring, perCall)
		}
		if i >= to {
			res.PeakAfter = max(res.PeakAfter, float64(s.load.at(i))/r.Scenario.Rate)
		}
	}
	res.Recovery, res.Recovered = r.recovery()
	if quota := r.Scenario.quota; quota > 0 {
		whole := int(r.Scenario.Length() / time.Second)
		res.QuotaUsed = float64(s.taken.sum(0, whole)) / float64(quota*whole)
		for _, n := range r.offered.counts {
			res.TooManyBare += max(n-quota, 0)
		}
	}
	return res
}

// seconds are the whole seconds of the scenario's trouble.
func (r *run) seconds() (from, to int) {
	ceil := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
	return ceil(r.Scenario.Before), ceil(r.Scenario.Before + r.Scenario.During)
}

// recovery is how long after the trouble it takes until goodput is back: the
// first second, to a tenth, that brings 95 % as many successes as it brings
// requests, if the five from there on do as well: a moment is not a recovery.
func (r *run) recovery() (time.Duration, bool) {
	const second = int(time.Second / fine)
	back := func(from, to int) bool {
		return float64(r.good.sum(from, to)) >= 0.95*float64(r.arrivals.sum(from, to))
	}
	from := int((r.Scenario.Before + r.Scenario.During) / fine)
	for i := from; i+second <= int(r.Scenario.Length()/fine); i++ {
		if back(i, i+second) && back(i, min(i+5*second, int(r.Scenario.Length()/fine))) {
			return time.Duration(i-from) * fine, true
		}
	}
	return 0, r.Scenario.After == 0
}
