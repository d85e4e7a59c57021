package admission

import (
	"math"
	"time"
)

const (
	// windowTime and the two after it say how much a window is: so long, and so many
	// samples as there are places, between the two. Where times differ it is up to
	// longerWindow as many, until their mean is known to precision.
	windowTime    = 100 * time.Millisecond
	fewestSamples = 16
	mostSamples   = 100
	longerWindow  = 4
	precision     = 0.1

	// chances is by how many standard errors a mean must lie beyond a bound to count as
	// beyond it.
	chances = 3

	// growth is how many times as many places one window makes, at most.
	growth = 1.5

	// lookEvery is after how many windows with all places taken base is looked at again.
	lookEvery = 200

	// fewer is to which share the number in flight must have fallen before it is judged
	// by what that did, and proof below which power of that share what is served must
	// have fallen, for the number not to have been too high: it falls to the share itself
	// if requests do not wait for each other, and not at all if they do.
	fewer = 0.7
	proof = 0.5

	// asMany is from which share of what was served before on it counts as all of it.
	asMany = 0.9

	// hurry is how much slower than unhurried is well, at least, whatever clients ask.
	hurry = 1.25
)

// limiter decides how many requests may be in flight. It is pure: it is told of each
// request that begins and ends, and at what time.
//
// There may be more as long as requests take hardly longer than base, which is how long
// they take when they do not wait for each other; when they take too long, or base is
// old, the limit is halved to see: if half as many serve as many it was too high, and
// if not, then what they take now is base, and the limit is as before.
//
// No mistake lasts: a base that is too low makes requests seem too slow, which is a
// reason to look; one that is too high is looked at when it is old, and falls at once
// when requests are quicker than that. With no base at all one looks after the next
// window, so an overload that was there from the beginning is seen to be one.
type limiter struct {
	min, max  float64
	tolerance float64 // negative: the limit does not move

	limit    float64
	inflight int
	base     float64 // seconds; 0: not known yet
	patience float64 // seconds that clients give their requests, on average; 0: nobody said
	age      int     // of base: how many windows with all places taken

	began  time.Duration // of the window
	full   bool          // all places were taken in it
	window window
	late   float64 // how many in it were not served before their deadline

	halved struct { // since the limit was, to see
		from, rate, flight float64 // what was before; from 0: it was not
	}
}

// window is how long the requests of a window took, in seconds, and how many were in
// flight with them.
type window struct{ n, sum, squares, flight float64 }

func (w *window) add(seconds, flight float64) {
	w.n++
	w.sum += seconds
	w.squares += seconds * seconds
	w.flight += flight
}

// mean is how long they took, and how far chance may have led it astray.
func (w *window) mean() (seconds, chance float64) {
	seconds = w.sum / w.n
	return seconds, chances * math.Sqrt(max(w.squares/w.n-seconds*seconds, 0)/max(w.n-1, 1))
}

func newLimiter(initial, least, most int, tolerance float64) limiter {
	return limiter{min: float64(least), max: float64(most), tolerance: tolerance, limit: float64(initial)}
}

// places is how many may be in flight.
func (l *limiter) places() int { return int(l.limit) }

// admit takes a place, if there is one.
func (l *limiter) admit() bool {
	if l.inflight >= l.places() {
		l.full = true
		return false
	}
	l.inflight++
	return true
}

// meet is told how long a client gives its request.
func (l *limiter) meet(seconds float64) {
	if l.patience == 0 {
		l.patience = seconds
	}
	l.patience += (seconds - l.patience) / 64
}

// sample is how long a request took, as far as that tells anything.
type sample struct {
	took   time.Duration // negative: it tells nothing
	flight int           // how many had a place when it came, itself among them
	late   bool          // its deadline passed before it was served
}

// seconds is Duration.Seconds without its divisions: nobody needs the last bit here.
func seconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// leave gives a place back.
func (l *limiter) leave(now time.Duration, s sample) {
	l.inflight--
	if s.took < 0 || now < l.began {
		return
	}
	switch {
	case !s.late:
		l.window.add(seconds(s.took), float64(s.flight))
	case seconds(s.took) > l.tolerance*l.base:
		l.late++ // it would have taken longer: how much, nobody knows
	}
	enough := min(max(l.limit, fewestSamples), mostSamples)
	if l.window.n+l.late < enough || now-l.began < windowTime {
		return
	}
	limit, took := l.limit, seconds(s.took)
	if l.late > l.window.n {
		l.overdue()
	} else {
		mean, chance := l.window.mean()
		if chance > chances*precision*mean && l.window.n < longerWindow*enough {
			return
		}
		took = mean
		l.judge(mean, chance, (l.window.n+l.late)/seconds(now-l.began))
	}
	l.began = now
	if l.limit != limit {
		// Those who came before it moved do not show what it does.
		l.began += time.Duration(took * float64(time.Second))
	}
	l.full, l.late, l.window = false, 0, window{}
}

// overdue is a window in which most were not served in time: of how long they take it
// tells only that it is too long.
func (l *limiter) overdue() {
	l.halved.from = 0
	if l.full && l.tolerance >= 0 {
		l.halve()
	}
}

// judge draws the conclusions of a window.
func (l *limiter) judge(mean, chance, rate float64) {
	if l.base == 0 {
		// It began with none in flight, and the quick ones come first: so one looks after
		// the next.
		l.base, l.age = mean, lookEvery
		return
	}
	l.base = min(l.base, mean+chance)
	if !l.full || l.tolerance < 0 {
		l.halved.from = 0
		return
	}
	l.age++
	if l.halved.from > 0 && !l.compare(mean, rate) {
		return
	}
	well := l.well()
	switch halfway := (l.base + well) / 2; {
	case mean-chance > well || l.age > lookEvery:
		l.look(mean, rate)
	case mean < halfway:
		l.limit = min(l.limit*min(halfway/mean, growth), l.max)
	}
}

// well is how long requests may take. They are to spend half of the time that their
// clients give them in the queue or on the way, rather than waiting for each other
// where nobody can be preferred.
func (l *limiter) well() float64 {
	well := l.tolerance * l.base
	if l.patience > 0 {
		well = min(well, max(l.patience/2, hurry*l.base))
	}
	return well
}

// look halves the limit, to see what that does.
func (l *limiter) look(mean, rate float64) {
	if l.limit <= l.min {
		l.rebase(mean) // there is nothing less to compare it with
		return
	}
	l.halved.from, l.halved.rate, l.halved.flight = l.limit, rate, l.window.flight/l.window.n
	l.halve()
}

func (l *limiter) halve() { l.limit = max(l.limit/2, l.min) }

// compare is what came of halving the limit. It reports whether fewer serve as many.
func (l *limiter) compare(mean, rate float64) bool {
	share, served := l.window.flight/l.window.n/l.halved.flight, rate/l.halved.rate
	from := l.halved.from
	switch {
	case share > fewer && l.limit > l.min:
		l.halve() // it was far from being reached
		return false
	case served < math.Pow(share, proof):
		l.rebase(mean)
		l.limit = from
	case served < asMany:
		l.rebase(mean)
		l.limit = max(l.limit, from*served)
	default:
		l.base = min(l.base, mean)
	}
	l.halved.from = 0
	return served >= asMany
}

// rebase is when it is not the number that makes requests take so long.
func (l *limiter) rebase(mean float64) { l.base, l.age = mean, 0 }
