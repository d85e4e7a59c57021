package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// serverClock knows how far the server's clock is ahead of ours: between least
// and most. A Date is cut to its second, so each response gives two bounds, and
// the best ones are of those that were written just before a second began and
// just after.
type serverClock struct {
	known       bool
	least, most time.Duration
}

// observe learns from a Date. It reports false of one that is years away from our
// own time: that is no clock to go by.
func (s *serverClock) observe(date, sent, received time.Time) bool {
	if date.Sub(received).Abs() > ratelimitheader.MaxReset {
		return false
	}
	least, most := date.Sub(received), date.Sub(sent)+time.Second
	if !s.known || least > s.most || most < s.least {
		s.known, s.least, s.most = true, least, most // it was set
		return true
	}
	s.least, s.most = max(s.least, least), min(s.most, most)
	return true
}
