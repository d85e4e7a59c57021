package circuit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// §4.15, L2: a circuit opens at the ratio of failures, with a minimum of results.
func TestClosed_opensByRatio(t *testing.T) {
	many := strings.Repeat
	for _, tt := range []struct {
		name    string
		rules   Rules
		results string
		sent    int // all of them, if it never opens
	}{
		{"one of twenty succeeds", Rules{}, many("F", 10) + "S" + many("F", 8) + "FFF", 22},
		{"nine tenths of twenty", Rules{FailureRatio: 0.9}, many("F", 8) + "S" + many("F", 9) + "SFS", 20},
		{"one less", Rules{FailureRatio: 0.9}, "S" + many("F", 8) + "S" + many("F", 8) + "SFS", 21},
		{"nineteen failures are too few", Rules{}, many("F", 19), 19},
		{"twenty failures", Rules{}, many("F", 30), 20},
		{"below the ratio", Rules{FailureRatio: 0.9}, many("SFFFFFFFF", 100), 900},
		{"the ratio is reached later", Rules{FailureRatio: 0.5}, many("S", 10) + many("FFS", 20), 36},
		{"a success does not open", Rules{FailureRatio: 0.5, MinRequests: 4}, "FFFSSFF", 6},
		{"no failure, never", Rules{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, "SSSSSS", 6},
		{"tiny ratio: one failure", Rules{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, "SSSSSFS", 6},
		{"ratio of one", Rules{MinRequests: 1, FailureRatio: 1}, "SFFFFFF", 7},
		{"ratio above one is one", Rules{MinRequests: 2, FailureRatio: 7}, "FFF", 2},
		{"seven in a hundred, in decimal", Rules{MinRequests: 100, FailureRatio: 0.07}, "SS" + many(many("S", 13)+"F", 7) + "S", 100},
		{"negative minimum: one", Rules{MinRequests: -1}, "FF", 1},
		{"negative ratio: never", Rules{MinRequests: 1, FailureRatio: -1}, many("F", 50), 50},
		{"ratio is NaN: never", Rules{MinRequests: 1, FailureRatio: math.NaN()}, many("F", 50), 50},
		{"ratio is +Inf: one", Rules{MinRequests: 2, FailureRatio: math.Inf(1)}, "FFF", 2},
		{"429 says nothing", Rules{MinRequests: 4}, "AAAAFFFAF" + "F", 9},
		{"canceled calls say nothing", Rules{MinRequests: 4}, "NNNNFFFNF" + "F", 9},
		{"static", Rules{Static: true}, many("F", 30), 20},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.sent, record(tt.rules).run(epoch, tt.results)) })
	}
}

// §4.15: results count for a sliding window.
func TestClosed_windowSlides(t *testing.T) {
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
			_, rejects := b.rejects(at)
			require.Equal(t, tt.open, rejects)
		})
	}
}

// §4.15: a circuit opens early when five results in a row are quick failures, and chance does not explain it. A client with a call a second would need twenty seconds for
// MinRequests results.
func TestClosed_failureStreak(t *testing.T) {
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
		{"a server that was healthy: five", Rules{}, many("S", 30), many("F", 20), s, 5},
		{"after ten successes: six, .083^6 is less than one in a million", Rules{}, many("S", 10), many("F", 20), s, 6},
		{"after five successes: eight, .143^8", Rules{}, many("S", 5), many("F", 20), s, 8},
		{"after fifteen successes: five, .059^5", Rules{}, many("S", 15), many("F", 20), s, 5},
		{"a tenth fails anyway: seven, .104^7", Rules{}, many("FSSSSSSSSS", 20), many("F", 20), s / 4, 7},
		{"nine tenths fail anyway: 126, .896^126", Rules{}, many("FFFFFFFFFS", 20), many("F", 200), s / 200, 126},
		{"a quarter fails anyway: eleven, .262^11", Rules{}, many("FSSS", 10), many("F", 30), s / 4, 11},
		{"half fail anyway: twenty, .5^20", Rules{}, many("FS", 10), many("F", 40), s / 4, 20},
		{"no results before: twenty, .5^20", Rules{MinRequests: 100}, "", many("F", 40), s / 4, 20},
		{"four calls: closed", Rules{}, many("S", 30), "FFFF", s, 4},
		{"four calls a second: five", Rules{}, many("S", 60), many("F", 20), s / 4, 5},
		{"at one time: closed", Rules{}, many("S", 60), many("F", 20), 0, 20},
		{"a success in between: closed", Rules{}, many("S", 30), "FFFFSFFFFSFFFF", s / 2, 14},
		{"canceled calls in between: do not count", Rules{}, many("S", 30), "FFFFNNF", s, 7},
		{"429 in between: do not count", Rules{}, many("S", 30), "FFFFAAF", s, 7},
		{"five, but not within a Window: closed", Rules{}, many("S", 30), "FFFFFFFF", 3 * s, 8},
		{"five within a Window", Rules{}, many("S", 30), "FFFFF", DefaultWindow / 4, 5},
		{"defaults written out", Rules{}.withDefaults(), many("S", 30), many("F", 20), s, 5},
		{"MinRequests set: five", Rules{MinRequests: 100}, many("S", 30), many("F", 20), s, 5},
		{"FailureRatio set: five", Rules{FailureRatio: 1}, many("S", 30), many("F", 20), s, 5},
		{"static: MinRequests", Rules{Static: true}, many("S", 30), many("F", 20), s, 20},
		{"negative FailureRatio: never", Rules{FailureRatio: -1}, many("S", 30), many("F", 50), s, 50},
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
}

