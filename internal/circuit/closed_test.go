package circuit

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.15: it opens when nearly nothing succeeds, with a minimum of requests.
func TestOpens(t *testing.T) {
	many := strings.Repeat
	for _, tt := range []struct {
		name    string
		rules   Rules
		results string
		sent    int // all of them, if it never opens
	}{
		{"nine tenths of twenty", Rules{}, "SS" + many("F", 18) + "S", 20},
		{"one less", Rules{}, "SSS" + many("F", 17) + "S", 21},
		{"nineteen failures are too few", Rules{}, many("F", 19), 19},
		{"twenty failures", Rules{}, many("F", 30), 20},
		{"below the ratio", Rules{}, many("SFFFFFFFF", 100), 900},
		{"the ratio is reached later", Rules{}, many("S", 10) + many("F", 100), 100},
		{"a success does not open", Rules{FailureRatio: 0.5, MinRequests: 4}, "FFFSSFF", 6},
		{"no failure, never", Rules{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, "SSSSSS", 6},
		{"tiny ratio: one failure", Rules{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, "SSSSSFS", 6},
		{"ratio of one", Rules{MinRequests: 1, FailureRatio: 1}, "SFFFFFF", 7},
		{"ratio above one is one", Rules{MinRequests: 2, FailureRatio: 7}, "FFF", 2},
		{"seven in a hundred, in decimal", Rules{MinRequests: 100, FailureRatio: 0.07}, many("S", 93) + "FFFFFFFS", 100},
		{"negative minimum: one", Rules{MinRequests: -1}, "FF", 1},
		{"negative ratio: never", Rules{MinRequests: 1, FailureRatio: -1}, many("F", 50), 50},
		{"ratio is NaN: never", Rules{MinRequests: 1, FailureRatio: math.NaN()}, many("F", 50), 50},
		{"ratio is +Inf: one", Rules{MinRequests: 2, FailureRatio: math.Inf(1)}, "FFF", 2},
		{"429 says nothing", Rules{MinRequests: 4}, "AAAAFFFAF" + "F", 9},
		{"cancelled calls say nothing", Rules{MinRequests: 4}, "NNNNFFFNF" + "F", 9},
		{"static", Rules{Static: true}, many("F", 30), 20},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.sent, record(tt.rules).run(epoch, tt.results)) })
	}
}

