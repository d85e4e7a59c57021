package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Result is the result of one run. Loads and rates are multiples of the offered load.
type Result struct {
	Config `json:"-"`

	Offered   int // calls
	Succeeded int
	Attempts  int // that reached the server

	During Share            // of the calls made in the scenario's During
	After  Share            // of the calls made in its After
	Paths  map[string]Share // of the calls to each

	WorstSecond   float64 // attempts per call in the worst second
	WorstDuring   float64 // and in the worst second of During
	PeakAfter     float64 // the server's load in the busiest second after During, over the offered rate
	Recovery      time.Duration
	Recovered     bool
	LongestOutage time.Duration // the longest time with goodput below 10 % of the offered load, in whole seconds
	Mean          time.Duration // latencies of successful calls
	P50           time.Duration
	P99           time.Duration
	P999          time.Duration
	FailedP95     time.Duration // latencies of failed calls
	FailedP99     time.Duration
	FailedFast    float64 // ratio of failed calls that failed within 100 ms
	TooMany       int     // 429s
	TooManyLater  int     // 429s after the quota's first window
	QuotaUsed     float64 // ratio of the limit
	CapacityUsed  float64 // goodput in During, as a ratio of the capacity

	Load, Goodput, Arrivals []int // per second

	Targets map[string]float64 // measured values of the scenario's targets
	Bare    map[string]float64 // and the values that they need of a bare client

	arrived  []time.Duration // times of the attempts; only during measure
	rejected []int           // 429s per second
	calls    []*Call         // by id; only during measure
	outcomes []bool          // which calls succeeded, by id
}

// Share counts calls and successful calls.
type Share struct{ Calls, Succeeded int }

func (s *Share) count(c *Call) {
	s.Calls++
	if c.success {
		s.Succeeded++
	}
}

// share is the ratio of successful calls; 1 without calls.
func (s Share) share() float64 {
	if s.Calls == 0 {
		return 1
	}
	return float64(s.Succeeded) / float64(s.Calls)
}

func (r *run) result() Result {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Scenario.Model != nil {
		return Result{Config: r.Config} // its seconds may be millions
	}
	calls := r.measured()
	res := Result{
		Config: r.Config, Offered: len(calls), Paths: map[string]Share{},
		Attempts: s.load.total(), TooMany: s.tooMany.total(), TooManyLater: s.limited.sum(1, len(s.limited.counts)),
		Load: s.load.counts, arrived: s.arrived, rejected: s.tooMany.counts, calls: calls,
	}
	res.shares()
	res.latencies()
	t := tally(calls)
	res.Goodput, res.Arrivals = t.served.counts, t.offered.counts
	res.loads(s.load, t)
	res.Recovery, res.Recovered = r.Scenario.recovery(t)
	res.LongestOutage = r.Scenario.longestOutage(t)
	if limit := r.Scenario.Server.Limit; limit.perSecond() > 0 {
		whole := r.Scenario.Length().Truncate(time.Second)
		res.QuotaUsed = float64(s.taken.sum(0, int(whole/time.Second))) / limit.granted(whole)
	}
	from, to := r.Scenario.seconds()
	if capacity := r.Scenario.Server.capacity(); capacity > 0 && to > from {
		res.CapacityUsed = float64(t.served.sum(from, to)) / capacity / float64(to-from)
	}
	res.measure()
	return res
}

// measure evaluates the targets, then drops the calls.
func (r *Result) measure() {
	r.Targets, r.Bare = map[string]float64{}, map[string]float64{}
	for _, g := range r.Scenario.Targets {
		r.Targets[g.What] = g.Measure(*r)
		if ofBare := g.ofBare(); ofBare != nil {
			r.Bare[g.What] = ofBare(*r)
		}
	}
	for _, c := range r.calls {
		r.outcomes = append(r.outcomes, c.success)
	}
	r.arrived, r.calls = nil, nil
}

// shares counts successful calls: all, by time and by path.
func (r *Result) shares() {
	s := r.Scenario
	for _, c := range r.calls {
		if c.success {
			r.Succeeded++
		}
		switch {
		case c.at >= s.Before+s.During:
			r.After.count(c)
		case c.at >= s.Before:
			r.During.count(c)
		}
		path := r.Paths[c.path]
		path.count(c)
		r.Paths[c.path] = path
	}
}