// Law L2: a streak of quick failures lasts at least as long as a usual response, because a server that rejects what it cannot
// do still answers the others. So a server that takes a third of 300 calls a second is not away.
func TestClosed_streakLasts(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name        string
		rules       Rules
		usual       time.Duration
		every, upTo time.Duration
		sent        int // of a hundred that fail, until the circuit opens
	}{
		{"no response before", Rules{}, 0, 0, 0, 20}, // .5^20: see TestClosed_failureStreak
		{"40 ms", Rules{}, 40 * ms, 5 * ms, 0, 9},
		{"40 ms, and a response within that time", Rules{}, 40 * ms, 5 * ms, 35 * ms, 100},
		{"40 ms, fewer than five within that time", Rules{}, 40 * ms, 20 * ms, 0, 5},
		{"1 s: 0.3 s is enough", Rules{}, 1000 * ms, 5 * ms, 0, 61},
		{"1 s, a Window of 0.1 s: half of it", Rules{Window: 100 * ms}, 1000 * ms, 5 * ms, 0, 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at, sent, begun := record(tt.rules), epoch, 0, epoch
			for range 60 {
				if tt.usual > 0 {
					b.done(b.must(t, at), Result{Server: outcome.Works, Took: tt.usual}, at)
				}
			}
			for b.path() == "" && sent < 100 {
				if tt.upTo > 0 && at.Sub(begun) >= tt.upTo {
					b.done(b.must(t, at), Result{Server: outcome.Works, Took: tt.usual}, at)
					begun = at
				}
				sent++
				b.done(b.must(t, at), Result{Server: outcome.Fails}, at)
				at = at.Add(tt.every)
			}
			require.Equal(t, tt.sent, sent)
		})
	}
}

