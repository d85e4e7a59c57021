package fleet

import (
	"slices"
	"time"
)

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

// tooManyIn counts the 429s of the first seconds.
func tooManyIn(first time.Duration) func(Result) float64 {
	return func(r Result) float64 {
		n := 0
		for _, count := range r.rejected[:min(int(first/time.Second), len(r.rejected))] {
			n += count
		}
		return float64(n)
	}
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