func (r *Result) latencies() {
	var good, bad []time.Duration
	var sum time.Duration
	atOnce := 0
	for _, c := range r.calls {
		if c.success {
			good, sum = append(good, c.latency), sum+c.latency
			continue
		}
		bad = append(bad, c.latency)
		if c.latency <= 100*time.Millisecond {
			atOnce++
		}
	}
	good, bad = sorted(good), sorted(bad)
	r.Mean = sum / time.Duration(max(len(good), 1))
	r.P50, r.P99, r.P999 = Quantile(good, 0.5), Quantile(good, 0.99), Quantile(good, 0.999)
	r.FailedP95, r.FailedP99, r.FailedFast = Quantile(bad, 0.95), Quantile(bad, 0.99), 1
	if len(bad) > 0 {
		r.FailedFast = float64(atOnce) / float64(len(bad))
	}
}

// loads compares the load on the server with the offered load.
func (r *Result) loads(load series, t tallied) {
	from, to := r.Scenario.seconds()
	for i := range t.offered.counts {
		perCall := float64(load.at(i)) / float64(max(t.offered.at(i), 1))
		r.WorstSecond = max(r.WorstSecond, perCall)
		if i >= from && i < to {
			r.WorstDuring = max(r.WorstDuring, perCall)
		}
		if rate := r.Scenario.Load.perSecond(); i >= to && rate > 0 {
			r.PeakAfter = max(r.PeakAfter, float64(load.at(i))/rate)
		}
	}
}

// tallied counts the calls of a run by time.
type tallied struct {
	offered series
	served  series // by the time of success
	fine    series // offered, in tenths of a second
	good    series // successful, in tenths of a second
}

func tally(calls []*Call) tallied {
	t := tallied{fine: series{width: fine}, good: series{width: fine}}
	for _, c := range calls {
		t.offered.add(c.at)
		t.fine.add(c.at)
		if c.success {
			t.served.add(c.at + c.latency)
			t.good.add(c.at + c.latency)
		}
	}
	return t
}

// seconds are the whole seconds of During.
func (s Scenario) seconds() (from, to int) {
	ceil := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
	return ceil(s.Before), ceil(s.Before + s.During)
}

// recovery is the time from the end of During to the first second, in steps of 0.1 s, in
// which goodput is at least 95 % of the offered load. The five seconds from there must meet
// the same condition.
func (s Scenario) recovery(t tallied) (time.Duration, bool) {
	const second = int(time.Second / fine)
	back := func(from, to int) bool {
		return float64(t.good.sum(from, to)) >= 0.95*float64(t.fine.sum(from, to))
	}
	from := int((s.Before + s.During) / fine)
	for i := from; i+second <= int(s.Length()/fine); i++ {
		if back(i, i+second) && back(i, min(i+5*second, int(s.Length()/fine))) {
			return time.Duration(i-from) * fine, true
		}
	}
	return 0, s.After == 0
}

// longestOutage is the longest time with goodput below 10 % of the offered load, in whole
// seconds, from the start of During.
func (s Scenario) longestOutage(t tallied) time.Duration {
	from, _ := s.seconds()
	longest, length := 0, 0
	for i := from; i < int(s.Length()/time.Second); i++ {
		length++
		if float64(t.served.at(i)) >= 0.1*float64(t.offered.at(i)) {
			length = 0
		}
		longest = max(longest, length)
	}
	return time.Duration(longest) * time.Second
}

// between is the number of attempts per call in the period.
func (r Result) between(from, to time.Duration) float64 {
	return float64(r.attemptsIn(from, to)) / float64(max(len(r.callsIn(from, to)), 1))
}