// Law L2: many servers reject at once, and answer late. So requests in flight count as successes of a streak, until it is older
// than an answer takes. Then there must be fewer than failures, and those from before do not count.
func TestClosed_inFlight(t *testing.T) {
	const ms, late = time.Millisecond, time.Minute
	for _, tt := range []struct {
		name     string
		rules    Rules
		usual    time.Duration // how long an answer takes
		last     time.Duration // how long the last one took, if that is more
		timeouts int           // one of so many failures is a timeout; 0: none
		before   int           // requests in flight when the streak begins
		failures int           // for each request in flight that is sent since; 0: none is
		every    time.Duration
		sent     int // until the circuit opens; 80: it does not
	}{
		{"none", Rules{}, late, 0, 0, 0, 0, 100 * ms, 5},
		{"many from before", Rules{}, late, 0, 0, 50, 0, 100 * ms, 50},
		{"many from before, answers are quick", Rules{}, 10 * ms, 0, 0, 50, 0, 100 * ms, 5},
		{"a tenth", Rules{}, late, 0, 0, 0, 10, 100 * ms, 9},
		{"a fifth", Rules{}, late, 0, 0, 0, 4, 100 * ms, 80},
		{"a fifth, FailureRatio 0.5", Rules{FailureRatio: 0.5}, late, 0, 0, 0, 4, 100 * ms, 5},
		{"a fifth, answers are quick", Rules{}, 10 * ms, 0, 0, 0, 4, 100 * ms, 5},
		{"a fifth, answers are quick, but not the last one", Rules{}, 10 * ms, late, 0, 0, 4, 100 * ms, 80},
		{"a fifth, answers take 0.4 s", Rules{}, 400 * ms, 0, 0, 0, 4, 100 * ms, 9},
		{"a third; a fifth are timeouts", Rules{}, late, 0, 5, 0, 2, 500 * ms, 80},
		{"a third; a third are timeouts: they hang too", Rules{}, late, 0, 3, 0, 2, 500 * ms, 6},
		{"static", Rules{Static: true, FailureRatio: 0.5}, late, 0, 0, 0, 1, ms, 31},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at, sent := record(tt.rules), epoch, 0
			for range 30 {
				b.done(b.must(t, at), Result{Server: outcome.Works, Took: tt.usual}, at)
			}
			b.done(b.must(t, at), Result{Server: outcome.Works, Took: max(tt.usual, tt.last)}, at)
			for b.path() == "" && sent < 80 {
				r := Result{Server: outcome.Fails, InFlight: tt.before}
				if tt.failures > 0 {
					r.InFlight += (sent + tt.failures - 1) / tt.failures
				}
				sent++
				r.TimeOut = tt.timeouts > 0 && sent%tt.timeouts == 0
				b.done(b.must(t, at), r, at)
				at = at.Add(tt.every)
			}
			require.Equal(t, tt.sent, sent)
		})
	}
}

// Law L2: if many requests are in flight, they may be successes, for the ratio too.
func TestClosed_inFlightByRatio(t *testing.T) {
	for _, tt := range []struct{ inFlight, sent int }{{0, 20}, {2, 20}, {3, 24}, {23, 200}} {
		b, sent := record(Rules{FailureRatio: 0.9}), 0
		for ; b.path() == "" && sent < 200; sent++ {
			r := Result{Server: outcome.Fails, InFlight: tt.inFlight}
			if sent%10 == 5 {
				r.Server = outcome.Works
			}
			b.done(b.must(t, epoch), r, epoch)
		}
		require.Equal(t, tt.sent, sent)
	}
}

// Law L2: a failure of a request that was sent before one that has succeeded opens no circuit, because the server works: one
// of its backends hangs, for example.
func TestClosed_overtakenFailures(t *testing.T) {
	const took = 5 * time.Second
	for _, tt := range []struct {
		name  string
		rules Rules
		sent  time.Duration // of the request that succeeds; the failures are sent at 0 and end later
		opens string
	}{
		{"sent a second later", Rules{}, time.Second, ""},
		{"sent earlier", Rules{}, -time.Second, "open"},
		{"Static", Rules{Static: true, FailureRatio: 0.9}, time.Second, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := record(tt.rules), epoch.Add(time.Minute)
			permits := make([]Permit, 30)
			for i := range permits {
				permits[i] = b.must(t, at)
			}
			b.done(b.must(t, at), Result{Server: outcome.Works, Took: time.Second}, at.Add(tt.sent+time.Second))
			for i, p := range permits {
				late := time.Duration(i) * 100 * time.Millisecond // of the failure
				b.done(p, Result{Server: outcome.Fails, TimeOut: true, Took: took + late}, at.Add(took+late))
			}
			require.Equal(t, tt.opens, b.path())
		})
	}
}

// Law L2: a server that has hung from the first call on, so that its usual latency is unknown, and each call is ended by its deadline.
func TestClosed_hangsFromTheBeginning(t *testing.T) {
	b, at := record(Rules{}), epoch.Add(time.Minute)
	hanging := b.atDeadline(30 * time.Second)
	hanging.InFlight = 600
	for range 60 {
		b.done(b.must(t, at), hanging, at)
		if at = at.Add(time.Second / 20); b.path() != "" {
			break
		}
	}
	require.Equal(t, "open", b.path())
}

// A circuit that has just closed opens after as few failures as before: the server was healthy before the outage.
func TestClosed_opensAgainAsEarly(t *testing.T) {
	b, at := record(Rules{Probes: 1}), epoch
	b.run(at, strings.Repeat("S", 60))
	for range 2 {
		sent := 0
		for b.Find(host).Status(at).State == Closed {
			sent += b.run(at, "F")
			at = at.Add(time.Second / 10)
		}
		require.Equal(t, minStreak, sent)
		at, _ = b.rejects(at.Add(-time.Second / 10))
		require.Equal(t, 1, b.run(at, "S"))
	}
	require.Equal(t, "open half-open closed open half-open closed", b.path())
}

