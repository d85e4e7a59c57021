package allowance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.16: a ticket that is given back is back once, of the share and of the floor.
func TestCancel(t *testing.T) {
	for _, static := range []bool{false, true} {
		s := under(Rule{Ratio: 0.1, Floor: 10, Static: static})
		s.called(100, epoch)
		all := s.open(epoch)
		for range 3 {
			for _, ticket := range all {
				ticket.Cancel()
				ticket.Cancel()
			}
			again := s.open(epoch)
			require.Len(t, again, len(all))
			all = again
		}
	}
}

// What ends in one way does not end in another.
func TestTicketEndsOnce(t *testing.T) {
	fail := func(k Ticket) { k.Done(false, epoch) }
	succeed := func(k Ticket) { k.Done(true, epoch) }
	back := func(k Ticket) { k.Cancel() }
	for _, tt := range []struct {
		name          string
		first, second func(Ticket)
		left          int // of five, that may fail
	}{
		{"failed twice", fail, fail, 4},
		{"failed, and succeeded", fail, succeed, 4},
		{"failed, and cancelled", fail, back, 4},
		{"succeeded twice", succeed, succeed, 6},
		{"succeeded, and failed", succeed, fail, 6},
		{"succeeded, and cancelled", succeed, back, 6},
		{"cancelled twice", back, back, 5},
		{"cancelled, and failed", back, fail, 5},
		{"cancelled, and succeeded", back, succeed, 5},
	} {
		for _, rule := range []Rule{{Floor: 5}, {Ratio: 0.05}} {
			t.Run(tt.name, func(t *testing.T) {
				s := under(rule)
				s.called(100, epoch)
				ticket, ok := s.take(epoch, nil)
				require.True(t, ok)
				tt.first(ticket)
				tt.second(ticket)
				tt.second(ticket)
				require.Equal(t, tt.left, s.fail(epoch))
			})
		}
	}
}

// A ticket that comes back when what it took has left the window by itself makes
// no room: those who came after it must not lose theirs.
func TestLateCancel(t *testing.T) {
	s := under(Rule{Floor: 2})
	old, ok := s.take(epoch, nil)
	require.True(t, ok)
	at := epoch.Add(time.Minute)
	require.Equal(t, 2, s.fail(at))
	old.Cancel()
	require.Zero(t, s.fail(at))
}

// One that fails long after it was taken counts from then on.
func TestLateFailure(t *testing.T) {
	s := under(Rule{Ratio: 0.1})
	s.called(10, epoch)
	slow, ok := s.take(epoch, nil)
	require.True(t, ok)
	at := epoch.Add(length)
	s.called(10, at)
	slow.Done(false, at)
	s.called(9, at)
	require.Zero(t, s.fail(at), "it is the one of this window")
	s.called(1, at)
	require.Equal(t, 1, s.fail(at))
}

// Under a static rule, what was taken counts whatever comes of it.
func TestStaticTicket(t *testing.T) {
	for _, succeeded := range []bool{false, true} {
		s := under(Rule{Floor: 5, Static: true})
		for range 3 {
			ticket, ok := s.take(epoch, nil)
			require.True(t, ok)
			ticket.Done(succeeded, epoch)
		}
		require.Equal(t, 2, s.fail(epoch))
	}
}

func TestZeroTicket(t *testing.T) {
	Ticket{}.Done(true, epoch)
	Ticket{}.Done(false, epoch)
	Ticket{}.Cancel()
	var none Place
	none.Leave()
}
