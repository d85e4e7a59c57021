package allowance

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const length = 10 * time.Second

// shared is an Allowance with its rule.
type shared struct {
	Allowance
	rule Rule
}

func under(r Rule) *shared {
	r.Origin = epoch
	if r.Window == 0 {
		r.Window = length
	}
	return &shared{rule: r.Checked()}
}

func (s *shared) called(n int, at time.Time) {
	for range n {
		s.Called(at, &s.rule)
	}
}

func (s *shared) take(at time.Time, place *Place) (Ticket, bool) {
	return s.Admit(at, &s.rule, Ask{Place: place})
}

const more = 10_000 // than anybody counts

// fail takes one after the other, which all fail at once, until there are no more.
func (s *shared) fail(at time.Time) (n int) {
	for n < more {
		ticket, ok := s.take(at, nil)
		if !ok {
			break
		}
		ticket.Done(false, at)
		n++
	}
	return n
}

// open takes as many as there are, of which no outcome is known.
func (s *shared) open(at time.Time) (tickets []Ticket) {
	for len(tickets) < more {
		ticket, ok := s.take(at, nil)
		if !ok {
			break
		}
		tickets = append(tickets, ticket)
	}
	return tickets
}

// §4.16: those that fail are at most a share of the calls, and a floor, rounded
// down; and the formula is the same where the rule is static.
func TestFailuresAreCapped(t *testing.T) {
	inf := math.Inf(1)
	for _, tt := range []struct {
		name  string
		rule  Rule
		calls int
		want  int
	}{
		{"idle: the floor", Rule{Ratio: 0.1, Floor: 10}, 0, 10},
		{"a tenth on top", Rule{Ratio: 0.1, Floor: 10}, 100, 20},
		{"rounded down", Rule{Ratio: 0.1, Floor: 10}, 109, 20},
		{"no floor, idle", Rule{Ratio: 0.1}, 0, 0},
		{"no floor, too few calls", Rule{Ratio: 0.1}, 9, 0},
		{"no floor", Rule{Ratio: 0.1}, 10, 1},
		{"floor is +Inf", Rule{Ratio: 0.1, Floor: inf}, 0, more},
		{"floor is less than one", Rule{Ratio: 0.1, Floor: 0.1}, 0, 0},
		{"no ratio: the floor alone", Rule{Floor: 10}, 1000, 10},
		{"ratio above one", Rule{Ratio: 3}, 7, 21},
		{"ratio is +Inf, no calls", Rule{Ratio: inf}, 0, 0},
		{"ratio is +Inf, one call", Rule{Ratio: inf}, 1, more},
		{"ratio and floor are +Inf", Rule{Ratio: inf, Floor: inf}, 0, more},
		{"everything is huge", Rule{Ratio: math.MaxFloat64, Floor: math.MaxFloat64, Window: math.MaxInt64}, 1, more},
		{"tiny window", Rule{Ratio: 0.1, Window: 1}, 20, 2},
	} {
		for _, static := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				rule := tt.rule
				rule.Static = static
				s := under(rule)
				s.called(tt.calls, epoch)
				require.Equal(t, tt.want, s.fail(epoch))
				if tt.want < more {
					require.Zero(t, s.fail(epoch.Add(-time.Hour)), "a clock that goes back makes no room")
				}
			})
		}
	}
	t.Run("static: rounded down after the sum", func(t *testing.T) {
		s := under(Rule{Ratio: 0.5, Floor: 0.5, Static: true})
		s.called(1, epoch)
		require.Equal(t, 1, s.fail(epoch))
	})
}

// For hedges: a share of the calls, but at least one.
func TestLeast(t *testing.T) {
	for _, tt := range []struct {
		name        string
		calls, want int
	}{
		{"idle", 0, 1},
		{"few calls", 39, 1},
		{"enough for two", 40, 2},
		{"many", 1000, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(Rule{Ratio: 0.05, Least: 1, Static: true})
			s.called(tt.calls, epoch)
			require.Equal(t, tt.want, s.fail(epoch))
		})
	}
}

