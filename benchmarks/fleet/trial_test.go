package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// harmedAtMost is the permitted number of compositions in which this library is worse than a
// bare client: 9 is known. Lower it when one is mended. The complete run of 300 is
// `fleet -random=300`.
const harmedAtMost = 0.1

// A short run of the random compositions.
func TestRandom_harmsFewCompositions(t *testing.T) {
	libraries := named(t, peers.Ours)
	trials := Random(t, Seed, 12, libraries, func(trial Trial) {
		require.GreaterOrEqual(t, trial.Bare.Offered, minCalls)
		require.LessOrEqual(t, trial.Bare.Success(), 0.99)
		require.GreaterOrEqual(t, trial.Bare.Success(), minSuccess)
		for _, line := range trial.Harmed() {
			t.Log(line)
		}
	})
	tally := Tallies(trials)[0]
	t.Log(tally)
	require.Len(t, trials, 12)
	require.LessOrEqual(t, float64(tally.Harmed)/float64(tally.Trials), harmedAtMost)
}

// Two runs of a bare client are the same, call by call.
func TestRandom_bareClientEqualsItself(t *testing.T) {
	libraries := named(t, "bare")
	for number := range 12 {
		trial := Alone(t, Seed, number, libraries)
		p := Pair(trial.Of[0], trial.Bare)
		require.Equal(t, trial.Bare.Offered, p.Calls)
		// Attempts at one instant have a random order, so the last slot of a queue or the
		// last token varies.
		require.InDelta(t, 0, p.Mean, 0.003, trial.Scenario.Note)
	}
}

func TestCompose(t *testing.T) {
	again := Compose(1, 7)
	require.Equal(t, Compose(1, 7), again)
	require.NotEqual(t, Compose(1, 7).Scenario.Note, Compose(1, 8).Scenario.Note)
	require.NotEqual(t, Compose(1, 7).Scenario.Note, Compose(2, 7).Scenario.Note)
	for number := range 300 {
		c := Compose(1, number)
		s := c.Scenario
		require.GreaterOrEqual(t, s.During, shortRun)
		if s.Load.Workers == 0 {
			require.Greater(t, s.During.Seconds()*s.Load.perSecond()*(1-s.Load.Bare), float64(minCalls), "%d: %s", number, s.Note)
		}
		require.False(t, s.Load.Deadline < 0 && s.Server.AttemptTimeout < 0, "a hanging call would never end")
		if number%5 == 4 { // a small fleet
			require.Equal(t, Own, c.Topology)
			require.GreaterOrEqual(t, s.Load.Clients, minCalls)
			require.GreaterOrEqual(t, s.Load.Every, 5*time.Second)
			require.Positive(t, s.Server.Workers)
			require.Positive(t, len(s.Server.Staff)+len(s.Server.Faults), "an outage or a brownout")
		}
		if number%10 == 7 { // few callers
			limit := s.Server.Limit.perSecond()
			require.LessOrEqual(t, s.Load.Clients, 8)
			require.InDelta(t, s.Load.Rate, limit*1.6, limit*1.5, "%d: %s", number, s.Note)
			require.Less(t, limit, 1.31*3*mostQuota, "%d: %s", number, s.Note)
		}
		for _, f := range s.Server.Faults {
			require.LessOrEqual(t, f.To, s.During, "%d: %s", number, s.Note)
		}
	}
}

// Services have all kinds of loads and faults that only they have.
func TestCompose_services(t *testing.T) {
	seen := map[string]int{}
	for number := range 600 {
		s := Compose(1, number).Scenario
		if number%10 != 2 && number%10 != 5 && number%10 != 8 {
			continue
		}
		require.LessOrEqual(t, s.During, 10*time.Minute, "%d: %s", number, s.Note)
		for what, is := range map[string]bool{
			"workers": s.Load.Workers > 0, "pods": s.Load.Clients > 1, "minutes": s.During > 5*time.Minute,
			"bucket": s.Server.Limit.API == apiRejections, "paths": len(s.Load.Paths) > 2, "cold start": len(s.Server.Staff) > 1,
		} {
			if is {
				seen[what]++
			}
		}
	}
	for _, what := range []string{"workers", "pods", "minutes", "bucket", "paths", "cold start"} {
		require.Greater(t, seen[what], 10, what)
	}
}