// §4.15: the retries of one call are no evidence of a dead server.
func TestClosed_failureStreakOfRetries(t *testing.T) {
	// F is a call's first attempt that fails, R a retry that fails, r one that succeeds.
	for _, tt := range []struct {
		name    string
		results string
		opens   bool
	}{
		{"retries count, and a call opens", "FRRRF", true},
		{"retries count, and a retry opens", "FFRRR", true},
		{"one call with its retries", "F" + strings.Repeat("R", 14), false},
		{"retries of earlier calls, and one call", "RRRRRF", false},
		{"retries of earlier calls, and two calls", "RRRRFF", true},
		{"a retry that succeeds ends the streak", strings.Repeat("Fr", 15), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := record(Rules{}), epoch
			b.run(at, strings.Repeat("S", 30))
			for i, c := range []byte(tt.results) {
				require.Empty(t, b.path(), "before %d of %s", i, tt.results)
				result := Result{Server: outcome.Fails, Retry: c != 'F'}
				if c == 'r' {
					result.Server = outcome.Works
				}
				b.done(b.must(t, at), result, at)
				at = at.Add(time.Second / 2)
			}
			require.Equal(t, tt.opens, b.path() == "open")
		})
	}
}

// Mostly slow failures indicate a long queue: the circuit closes gradually.
func TestClosed_slowStartAfterTimeouts(t *testing.T) {
	// T is a timeout, S a slow error, F a quick one, and . the end of a Window.
	const usual = 10 * time.Millisecond
	for _, tt := range []struct {
		name      string
		baseline  time.Duration // 0: unknown
		failures  string
		slowStart bool
	}{
		{"all are timeouts", usual, "TTTT", true},
		{"half are, the last is quick", usual, "TFTF", true},
		{"one of four is", usual, "TFFF", false},
		{"all are slow errors", usual, "SSSS", false},
		{"none is slow", usual, "FFFF", false},
		{"those of an earlier Window do not count", usual, "TT.FFFF", false},
		{"no response before, timeouts", 0, "TTTT", true},
		{"no response before, slow errors", 0, "SSSS", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := record(Rules{MinRequests: 4, Probes: 1}), epoch
			if tt.baseline > 0 {
				b.done(b.must(t, at), Result{Server: outcome.Works, Took: tt.baseline}, at)
			}
			at = at.Add(time.Minute)
			for _, c := range []byte(tt.failures) {
				if c == '.' {
					at = at.Add(DefaultWindow + 1)
					continue
				}
				took := map[byte]time.Duration{'T': time.Second, 'S': time.Second, 'F': usual}[c]
				b.done(b.must(t, at), Result{Server: outcome.Fails, Took: took, TimeOut: c == 'T'}, at)
			}
			at, rejects := b.rejects(at)
			require.True(t, rejects)
			b.done(b.must(t, at), Result{Server: outcome.Works, Took: usual}, at)
			require.Equal(t, "open half-open closed", b.path())
			require.Equal(t, tt.slowStart, b.limit() != nil)
		})
	}
}

// T16: the results that opened a circuit are those of the streak, or else those of the Window.
func TestClosed_resultsThatOpened(t *testing.T) {
	for _, tt := range []struct {
		rules           Rules
		results         string
		calls, failures int
	}{
		{Rules{}, strings.Repeat("S", 30) + "FFFFF", 5, 5},
		{Rules{FailureRatio: 0.5, MinRequests: 6}, "SSSFFF", 6, 3},
	} {
		b, at := record(tt.rules), epoch
		for i := range tt.results {
			b.run(at, tt.results[i:i+1])
			at = at.Add(time.Millisecond)
		}
		s := b.Find(host).Status(at)
		require.Equal(t, []int{tt.calls, tt.failures}, []int{s.Calls, s.Failures})
	}
}

// kind is a kind of calls to a server that only fails, each an attempt. A call fails after a time.
type kind struct {
	every, fails time.Duration
	rejected     bool // it fails by a response, not by a timeout
}