func TestWindowSlides(t *testing.T) {
	s := under(Rule{Ratio: 0.1, Floor: 10})
	s.called(50, epoch)
	require.Equal(t, 15, s.fail(epoch))
	require.Zero(t, s.fail(epoch.Add(length-1)))
	// The calls have left the window with the repetitions: the floor is left.
	require.Equal(t, 10, s.fail(epoch.Add(length)))
	require.Equal(t, 10, s.fail(epoch.Add(1000*time.Hour)), "nothing is saved up")
}

// §4.16: one that succeeds gives back what it took, and makes room for one more.
// So where half of them help, they are free.
func TestSuccessesAreFree(t *testing.T) {
	t.Run("every other one", func(t *testing.T) {
		s := under(Rule{Floor: 1})
		for i := range 1000 {
			at := epoch.Add(time.Duration(i) * time.Millisecond)
			ticket, ok := s.take(at, nil)
			require.True(t, ok, "%d", i)
			ticket.Done(i%2 == 0, at)
		}
	})
	t.Run("one more than that fails", func(t *testing.T) {
		s := under(Rule{Floor: 3})
		succeeded, failed := 0, 0
		for i := range 1000 {
			ticket, ok := s.take(epoch, nil)
			if !ok {
				break
			}
			if i%3 == 0 {
				succeeded++
			} else {
				failed++
			}
			ticket.Done(i%3 == 0, epoch)
		}
		require.Equal(t, succeeded+3, failed)
	})
	for _, successes := range []int{0, 1, 7, 100} {
		s := under(Rule{Ratio: 0.1, Floor: 2})
		s.called(50, epoch)
		for range successes {
			ticket, ok := s.take(epoch, nil)
			require.True(t, ok)
			ticket.Done(true, epoch)
			ticket.Done(true, epoch)
		}
		require.Equal(t, 5+2+successes, s.fail(epoch), "one for each, and not two")
		require.Zero(t, s.fail(epoch.Add(length-1)))
		require.Equal(t, 2, s.fail(epoch.Add(2*length)), "what they have earned is gone too")
	}
}

// §4.16: one whose outcome is not known yet counts half: as many fit in as would
// if every other one helped.
func TestOpenCountsHalf(t *testing.T) {
	s := under(Rule{Ratio: 0.1, Floor: 4})
	s.called(100, epoch)
	tickets := s.open(epoch)
	require.Len(t, tickets, 10+(2*4-1), "none has succeeded: of the share, they count whole")
	for _, ticket := range tickets[:5] {
		ticket.Done(true, epoch)
	}
	require.Len(t, s.open(epoch), 2*10-1, "five made room for five more beside their own, and those count half")

	s = under(Rule{Ratio: 0.1, Floor: 4})
	s.called(100, epoch)
	for _, ticket := range s.open(epoch) {
		ticket.Done(false, epoch)
	}
	require.Zero(t, s.fail(epoch), "all have failed")
	s.called(10, epoch)
	require.Equal(t, 1, s.fail(epoch))
}

// §4.16: what ten good seconds have saved up must not meet the server in its
// first bad one: the share must be covered by the calls of late, too.
func TestShareOfLate(t *testing.T) {
	const calls, perSecond = 10_000, 1000
	share := 0.1 * perSecond * length.Seconds() / lateParts
	for _, tt := range []struct {
		name        string
		rule        Rule
		least, most float64
	}{
		{"an eighth of the share", Rule{Ratio: 0.1}, share / 2, share},
		{"and the floor", Rule{Ratio: 0.1, Floor: 10}, 10 + share/2, 10 + share},
		{"static: all of it", Rule{Ratio: 0.1, Static: true}, 0.1 * calls * 15 / 16, 0.1 * calls},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			for i := range calls {
				s.called(1, epoch.Add(time.Duration(i)*time.Second/perSecond))
			}
			at := epoch.Add(length - 1)
			got := float64(s.fail(at))
			require.GreaterOrEqual(t, got, math.Floor(tt.least))
			require.LessOrEqual(t, got, tt.most)
			require.Zero(t, s.fail(at.Add(length/lateParts)), "what was not taken is not kept")
		})
	}
	t.Run("successes of late cover it too", func(t *testing.T) {
		s := under(Rule{Floor: 1})
		for range 20 {
			ticket, ok := s.take(epoch, nil)
			require.True(t, ok)
			ticket.Done(true, epoch)
		}
		at := epoch.Add(length / 2)
		require.Equal(t, 1, s.fail(at), "long ago: the floor is left")
	})
}

