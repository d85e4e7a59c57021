//go:build !race

package admission

import (
	"math"
	"slices"
	"time"
)

// pauseLength is the length of a pause.
const pauseLength = 200 * ms

// running returns the time until work that takes d is done, pauses included.
func (s *simulation) running(d time.Duration) time.Duration {
	if s.pause == 0 {
		return d
	}
	end := s.now
	for {
		if since := end % s.pause; end >= s.pause && since < pauseLength {
			end += pauseLength - since
		}
		next := end - end%s.pause + s.pause
		if end+d < next {
			return end + d - s.now
		}
		d -= next - end
		end = next
	}
}

// resume calls do, at the end of a pause if the gate is stopped now.
func (s *simulation) resume(do func()) {
	if s.frozen && s.now >= s.pause && s.now%s.pause < pauseLength {
		s.after(pauseLength-s.now%s.pause, do)
		return
	}
	do()
}

// sharing is workers that are divided among all admitted requests, at most one for each.
type sharing struct {
	jobs    []*simRequest
	updated time.Duration
	order   int // of the latest plan; older plans are void
}

// share begins to work on a request.
func (s *simulation) share(q *simRequest) {
	s.progress()
	q.need = s.service(s.now, s.random).Seconds()
	s.sharing.jobs = append(s.sharing.jobs, q)
	s.plan()
}

// pace is the speed of each request's work, as a ratio of one worker.
func (s *simulation) pace() float64 {
	return min(1, float64(s.workers)/float64(len(s.sharing.jobs)))
}

// progress does the work until now.
func (s *simulation) progress() {
	did := (s.now - s.sharing.updated).Seconds() * s.pace()
	for _, q := range s.sharing.jobs {
		q.need -= did
	}
	s.sharing.updated = s.now
}

// plan schedules the end of the next request.
func (s *simulation) plan() {
	s.sharing.order++
	if len(s.sharing.jobs) == 0 {
		return
	}
	order, need := s.sharing.order, math.Inf(1)
	for _, q := range s.sharing.jobs {
		need = min(need, q.need)
	}
	s.after(time.Duration(max(need, 0)/s.pace()*float64(time.Second))+1, func() {
		if order != s.sharing.order {
			return
		}
		s.progress()
		var done []*simRequest
		s.sharing.jobs = slices.DeleteFunc(s.sharing.jobs, func(q *simRequest) bool {
			if q.need < 1e-9 {
				done = append(done, q)
			}
			return q.need < 1e-9
		})
		s.plan()
		for _, q := range done {
			s.depart(q)
		}
	})
}
