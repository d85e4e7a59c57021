package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// serverClock is the difference of the server's clock to the local one, between least and most. A
// Date is truncated to its second, so each response gives two bounds. The best bounds come from a
// Date that was written just before or after a new second.
type serverClock struct {
	known       bool
	least, most time.Duration
}

// observe learns from a Date. It returns false if the Date is years away from the local time.
func (s *serverClock) observe(date, sent, received time.Time) bool {
	least, most := date.Sub(received), date.Sub(sent)+time.Second
	if least.Abs() > ratelimitheader.MaxReset {
		return false
	}
	if !s.known || least > s.most || most < s.least {
		s.known, s.least, s.most = true, least, most // the clock was set
		return true
	}
	s.least, s.most = max(s.least, least), min(s.most, most)
	return true
}