// §4.16: while nobody is known to be served, the floor is for one call at a time,
// which may have all its repetitions.
func TestPlaces(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rule  Rule
		calls int
		want  int // that are repeated at a time
	}{
		{"one call", Rule{Ratio: 0.1, Floor: 10}, 1, 1},
		{"nineteen calls", Rule{Ratio: 0.1, Floor: 10}, 19, 1 + 1},
		{"those that the share covers need none", Rule{Ratio: 0.1, Floor: 10}, 50, 5 + 1},
		{"no floor", Rule{Ratio: 0.1}, 50, 5},
		{"static", Rule{Ratio: 0.1, Floor: 10, Static: true}, 8, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			s.called(tt.calls, epoch)
			places := make([]Place, tt.calls)
			granted := 0
			for i := range places {
				if ticket, ok := s.take(epoch, &places[i]); ok {
					ticket.Done(false, epoch)
					granted++
				}
			}
			require.Equal(t, tt.want, granted)
		})
	}
	t.Run("a place is for the whole call, and then for the next", func(t *testing.T) {
		s := under(Rule{Floor: 10})
		var one, two Place
		take := func(place *Place) bool {
			_, ok := s.take(epoch, place)
			return ok
		}
		require.True(t, take(&one))
		require.True(t, take(&one))
		require.False(t, take(&two))
		require.True(t, take(nil), "where somebody is served, none is needed")
		two.Leave()
		require.False(t, take(&two), "it had none to give up")
		one.Leave()
		one.Leave()
		require.True(t, take(&two))
		require.False(t, take(&one))
	})
	t.Run("who gets nothing takes no place", func(t *testing.T) {
		s := under(Rule{Floor: 1})
		require.Equal(t, 1, s.fail(epoch))
		var one, two Place
		_, ok := s.take(epoch, &one)
		require.False(t, ok)
		_, ok = s.take(epoch.Add(length), &two)
		require.True(t, ok)
	})
	t.Run("of a thousand calls, one at a time has it", func(t *testing.T) {
		s := under(Rule{Floor: 1e6})
		var inside, most, turns atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				var place Place
				for range 10 {
					if _, ok := s.take(epoch, &place); ok {
						most.Store(max(most.Load(), inside.Add(1)))
						inside.Add(-1)
						turns.Add(1)
					}
					place.Leave()
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, most.Load())
		require.NotZero(t, turns.Load())
		require.Zero(t, s.places, "none is lost")
	})
}

// §4.16: a repetition may be of so much weight that it takes all of the floor; what
// the share covers takes no more than others do.
func TestWhole(t *testing.T) {
	s := under(Rule{Ratio: 0.1, Floor: 10})
	s.called(20, epoch)
	ask := func() (Ticket, bool) { return s.Admit(epoch, &s.rule, Ask{Whole: true}) }
	for range 2 {
		ticket, ok := ask()
		require.True(t, ok)
		require.False(t, ticket.ofFloor)
		ticket.Done(false, epoch)
	}
	ticket, ok := ask()
	require.True(t, ok)
	require.True(t, ticket.ofFloor)
	_, ok = ask()
	require.False(t, ok)
	require.Zero(t, s.fail(epoch))
	ticket.Cancel()
	ticket, ok = ask()
	require.True(t, ok, "it is all back")
	ticket.Done(false, epoch)
	require.Zero(t, s.fail(epoch))
	require.Equal(t, 10, s.fail(epoch.Add(length)))
	_, ok = s.Admit(epoch.Add(length), &s.rule, Ask{Whole: true})
	require.False(t, ok, "there must be all of it")
}