// fail makes evenly spaced calls for a time, until one is rejected, and returns the time until then.
func (b *recorded) fail(start time.Time, longest time.Duration, kinds ...kind) (opened time.Duration, rejected bool) {
	const step = 5 * time.Millisecond
	type call struct {
		Permit
		end time.Duration
	}
	inFlight := make([][]call, len(kinds)) // of each kind, in the order of their ends
	for at := time.Duration(0); at < longest; at += step {
		for i, k := range kinds {
			for len(inFlight[i]) > 0 && inFlight[i][0].end <= at {
				b.done(inFlight[i][0].Permit, Result{Server: outcome.Fails, Took: k.fails, TimeOut: !k.rejected}, start.Add(at))
				inFlight[i] = inFlight[i][1:]
			}
			if at%k.every != 0 {
				continue
			}
			permit, _, ok := b.admit(start.Add(at))
			if !ok {
				return at, true
			}
			inFlight[i] = append(inFlight[i], call{permit, at + k.fails})
		}
	}
	return longest, false
}

// L2: a server that only hangs opens the circuit two seconds after the first timeout, and one that fails quickly after
// five results, however many attempts are in flight: they were sent after those that have failed.
func TestClosed_opensForHangingServer(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		usual time.Duration // latency of a success
		kinds []kind
		want  time.Duration // until calls are rejected
	}{
		{"2 calls a second, timeout of 1 s", s / 50, []kind{{every: s / 2, fails: s}}, 3 * s},
		{"2 calls a second, timeout of 30 s: twenty failures, as no success is left in the Window", s / 50, []kind{{every: s / 2, fails: 30 * s}}, 39 * s},
		{"20 calls a second, timeout of 3 s: five failures", s / 50, []kind{{every: s / 20, fails: 3 * s}}, 3 * s},
		{"20 calls a second, timeout of 3 s, usually 200 ms: a queue, for two seconds", s / 5, []kind{{every: s / 20, fails: 3 * s}}, 5 * s},
		{"20 calls a second, timeout of 10 s: twenty failures", s / 50, []kind{{every: s / 20, fails: 10 * s}}, 10 * s},
		{"200 calls a second, timeout of 5 s: five failures", s / 50, []kind{{every: s / 200, fails: 5 * s}}, 5 * s},
		{"200 calls a second, timeout of 5 s, usually 300 ms: a queue", 3 * s / 10, []kind{{every: s / 200, fails: 5 * s}}, 7 * s},
		{"200 calls a second, timeout of 60 s: twenty failures", s / 50, []kind{{every: s / 200, fails: 60 * s}}, 60 * s},
		{"timeouts of 5 s and 30 s: the shorter one", s / 50, []kind{{every: s / 20, fails: 5 * s}, {every: s / 20, fails: 30 * s}}, 5 * s},
		{"503 at once, or timeout of 10 s: as quick ones", s / 50, []kind{{every: s / 20, rejected: true}, {every: s / 20, fails: 10 * s}}, s / 5},
		{"503 at once", s / 50, []kind{{every: s / 20, rejected: true}}, s / 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{})
			for at := -10 * s; at < 0; at += tt.kinds[0].every {
				b.done(b.must(t, epoch.Add(at)), Result{Server: outcome.Works, Took: tt.usual}, epoch.Add(at))
			}
			opened, rejected := b.fail(epoch, 4*time.Minute, tt.kinds...)
			require.True(t, rejected, "never")
			require.GreaterOrEqual(t, opened, tt.want)
			require.LessOrEqual(t, opened, tt.want+s)
		})
	}
}

// A burst of requests that time out together, beside few quick ones, proves nothing: no success was due meanwhile.
func TestClosed_burstOfTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration // of the successes
		opens bool
	}{{"a success was due", 10 * time.Millisecond, true}, {"none was due", 2 * time.Second, false}} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{})
			for at := -10 * time.Second; at < 0; at += tt.every {
				b.done(b.must(t, epoch.Add(at)), Result{Server: outcome.Works, Took: time.Millisecond}, epoch.Add(at))
			}
			var burst []Permit
			for range 8 {
				burst = append(burst, b.must(t, epoch))
			}
			for i, p := range burst {
				b.done(p, Result{Server: outcome.Fails, Took: time.Second, TimeOut: true}, epoch.Add(time.Second+time.Duration(10*i)*time.Millisecond))
			}
			_, _, ok := b.admit(epoch.Add(1100 * time.Millisecond))
			require.Equal(t, !tt.opens, ok)
		})
	}
}

