package zoo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Line is one line that repeats a trial and shows its figures and misses.
func (t Trial) Line() string {
	misses := t.Judge()
	names := make([]string, len(misses))
	for i, m := range misses {
		names[i] = m.String()
	}
	return fmt.Sprintf("-seed %d -zoo-draw %d: served %d/%d/%d, rejected %d/%d/%d (bare/oracle/ours): %s | %s | %v",
		t.Seed, t.Number, t.Bare.Served, t.Oracle.Served, t.Ours.Served, t.Bare.Rejected, t.Oracle.Rejected, t.Ours.Rejected,
		cmp.Or(strings.Join(names, "; "), "holds"), t.Family(), t.Draw)
}

// Summary has the misses of trials, by criterion and family.
type Summary struct {
	Draws, Missed int
	Requests      int     // of all three clients
	Gain          float64 // mean of the ratio of calls that are served, less a bare client's
	Rejected      float64 // rejections ÷ a bare client's, of all draws together
	Took          time.Duration
	Applied       map[Criterion]int
	Misses        map[Criterion]int
	Families      map[string]map[Criterion]int // misses
	Of            map[string]int               // draws of a family
}

// Summarize summarizes trials.
func Summarize(trials []Trial) Summary {
	s := Summary{Applied: map[Criterion]int{}, Misses: map[Criterion]int{}, Families: map[string]map[Criterion]int{}, Of: map[string]int{}}
	rejected, bare := 0, 0
	for _, t := range trials {
		s.Draws++
		s.Gain += float64(t.Ours.Served-t.Bare.Served) / float64(max(t.Bare.Calls, 1)*len(trials))
		rejected, bare = rejected+t.Ours.Rejected, bare+t.Bare.Rejected
		s.Requests += t.Bare.Sent + t.Oracle.Sent + t.Ours.Sent
		s.Took += t.Took
		family := t.Family()
		s.Of[family]++
		for _, c := range Criteria() {
			if t.applies(c) {
				s.Applied[c]++
			}
		}
		misses := t.Judge()
		if len(misses) > 0 {
			s.Missed++
		}
		for _, m := range misses {
			s.Misses[m.Criterion]++
			if s.Families[family] == nil {
				s.Families[family] = map[Criterion]int{}
			}
			s.Families[family][m.Criterion]++
		}
	}
	s.Rejected = float64(rejected) / float64(max(bare, 1))
	return s
}

// String lists the misses by criterion, and then by family, most misses first.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d draws, %d with a miss; %d requests in %.0f s of running draws\n", s.Draws, s.Missed, s.Requests, s.Took.Seconds())
	fmt.Fprintf(&b, "beside a bare client: %+.4f of the calls served, %.3f of its rejections\n", s.Gain, s.Rejected)
	for _, c := range Criteria() {
		fmt.Fprintf(&b, "%-22s %4d of %4d missed (%.1f %%)\n", c, s.Misses[c], s.Applied[c], 100*float64(s.Misses[c])/float64(max(s.Applied[c], 1)))
	}
	sum := func(family string) (n int) {
		for _, misses := range s.Families[family] {
			n += misses
		}
		return n
	}
	families := slices.SortedFunc(maps.Keys(s.Families), func(a, b string) int { return cmp.Or(sum(b)-sum(a), cmp.Compare(a, b)) })
	for _, family := range families {
		fmt.Fprintf(&b, "%-36s of %3d:", family, s.Of[family])
		for _, c := range Criteria() {
			if n := s.Families[family][c]; n > 0 {
				fmt.Fprintf(&b, "  %s %d", c, n)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