// §4.16: what the calls make up for, by themselves.
// TestStatus: the room is for as many as are granted then, if they fail.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   Rule
		before func(*shared)
		taken  float64
		room   int
	}{
		{"nothing", Rule{Ratio: 0.1, Floor: 3}, func(*shared) {}, 0, 3},
		{"a floor that is spent", Rule{Ratio: 0.1, Floor: 3}, func(s *shared) { s.fail(epoch) }, 3, 0},
		{"one that failed", Rule{Ratio: 0.1, Floor: 3}, func(s *shared) {
			ticket, _ := s.take(epoch, nil)
			ticket.Done(false, epoch)
		}, 1, 2},
		{"one that succeeded, of the floor", Rule{Floor: 3}, func(s *shared) {
			ticket, _ := s.take(epoch, nil)
			ticket.Done(true, epoch)
		}, 0, 4},
		{"one that was cancelled", Rule{Floor: 3}, func(s *shared) {
			ticket, _ := s.take(epoch, nil)
			ticket.Cancel()
		}, 0, 3},
		{"calls", Rule{Ratio: 0.5}, func(s *shared) { s.called(40, epoch) }, 0, 20},
		{"least", Rule{Ratio: 0.1, Least: 2, Static: true}, func(s *shared) { s.called(5, epoch) }, 0, 2},
		{"static", Rule{Ratio: 0.5, Floor: 1, Static: true}, func(s *shared) { s.called(4, epoch); s.open(epoch) }, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			tt.before(s)
			got := s.Status(epoch, &s.rule)
			require.InDelta(t, tt.taken, got.Taken, 1e-9)
			require.Equal(t, tt.room, int(got.Room+1e-9), "%+v", got)
			require.Equal(t, tt.room, s.fail(epoch), "as many are granted")
		})
	}
	s := under(Rule{Ratio: 0.1})
	s.called(7, epoch)
	require.Equal(t, 7, s.Status(epoch, &s.rule).Calls)
	require.Zero(t, s.Status(epoch.Add(time.Hour), &s.rule).Calls)
}

// TestHalf: who asks for less than half of the room gets none as soon as that much is
// taken, by whomever, and leaves the rest to the others.
func TestHalf(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rule  Rule
		calls int
		taken int // by others before
		want  int
		left  int // for the others
	}{
		{name: "of the floor", rule: Rule{Floor: 10}, want: 5, left: 5},
		{name: "of what others have taken a part of", rule: Rule{Floor: 10}, taken: 3, want: 2, left: 5},
		{name: "others have taken half", rule: Rule{Floor: 10}, taken: 5, want: 0, left: 5},
		{name: "others have taken nearly all", rule: Rule{Floor: 10}, taken: 9, want: 0, left: 1},
		{name: "an odd number", rule: Rule{Floor: 5}, want: 3, left: 2},
		{name: "of the only one", rule: Rule{Floor: 1}, want: 1, left: 0},
		{name: "static", rule: Rule{Ratio: 0.1, Floor: 10, Static: true}, calls: 100, want: 10, left: 10},
		{name: "there is no room", rule: Rule{}, want: 0, left: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			s.called(tt.calls, epoch)
			for range tt.taken {
				ticket, ok := s.take(epoch, nil)
				require.True(t, ok)
				ticket.Done(false, epoch)
			}
			got := 0
			for ; got < more; got++ {
				require.Equal(t, s.Used(epoch, &s.rule) >= 0.5 || tt.want == 0, got == tt.want, "after %d", got)
				ticket, ok := s.Admit(epoch, &s.rule, Ask{Half: true})
				if !ok {
					break
				}
				ticket.Done(false, epoch)
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.left, s.fail(epoch))
		})
	}
	s := under(Rule{Floor: 4})
	require.Zero(t, s.Used(epoch, &s.rule))
	ticket, _ := s.take(epoch, nil)
	ticket.Done(false, epoch)
	require.InDelta(t, 0.25, s.Used(epoch, &s.rule), 1e-9)
	s.fail(epoch)
	require.InDelta(t, 1, s.Used(epoch, &s.rule), 1e-9)
	require.Zero(t, s.Used(epoch.Add(time.Hour), &s.rule), "it is over")
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		name           string
		rule           Rule
		calls, covered int
	}{
		{"idle", Rule{Ratio: 0.1, Floor: 10}, 0, 0},
		{"nine calls", Rule{Ratio: 0.1, Floor: 10}, 9, 0},
		{"thirty calls", Rule{Ratio: 0.1, Floor: 10}, 30, 3},
		{"static", Rule{Ratio: 0.1, Floor: 10, Static: true}, 30, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			s.called(tt.calls, epoch)
			n := 0
			for s.Covers(epoch, &s.rule) {
				ticket, ok := s.take(epoch, nil)
				require.True(t, ok)
				ticket.Done(false, epoch)
				n++
			}
			require.Equal(t, tt.covered, n)
		})
	}
}