// A client of a server that only hangs: one call a second is held, or one in five, also after many timeouts.
func TestOpening_hangingServerHoldsFewCalls(t *testing.T) {
	for _, tt := range []struct {
		perSecond int
		timeout   time.Duration
		most      float64 // ratio of the calls that are held
	}{{2, time.Second, 0.4}, {2, 5 * time.Second, 0.4}, {2, 30 * time.Second, 0.4}, {20, time.Second, 0.2}, {20, 30 * time.Second, 0.2}, {200, 10 * time.Second, 0.06}} {
		t.Run(fmt.Sprintf("%d a second, timeout of %v", tt.perSecond, tt.timeout), func(t *testing.T) {
			b := record(Rules{})
			every := time.Second / time.Duration(tt.perSecond)
			for i := range 20 {
				b.done(b.must(t, epoch), Result{Server: outcome.Works, Took: time.Millisecond}, epoch.Add(time.Duration(i)))
			}
			opened, rejected := b.fail(epoch, time.Hour, kind{every: every, fails: tt.timeout})
			require.True(t, rejected)
			at, calls, held := epoch.Add(opened+2*tt.timeout), 0, 0
			type probe struct {
				Permit
				end time.Time
			}
			var probes []probe
			for range 100 * tt.perSecond {
				for len(probes) > 0 && !probes[0].end.After(at) {
					b.done(probes[0].Permit, Result{Server: outcome.Fails, Took: tt.timeout, TimeOut: true}, at)
					probes = probes[1:]
				}
				calls++
				if permit, _, ok := b.admit(at); ok {
					held++
					probes = append(probes, probe{permit, at.Add(tt.timeout)})
				}
				at = at.Add(every)
			}
			require.LessOrEqual(t, float64(held)/float64(calls), tt.most)
			require.GreaterOrEqual(t, held, 60, "a probe at least each 1.7 s")
		})
	}
}

// Most results are successes if more than half are, and of a circuit that is not closed none are.
func TestCircuit_MostSucceed(t *testing.T) {
	b := record(Rules{})
	c := b.Circuit(host)
	require.False(t, c.MostSucceed(epoch), "no result")
	b.run(epoch, "SF")
	require.False(t, c.MostSucceed(epoch))
	b.run(epoch, "S")
	require.True(t, c.MostSucceed(epoch))
	b.opened(t, epoch.Add(time.Hour))
	require.False(t, c.MostSucceed(epoch), "not closed")
}

// While calls are released, a later result that took longer counts as the latency now, and one without a result says nothing.
func TestCircuit_latencyOfARelease(t *testing.T) {
	b := record(Rules{})
	p := b.must(t, epoch)
	s := p.closed
	for _, step := range []struct {
		releasing bool
		result    Result
		took      time.Duration
		pressed   bool
	}{
		{false, Result{Server: outcome.Works, Took: 20}, 20, false},
		{false, Result{Server: outcome.Fails, Took: 50}, 20, false},
		{true, Result{Server: outcome.Fails, Took: 50}, 50, true},
		{true, Result{Server: outcome.Fails, Took: 30}, 50, true},
		{true, Result{}, 50, true},
		{true, Result{Server: outcome.Works, Took: 10}, 10, false},
	} {
		s.releasing.Store(step.releasing)
		b.done(p, step.result, epoch)
		require.EqualValues(t, step.took, s.took.Load(), "%+v", step)
		require.Equal(t, step.pressed, s.pressed.Load(), "%+v", step)
	}
}

// The quickest and the slowest failure of an outage need not be the first or the last.
func TestCircuit_latenciesOfAnOutage(t *testing.T) {
	const ms = time.Millisecond
	b, at := record(Rules{MinRequests: 4}), epoch.Add(time.Second)
	for _, took := range []time.Duration{20 * ms, 10 * ms, 40 * ms, 30 * ms} {
		b.done(b.must(t, at), Result{Server: outcome.Fails, Took: took}, at)
	}
	require.Equal(t, "open", b.path())
	c := b.Find(host)
	require.Equal(t, []time.Duration{10 * ms, 40 * ms}, []time.Duration{c.opening.quickest, c.opening.slowest})
	at, _ = b.rejects(at)
	for _, row := range []struct{ took, slowest time.Duration }{{30 * ms, 40 * ms}, {60 * ms, 60 * ms}} {
		b.done(b.must(t, at), Result{Server: outcome.Fails, Took: row.took}, at)
		require.Equal(t, row.slowest, c.opening.slowest)
		at, _ = b.rejects(at)
	}
}