// §4.15: over a sliding window.
func TestWindowSlides(t *testing.T) {
	type step struct {
		after   time.Duration
		results string
	}
	for _, tt := range []struct {
		name  string
		steps []step
		open  bool
	}{
		{"within the window", []step{{0, "FF"}, {9 * time.Second, "FF"}}, true},
		{"failures leave the window", []step{{0, "FFF"}, {10 * time.Second, "FFF"}}, false},
		{"successes leave the window too", []step{{0, "SSSSSSSSSS"}, {5 * time.Second, "FFF"}, {5 * time.Second, "F"}}, true},
		{"after an idle time", []step{{0, "FFF"}, {1000 * time.Hour, "FFF"}}, false},
		{"a clock that goes back", []step{{0, "FF"}, {-time.Second, "FF"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := record(Rules{FailureRatio: 0.75, MinRequests: 4, Window: 10 * time.Second}), epoch
			for _, s := range tt.steps {
				at = at.Add(s.after)
				require.Equal(t, len(s.results), b.run(at, s.results))
			}
			_, refuses := b.Refuses(host, at, false)
			require.Equal(t, tt.open, refuses)
		})
	}
}

// unlikely is how many calls in a row chance does not explain, where each fails
// with such a probability: less than once in a million.
func unlikely(share float64) int { return max(rowLeast, int(math.Ceil(rowChance/math.Log(share)))) }

// §4.15: it opens early when nothing succeeds any more, and chance does not
// explain that. A client that makes a call a second would have to wait a third of
// a minute for twenty results.
func TestRowThatChanceDoesNotExplain(t *testing.T) {
	const s = time.Second
	many := strings.Repeat
	for _, tt := range []struct {
		name    string
		rules   Rules
		before  string // at one time
		results string
		every   time.Duration
		sent    int
	}{
		{"a server that was well", Rules{}, many("S", 30), many("F", 20), s, rowLeast},
		{"few results are no certainty", Rules{}, many("S", 10), many("F", 20), s, unlikely(1.0 / 12)},
		{"a quarter fails anyway", Rules{}, many("FSSS", 10), many("F", 30), s / 4, unlikely(11.0 / 42)},
		{"half fail anyway", Rules{}, many("FS", 10), many("F", 40), s / 4, unlikely(11.0 / 22)},
		{"four calls are too few", Rules{}, many("S", 30), "FFFF", s, 4},
		{"two seconds, and not sooner", Rules{}, many("S", 60), many("F", 20), s / 4, 1 + int(rowTime/(s/4))},
		{"a success in between", Rules{}, many("S", 30), "FFFFSFFFFSFFFF", s / 2, 14},
		{"nothing said about them in between", Rules{}, many("S", 30), "FFFFNNF", s, 7},
		{"429 in between", Rules{}, many("S", 30), "FFFFAAF", s, 7},
		{"not within a Window", Rules{}, many("S", 30), "FFFFFFFF", 3 * s, 8},
		{"just within a Window", Rules{}, many("S", 30), "FFFFF", DefaultWindow / 4, rowLeast},
		{"written out", Rules{}.withDefaults(), many("S", 30), many("F", 20), s, rowLeast},
		{"MinRequests of one's own", Rules{MinRequests: 100}, many("S", 30), many("F", 20), s, rowLeast},
		{"FailureRatio of one's own", Rules{FailureRatio: 1}, many("S", 30), many("F", 20), s, rowLeast},
		{"static", Rules{Static: true}, many("S", 30), many("F", 20), s, 20},
		{"never", Rules{FailureRatio: -1}, many("S", 30), many("F", 50), s, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at, sent := record(tt.rules), epoch, 0
			require.Equal(t, len(tt.before), b.run(at, tt.before))
			for i := range tt.results {
				sent += b.run(at, tt.results[i:i+1])
				if b.path() != "" {
					break
				}
				at = at.Add(tt.every)
			}
			require.Equal(t, tt.sent, sent)
		})
	}
	t.Run("retries count in the row, and a call opens", func(t *testing.T) {
		b, at := record(Rules{}), epoch
		b.run(at, many("S", 30))
		b.run(at, "F")
		for range rowLeast - 2 {
			b.done(b.must(t, at), Result{Outcome: Failure, Retry: true}, at)
		}
		b.run(at.Add(rowTime), "F")
		require.Equal(t, "open", b.path())
	})
	t.Run("one call with its retries does not open it", func(t *testing.T) {
		b, at := record(Rules{}), epoch
		b.run(at, many("S", 30))
		for i := range 15 {
			b.done(b.must(t, at), Result{Outcome: Failure, Retry: i > 0}, at)
			at = at.Add(s / 2)
		}
		require.Empty(t, b.path())
	})
	t.Run("a retry that succeeds ends the row", func(t *testing.T) {
		b, at := record(Rules{}), epoch
		b.run(at, many("S", 30))
		for range 15 {
			b.run(at, "F")
			b.done(b.must(t, at), Result{Outcome: Success, Retry: true}, at)
			at = at.Add(s / 2)
		}
		require.Empty(t, b.path())
	})
}

// §4.15: of a burst of calls, those that fail may be back before those that
// succeed. So what is in flight counts as answered, unless the rules are static.
func TestBurstThatFailsFirst(t *testing.T) {
	for _, tt := range []struct {
		name             string
		static           bool
		failed, inFlight int
		opens            bool
	}{
		{"all back", false, DefaultMinRequests, 0, true},
		{"one in twenty is not", false, DefaultMinRequests, 1, true},
		{"a third is not", false, DefaultMinRequests, DefaultMinRequests / 2, false},
		{"nine tenths are back", false, 9 * DefaultMinRequests, DefaultMinRequests, true},
		{"static", true, DefaultMinRequests, DefaultMinRequests, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{Static: tt.static})
			var tickets []Ticket
			for range tt.failed + tt.inFlight {
				tickets = append(tickets, b.must(t, epoch))
			}
			for _, ticket := range tickets[:tt.failed] {
				b.done(ticket, Result{Outcome: Failure}, epoch)
			}
			require.Equal(t, tt.opens, b.path() == "open")
		})
	}
}

// A row that opens comes by chance once in a million.
func TestRowsByChance(t *testing.T) {
	for _, share := range []float64{0.1, 0.25, 0.5, 0.75} {
		require.LessOrEqual(t, math.Pow(share, float64(unlikely(share))), 1.1e-6)
	}
}