// Scopes of clients that never repeat anything keep no more than their counts.
func TestStateOfAnIdleScopeIsSmall(t *testing.T) {
	s := under(Rule{Ratio: 0.1})
	s.called(1, epoch)
	_, ok := s.take(epoch, nil)
	require.False(t, ok)
	s.Covers(epoch, &s.rule)
	require.Nil(t, s.spent)
}

// §4.16, against the definition, which keeps a list of all that happened. What is
// granted is within the rule; and the rule is no tighter than documented: what is
// refused would break it with calls forgotten a sixteenth of the window early,
// and repetitions a fifteenth late.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		rule := Rule{
			Ratio: r.Float64() * 2, Floor: r.Float64() * 10, Least: float64(r.IntN(3)),
			Window: time.Duration(1+r.Int64N(20_000)) * time.Millisecond, Static: seed%4 == 0,
		}
		m := &model{shared: under(rule), now: epoch}
		w, granted := rule.Window, 0
		for range 500 {
			switch r.IntN(20) {
			case 0:
				m.now = m.now.Add(time.Duration(r.Int64N(int64(2 * w))))
			case 1:
				m.now = m.now.Add(w)
			default:
				m.now = m.now.Add(time.Duration(r.Int64N(int64(w) / 50)))
			}
			m.forget()
			for range r.IntN(4) {
				m.Called(m.now, &m.rule)
				m.calls = append(m.calls, m.now)
			}
			for range r.IntN(4) {
				m.end(r)
			}
			for range r.IntN(4) {
				ticket, ok := m.take(m.now, nil)
				if !ok {
					require.False(t, m.mustGrant(), "seed %d: refused for nothing", seed)
					continue
				}
				granted++
				require.True(t, m.mayGrant(ticket.ofFloor), "seed %d: granted too much", seed)
				k := &repetition{ticket: ticket, open: float64(ticket.halves) / whole, taken: m.now}
				if !ticket.ofFloor && m.earned(w+w/15+1) == 0 {
					require.EqualValues(t, whole, ticket.halves, "seed %d: none has succeeded", seed)
				}
				m.taken = append(m.taken, k)
			}
		}
		require.NotZero(t, granted)
	}
}

type model struct {
	*shared
	now   time.Time
	calls []time.Time
	taken []*repetition
}

type repetition struct {
	ticket       Ticket
	open         float64 // that it counts while it is open
	taken, ended time.Time
	fate         fate
}

type fate int

const (
	stillOpen fate = iota
	failed
	succeeded
	cancelled
)

// end tells of one of the last that were taken, maybe of one that has ended.
func (m *model) end(r *rand.Rand) {
	if len(m.taken) == 0 {
		return
	}
	k := m.taken[len(m.taken)-1-r.IntN(min(len(m.taken), 10))]
	to := fate(1 + r.IntN(3))
	if to == cancelled {
		k.ticket.Cancel()
	} else {
		k.ticket.Done(to == succeeded, m.now)
	}
	if k.fate == stillOpen && (to == cancelled || !m.rule.Static) {
		k.fate, k.ended = to, m.now
	}
}

func (m *model) callsWithin(d time.Duration) (n float64) {
	for _, at := range m.calls {
		if m.now.Sub(at) < d {
			n++
		}
	}
	return n
}

// cost is what the repetitions have taken within some time, of the share or of the
// floor: what it counts from when it was taken, or a whole from when it has failed.
func (m *model) cost(ofFloor bool, d time.Duration) (n float64) {
	for _, k := range m.taken {
		taken, failedNow := m.now.Sub(k.taken) < d, m.now.Sub(k.ended) < d
		switch {
		case k.ticket.ofFloor != ofFloor:
		case m.rule.Static && k.fate != cancelled && taken, k.fate == failed && failedNow:
			n++
		case k.fate == stillOpen && taken:
			n += k.open
		}
	}
	return n
}

// earned is how many more they have made room for.
func (m *model) earned(d time.Duration) (n float64) {
	for _, k := range m.taken {
		if k.fate == succeeded && m.now.Sub(k.ended) < d {
			n++
		}
	}
	return n
}

const tiny = 1e-9 // for sums of fractions in another order

