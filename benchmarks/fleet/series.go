package fleet

import (
	"slices"
	"time"
)

const fine = time.Second / 10

// series counts events per second, or per width. It is not safe for concurrent use.
type series struct {
	width  time.Duration // 0: a second
	counts []int
}

func (s *series) add(at time.Duration) {
	width := s.width
	if width == 0 {
		width = time.Second
	}
	i := int(at / width)
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

// quantile is the q-quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func sorted(d []time.Duration) []time.Duration {
	slices.Sort(d)
	return d
}
