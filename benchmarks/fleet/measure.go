package fleet

import (
	"slices"
	"time"
)

// What can be asked of a result. Loads are in multiples of what was offered, and
// times in the units that the names of the goals say.

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
func dark(r Result) float64                { return r.Dark.Seconds() }
func tooMany(r Result) float64             { return float64(r.TooMany) }
func tooManyLater(r Result) float64        { return float64(r.TooManyLater) }
func quotaUsed(r Result) float64           { return r.QuotaUsed }
func busiestSecond(r Result) float64       { return float64(slices.Max(append(r.Load, 0))) }
func toldAtOnce(r Result) float64          { return r.ToldAtOnce }

// AttemptsPerCall is the load on the server over all.
func (r Result) AttemptsPerCall() float64 { return float64(r.Attempts) / float64(max(r.Offered, 1)) }

// Success is the share of the logical requests that succeeded.
func (r Result) Success() float64 { return float64(r.Succeeded) / float64(max(r.Offered, 1)) }

// SuccessDuring is the share of those that were made in the trouble.
func (r Result) SuccessDuring() float64 { return r.During.share() }

// SuccessAfter is the share of those that were made when it was over.
func (r Result) SuccessAfter() float64 { return r.After.share() }

// successOfCharge is the share of the calls to the endpoint that is well.
func successOfCharge(r Result) float64 { return r.Paths[charge].share() }

// tooManyIn are the 429s of the first so long.
func tooManyIn(first time.Duration) func(Result) float64 {
	return func(r Result) float64 {
		n := 0
		for _, count := range r.refused[:min(int(first/time.Second), len(r.refused))] {
			n += count
		}
		return float64(n)
	}
}

// never is how long it takes until goodput is back, if it does not come back.
const never = time.Hour

func backAfter(r Result) float64 {
	if !r.Recovered {
		return never.Seconds()
	}
	return r.Recovery.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