// bounds are what the calls make room for: at most, and at least, since they are
// forgotten up to a sixteenth early; and those of late go by their rate in the
// newest two of sixteen buckets, of which the last has only begun.
func (m *model) bounds() (share, least, lately, leastLately float64) {
	w, ratio := m.rule.Window, m.rule.Ratio
	return ratio * m.callsWithin(w), ratio * m.callsWithin(w-w/16-1),
		ratio * m.callsWithin(w/8) * 16 / lateParts, ratio * m.callsWithin(w/16-1) * 8 / lateParts
}

func (m *model) mayGrant(ofFloor bool) bool {
	share, least, lately, _ := m.bounds()
	room := func(allowed float64, d time.Duration) bool {
		return allowed+m.earned(d+d/15+1)-m.cost(false, d) >= 1-tiny
	}
	w := m.rule.Window
	switch {
	case m.rule.Static:
		return room(max(share+m.rule.Floor, m.rule.Least), w)
	case ofFloor:
		return m.cost(true, w)+1 <= max(m.rule.Floor, m.rule.Least-least)
	}
	return room(share, w) && room(lately, w/lateParts)
}

func (m *model) mustGrant() bool {
	most, share, _, lately := m.bounds()
	room := func(allowed float64, d time.Duration) bool {
		return allowed+m.earned(d)-m.cost(false, d+d/15+1) >= 1+tiny
	}
	w := m.rule.Window
	switch {
	case m.rule.Static:
		return room(max(share+m.rule.Floor, m.rule.Least), w)
	case m.cost(true, w+w/15+1)+1 <= math.Floor(2*max(m.rule.Floor, m.rule.Least-most))/2-tiny:
		return true
	}
	return room(share, w) && room(lately, w/lateParts)
}

// forget drops what is of no consequence any more.
func (m *model) forget() {
	old := func(at time.Time) bool { return m.now.Sub(at) > 2*m.rule.Window }
	m.calls = slices.DeleteFunc(m.calls, old)
	m.taken = slices.DeleteFunc(m.taken, func(k *repetition) bool { return old(k.taken) && (k.fate == stillOpen || old(k.ended)) })
}

// §4.16: the count is exact under a thousand goroutines: nothing that was taken,
// given back or earned is lost, and at no moment is more granted than the rule
// has room for.
func TestThousandGoroutines(t *testing.T) {
	const goroutines, calls, asks = 1000, 5, 10
	for _, tt := range []struct {
		name string
		rule Rule
		fate func(i int) fate
	}{
		{"all fail", Rule{Ratio: 0.1, Floor: 10}, func(int) fate { return failed }},
		{"all fail, without a floor", Rule{Ratio: 0.1}, func(int) fate { return failed }},
		{"a quarter succeeds", Rule{Ratio: 0.1, Floor: 10}, func(i int) fate { return []fate{succeeded, failed, failed, failed}[i%4] }},
		{"every other one is given back", Rule{Ratio: 0.1, Floor: 10}, func(i int) fate { return []fate{cancelled, failed}[i%2] }},
		{"none is heard of again", Rule{Ratio: 0.1, Floor: 10}, func(int) fate { return stillOpen }},
		{"static", Rule{Ratio: 0.1, Floor: 10, Static: true}, func(int) fate { return failed }},
		{"static, every other one is given back", Rule{Ratio: 0.1, Floor: 10, Static: true}, func(i int) fate { return []fate{cancelled, failed}[i%2] }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := under(tt.rule)
			var ends, ofFloor [4]atomic.Int64
			var start, counted, done sync.WaitGroup
			start.Add(1)
			counted.Add(goroutines)
			for g := range goroutines {
				done.Go(func() {
					start.Wait()
					// Times that are out of order, as those of goroutines are.
					now := epoch.Add(time.Duration(g%7) * time.Millisecond)
					ask := func(n int) {
						for i := range n {
							ticket, ok := s.take(now, nil)
							if !ok {
								continue
							}
							to := tt.fate(g + i)
							for range 2 { // the second time says nothing
								switch to {
								case failed, succeeded:
									ticket.Done(to == succeeded, now)
								case cancelled:
									ticket.Cancel()
								case stillOpen:
								}
							}
							ends[to].Add(1)
							if ticket.ofFloor {
								ofFloor[to].Add(1)
							}
						}
					}
					for range calls {
						s.called(1, now)
						ask(1) // while calls are being counted
					}
					counted.Done()
					counted.Wait()
					ask(asks)
				})
			}
			start.Done()
			done.Wait()
			at := epoch.Add(7 * time.Millisecond)
			for {
				ticket, ok := s.take(at, nil)
				if !ok {
					break
				}
				ticket.Done(false, at)
				ends[failed].Add(1)
				if ticket.ofFloor {
					ofFloor[failed].Add(1)
				}
			}
			share := s.rule.Ratio*goroutines*calls + float64(ends[succeeded].Load())
			failures, opens := float64(ends[failed].Load()), float64(ends[stillOpen].Load())
			if tt.rule.Static {
				require.InDelta(t, share+s.rule.Floor, failures, 0)
				return
			}
			failuresOfFloor, opensOfFloor := float64(ofFloor[failed].Load()), float64(ofFloor[stillOpen].Load())
			floor := float64(s.spent.floor.Sum(at.Sub(epoch), length))
			require.InDelta(t, 2*failuresOfFloor+opensOfFloor, floor, 0)
			require.Greater(t, floor+2, 2*s.rule.Floor, "used up")
			require.LessOrEqual(t, failuresOfFloor+opensOfFloor, 2*s.rule.Floor)
			failures -= failuresOfFloor
			opens -= opensOfFloor
			room := s.spent.window.room(s.rule.Ratio*goroutines*calls, at.Sub(epoch), length)
			require.Less(t, room, 2.0, "used up")
			if ends[succeeded].Load() == 0 {
				require.InDelta(t, share, failures+opens, 0, "where nothing succeeds, the share caps them exactly")
				return
			}
			require.InDelta(t, 2*(share-failures)-opens, room, 0, "what is left is what they have not taken")
			// Those that were under way at the same time counted half.
			require.LessOrEqual(t, failures+opens, 2*share)
		})
	}
}