// A change is not earlier than the one before, although a caller that read the clock first may come last.
func TestCircuit_changesAreInOrder(t *testing.T) {
	b := record(Rules{MinRequests: 1})
	at := b.opened(t, epoch)
	b.done(b.must(t, at), Result{Server: outcome.Fails}, at.Add(-1))
	require.Equal(t, "open half-open open", b.path())
	require.Equal(t, at, b.changes[1].At)
	require.Equal(t, at, b.changes[2].At)
}

// What was usual is that before the last outage, if the circuit had not changed for a Window.
func TestCircuit_usualBeforeAnotherOutage(t *testing.T) {
	b := record(Rules{Probes: 1})
	at, c := epoch, b.Circuit(host)
	for _, row := range []struct{ every, usual time.Duration }{{time.Second, time.Second}, {100 * time.Millisecond, 100 * time.Millisecond}} {
		for end := at.Add(2 * DefaultWindow); at.Before(end); at = at.Add(row.every) {
			b.done(b.must(t, at), Result{Server: outcome.Works}, at)
		}
		for n := len(b.changes); len(b.changes) == n; at = at.Add(row.every) {
			b.done(b.must(t, at), Result{Server: outcome.Fails}, at)
		}
		require.InDelta(t, row.usual, c.outage.usual, float64(row.usual)/5)
		at = at.Add(DefaultMaxCooldown)
		b.done(b.must(t, at), Result{Server: outcome.Works}, at)
	}
}

// Few results after an outage prove less than what was usual before it. It makes no streak more likely.
func TestCircuit_ratioBeforeAStreak(t *testing.T) {
	for _, row := range []struct {
		before  float64
		results string
		want    float64
	}{
		{0, "SF", 1. / 3}, {.001, "SF", .001}, {.9, "SF", 1. / 3}, {.001, "SFSFSFSF", 4. / 9},
	} {
		b := record(Rules{})
		c := b.Circuit(host)
		c.outage.ratio = row.before
		b.run(epoch.Add(time.Second), row.results)
		require.InDelta(t, row.want, c.closed.Load().streak.ratio, 1e-9, "%+v", row)
	}
}

// Which streaks open the circuit, of which an application would need seconds.
func TestCircuit_streaks(t *testing.T) {
	for _, row := range []struct {
		name        string
		usual, took time.Duration // of successes; of the last one
		streak      failureStreak
		results     int
		inFlight    int
		lasted      time.Duration
		want        bool
	}{
		{"fewer in flight than when it began", time.Second, time.Second, failureStreak{attempts: 10, calls: 10, inFlight: 25}, 11, 5, time.Second, true},
		{"shorter than usual, and the last success was quick", time.Second, time.Millisecond, failureStreak{attempts: 6, calls: 6, inFlight: 10}, 11, 10, time.Second / 2, false},
		{"longer than usual: those in flight before do not count", time.Millisecond, time.Millisecond, failureStreak{attempts: 6, calls: 6, inFlight: 10}, 11, 10, time.Second / 2, true},
		{"sudden timeouts of a client with few calls", time.Millisecond, time.Millisecond, failureStreak{attempts: 5, timeouts: 5, sudden: 5, calls: 5}, 6, 0, minStreakTime, true},
		{"sudden timeouts of a busy client", time.Millisecond, time.Millisecond, failureStreak{attempts: 6, timeouts: 6, sudden: 6, calls: 6}, 16, 0, minStreakTime / 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := record(Rules{})
			c := b.Circuit(host)
			for i := range 100 {
				c.baseline.Follow(time.Duration(i)*time.Second, row.usual)
			}
			at := time.Minute
			s := c.closed.Load()
			s.took.Store(int64(row.took))
			row.streak.ratio, row.streak.since = 1e-9, at-row.lasted
			s.streak = row.streak
			require.Equal(t, row.want, c.tooMany(s, tally{row.results, row.streak.attempts}, Result{InFlight: row.inFlight}, at))
		})
	}
}

// An outage knows a bounded number of routes.
func TestRoutes_bounded(t *testing.T) {
	var r routes
	for i := range uint64(3 * maxRoutes) {
		r.add(i)
	}
	require.Len(t, r, maxRoutes)
	require.True(t, r.has(1e6), "all others are taken for failing")
}