// attemptsIn is the number of attempts that arrived in the period.
func (r Result) attemptsIn(from, to time.Duration) (n int) {
	for _, at := range r.arrived {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// callsIn returns the calls that were made in the period.
func (r Result) callsIn(from, to time.Duration) []*Call {
	return slices.DeleteFunc(slices.Clone(r.calls), func(c *Call) bool { return c.at < from || c.at >= to })
}

// successBetween is the ratio of the calls made in the period that succeeded.
func (r Result) successBetween(from, to time.Duration) float64 { return shareOf(r.callsIn(from, to)) }

func shareOf(calls []*Call) float64 {
	var s Share
	for _, c := range calls {
		s.count(c)
	}
	return s.share()
}

// excess is the maximum number of requests above a token bucket.
func (r Result) excess(rate, burst float64) float64 {
	tokens, last, least := burst, time.Duration(math.MinInt64/2), 0.0
	for _, at := range r.arrived {
		tokens = min(burst, tokens+(at-last).Seconds()*rate) - 1
		last, least = at, min(least, tokens)
	}
	return -least
}

// The measures of targets. Loads are multiples of the offered load. Times have the unit
// in the target's name.

func worstSecond(r Result) float64         { return r.WorstSecond }
func worstDuring(r Result) float64         { return r.WorstDuring }
func peakAfter(r Result) float64           { return r.PeakAfter }
func mean(r Result) float64                { return milliseconds(r.Mean) }
func meanLatency(r Result) time.Duration   { return r.Mean }
func medianLatency(r Result) time.Duration { return r.P50 }
func p99Latency(r Result) time.Duration    { return r.P99 }
func p999Latency(r Result) time.Duration   { return r.P999 }
func p99(r Result) float64                 { return milliseconds(r.P99) }
func p999(r Result) float64                { return milliseconds(r.P999) }
func longestOutage(r Result) float64       { return r.LongestOutage.Seconds() }
func tooMany(r Result) float64             { return float64(r.TooMany) }
func tooManyLater(r Result) float64        { return float64(r.TooManyLater) }
func quotaUsed(r Result) float64           { return r.QuotaUsed }
func busiestSecond(r Result) float64       { return float64(slices.Max(append(r.Load, 0))) }
func failedFast(r Result) float64          { return r.FailedFast }

// AttemptsPerCall is the number of attempts that reached the server, per call.
func (r Result) AttemptsPerCall() float64 { return float64(r.Attempts) / float64(max(r.Offered, 1)) }

// Success is the ratio of calls that succeeded.
func (r Result) Success() float64 { return float64(r.Succeeded) / float64(max(r.Offered, 1)) }

// SuccessDuring is the ratio for calls made in the scenario's During.
func (r Result) SuccessDuring() float64 { return r.During.share() }

// SuccessAfter is the ratio for calls made in the scenario's After.
func (r Result) SuccessAfter() float64 { return r.After.share() }

// successOfCharge is the ratio for calls to the healthy endpoint.
func successOfCharge(r Result) float64 { return r.Paths[charge].share() }

// tooManyAtFirst counts the 429s of the first minute.
func tooManyAtFirst(r Result) (n float64) {
	for _, count := range r.rejected[:min(60, len(r.rejected))] {
		n += float64(count)
	}
	return n
}

// never is the recovery time of a run that did not recover.
const never = time.Hour

func recoverySeconds(r Result) float64 {
	if !r.Recovered {
		return never.Seconds()
	}
	return r.Recovery.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Paired compares the calls of one library with the same calls of another: the same
// arrivals, paths and random values.
type Paired struct {
	Calls int
	Mean  float64 // of the differences; positive: the library is better
	Error float64 // standard deviation of the mean, if calls are independent
}

// Pair compares two runs that differ only in the library. Workers do not make the same calls in both. If
// as many succeed, a worker is not harmed by calls that fail sooner.
func Pair(ours, bare Result) Paired {
	if ours.Scenario.Load.Workers > 0 {
		mean := max(ours.Success()-bare.Success(), min(float64(ours.Succeeded)/float64(max(bare.Succeeded, 1))-1, 0))
		variance := func(r Result) float64 { return r.Success() * (1 - r.Success()) / float64(max(r.Offered, 1)) }
		return Paired{Calls: min(ours.Offered, bare.Offered), Mean: mean, Error: math.Sqrt(variance(ours) + variance(bare))}
	}
	n := min(len(ours.outcomes), len(bare.outcomes))
	var sum, squares float64
	for i := range n {
		d := value(ours.outcomes[i]) - value(bare.outcomes[i])
		sum += d
		squares += d * d
	}
	count := float64(max(n, 1))
	mean := sum / count
	return Paired{Calls: n, Mean: mean, Error: math.Sqrt(max(squares/count-mean*mean, 0) / count)}
}

func value(success bool) float64 {
	if success {
		return 1
	}
	return 0
}

// Harmed reports whether the library is worse by more than bareMargin and by more than
// three standard deviations.
func (p Paired) Harmed() bool { return p.Mean < -bareMargin && p.Mean < -3*p.Error }

const fine = time.Second / 10

// series counts events per second, or per width. It is not safe for concurrent use.
type series struct {
	width  time.Duration // 0: a second
	counts []int
}

func (s *series) add(at time.Duration) {
	i := int(at / cmp.Or(s.width, time.Second))
	for len(s.counts) <= i {
		s.counts = append(s.counts, 0)
	}
	s.counts[i]++
}

// at is the count of interval i.
func (s *series) at(i int) int {
	if i < 0 || i >= len(s.counts) {
		return 0
	}
	return s.counts[i]
}

// sum is the count of the intervals from to to-1.
func (s *series) sum(from, to int) int {
	n := 0
	for i := max(from, 0); i < min(to, len(s.counts)); i++ {
		n += s.counts[i]
	}
	return n
}

func (s *series) total() int { return s.sum(0, len(s.counts)) }

// Quantile is the q-quantile of sorted durations.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func sorted(d []time.Duration) []time.Duration {
	slices.Sort(d)
	return d
}