// Calls go on while tickets are taken: at no moment are there more out than the
// calls that had been counted by then allow.
func TestNeverAhead(t *testing.T) {
	for _, static := range []bool{false, true} {
		s := under(Rule{Ratio: 0.1, Static: static})
		var begun, given atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 3000 {
					begun.Add(1)
					s.called(1, epoch)
				}
			})
			wg.Go(func() {
				for range 3000 {
					if _, ok := s.take(epoch, nil); ok {
						if n, calls := given.Add(1), begun.Load(); n*10 > calls {
							t.Errorf("%d given for %d calls", n, calls)
						}
					}
				}
			})
		}
		wg.Wait()
		given.Add(int64(len(s.open(epoch))))
		require.EqualValues(t, 2400, given.Load())
	}
}

// With the clock as the Transport reads it: monotonic, and virtual here.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Rule{Origin: time.Now(), Ratio: 0.5, Window: time.Second}.Checked()
		var a Allowance
		sent := 0
		for range 1000 { // 100 calls per second for ten seconds, all of which fail
			a.Called(time.Now(), &rule)
			if ticket, ok := a.Admit(time.Now(), &rule, Ask{}); ok {
				ticket.Done(false, time.Now())
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, sent, 500)
		require.Greater(t, sent, 400, "the slack is a fifteenth and a sixteenth, of the window and of its last eighth")
	})
}

func TestCallsDoNotAllocate(t *testing.T) {
	s, now := under(Rule{Ratio: 0.1}), epoch
	s.called(1, now)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		s.called(1, now)
	}))
}

func BenchmarkAllowance(b *testing.B) {
	now := epoch
	parallel := func(b *testing.B, f func()) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f()
			}
		})
	}
	b.Run("called", func(b *testing.B) {
		s := under(Rule{})
		b.ReportAllocs()
		for b.Loop() {
			s.called(1, now)
		}
	})
	b.Run("called/parallel", func(b *testing.B) {
		s := under(Rule{})
		parallel(b, func() { s.called(1, now) })
	})
	b.Run("granted", func(b *testing.B) {
		s := under(Rule{Floor: math.Inf(1)})
		b.ReportAllocs()
		for b.Loop() {
			s.take(now, nil)
		}
	})
	b.Run("refused/parallel", func(b *testing.B) {
		s := under(Rule{Ratio: 0.1})
		parallel(b, func() { s.take(now, nil) })
	})
}
