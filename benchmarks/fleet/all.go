package fleet

import (
	"cmp"
	"slices"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
)

// RunAll makes the runs in parallel, the longest first, and calls done with each result in
// the order of runs. Runs have separate virtual times and do not affect each other.
func RunAll(t *testing.T, runs []Config, done func(Result)) []Result {
	t.Helper()
	return bubble.All(len(runs), longestFirst(runs), func(i int) (result Result) {
		t.Run(runs[i].String(), func(t *testing.T) { result = Run(t, runs[i]) })
		return result
	}, done)
}

// longestFirst returns the indexes of the runs, the longest run first. A long run at the end
// would leave the other processors idle.
func longestFirst(runs []Config) []int {
	order := make([]int, len(runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(runs[b].effort(), runs[a].effort()) })
	return order
}

// effort is roughly proportional to the real time of the run.
func (c Config) effort() float64 {
	l := c.Scenario.Load
	calls := l.perSecond() * c.Scenario.Length().Seconds()
	if l.Workers > 0 {
		calls = Rate * c.Scenario.Length().Seconds()
	}
	if c.Peer.Name == "bare" {
		return calls
	}
	return 3 * calls
}