func TestPair_workers(t *testing.T) {
	of := func(offered, succeeded int) Result {
		return Result{Config: Config{Scenario: Scenario{Load: Load{Workers: 2}}}, Offered: offered, Succeeded: succeeded}
	}
	for name, tt := range map[string]struct {
		ours, bare Result
		mean       float64
		harmed     bool
	}{
		"as many succeed, others fail sooner: not harmed": {of(2000, 800), of(1000, 800), 0, false},
		"fewer succeed: harmed":                           {of(1000, 700), of(1000, 800), -0.1, true},
		"a larger ratio: better":                          {of(900, 810), of(1000, 800), 0.1, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := Pair(tt.ours, tt.bare)
			require.InDelta(t, tt.mean, p.Mean, 1e-9)
			require.Equal(t, tt.harmed, p.Harmed())
		})
	}
}

func TestPair(t *testing.T) {
	outcomes := func(good, of int) Result {
		r := Result{outcomes: make([]bool, of)}
		for i := range good {
			r.outcomes[i] = true
		}
		return r
	}
	for _, row := range []struct {
		name       string
		ours, bare int // of 1000 calls
		harmed     bool
	}{
		{"the same", 900, 900, false},
		{"better", 1000, 900, false},
		{"worse by as much as is allowed", 890, 900, false},
		{"worse by more than that and than chance", 880, 900, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := Pair(outcomes(row.ours, 1000), outcomes(row.bare, 1000))
			require.Equal(t, row.harmed, p.Harmed())
			require.InDelta(t, float64(row.ours-row.bare)/1000, p.Mean, 1e-9)
		})
	}
	few := Pair(outcomes(8, 50), outcomes(10, 50))
	require.Less(t, few.Mean, -bareMargin)
	require.False(t, few.Harmed(), "two of fifty can be chance")
}

func TestTally(t *testing.T) {
	var tally Tally
	tally.count(1, Paired{Calls: 1000, Mean: -0.02, Error: 0.001})
	tally.count(2, Paired{Calls: 1000, Mean: -0.04, Error: 0.02})
	tally.count(3, Paired{Calls: 1000, Mean: 0.2, Error: 0.001})
	require.Equal(t, 1, tally.Harmed)
	require.Equal(t, 1, tally.Better)
	require.InDelta(t, -0.04, tally.Worst, 1e-9)
	require.Equal(t, 2, tally.In)
}

// A random value depends only on the seed, call, attempt and purpose.
func TestRandom_dependsOnlyOnItsArguments(t *testing.T) {
	const n = 10000
	d := Chance{Seed}
	sum, low := 0.0, 0
	for call := range n {
		v := d.Fraction(call, 1, drawFault)
		require.Equal(t, v, d.Fraction(call, 1, drawFault)) //nolint:testifylint // exactly
		require.GreaterOrEqual(t, v, 0.0)
		require.Less(t, v, 1.0)
		sum += v
		if v < 0.1 {
			low++
		}
	}
	require.InDelta(t, 0.5, sum/n, 0.012, "four standard deviations")
	require.InDelta(t, 0.1*n, low, 120, "four standard deviations")
	same := d.Fraction(7, 2, drawFault)
	for _, other := range []float64{d.Fraction(8, 2, drawFault), d.Fraction(7, 3, drawFault), d.Fraction(7, 2, drawFault+1), Chance{Seed + 1}.Fraction(7, 2, drawFault)} {
		require.NotEqual(t, same, other)
	}
	for call := range 100 {
		v := d.between(time.Second, 2*time.Second, call, 1, drawFault)
		require.GreaterOrEqual(t, v, time.Second)
		require.Less(t, v, 2*time.Second)
	}
	require.Equal(t, time.Second, d.between(time.Second, 0, 1, 1, drawFault))
}
