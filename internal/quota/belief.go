package quota

import (
	"math"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

const (
	fewRoutes = 4 // so many routes must have been refused for a quota to be that of all
	sureAgain = 2 // and so many requests in a row, where the word was wrong once
)

// belief is how far a server's word that nothing remains is taken for true.
//
// Such a word closes the scope, and what is closed sends nothing that could show the
// word to be wrong. So it is a claim until it was seen to be true: by a refusal, for
// the route that was refused, and for all routes once a few were; or by a reset that
// brought what it promised. As long as it is a claim, a call that would be turned away
// for it goes and sees: see scouts. If more is served so than the claim allows, it is
// wrong, and has no say until a refusal speaks of it.
type belief struct {
	routes [fewRoutes]uint64 // those that were refused
	n      int               // so many; of what was wrong once, how many refusals there were since
	kept   bool              // none was, but a reset has brought what was said
	wrong  bool              // it is not true, and has no say
	lied   bool              // it was so once: no refusal makes it true for good any more

	owed   int64         // what the reset is to bring; 0: nothing was claimed
	heard  time.Time     // when the claim came
	until  time.Time     // until then nothing is served
	least  time.Duration // and it is so long, at least
	served int64         // in spite of it
}

// holds reports whether the word is known to be true for calls of that route.
func (f *belief) holds(route uint64) bool {
	if f.lied {
		return f.n > sureAgain
	}
	return f.kept || f.n == fewRoutes || slices.Contains(f.routes[:f.n], route)
}

// shaken reports whether the word was wrong once and is not proven again. Then it is a
// guess, as hearsay is.
func (f *belief) shaken() bool { return f.lied && f.n < sureAgain }

// refuse is told that a request of the route was refused when nothing remained.
func (f *belief) refuse(route uint64) {
	f.kept = false // for which routes it was kept is not known
	switch {
	case f.lied:
		f.n = min(f.n+1, sureAgain+1)
	case f.n < fewRoutes && !slices.Contains(f.routes[:f.n], route):
		f.routes[f.n] = route
		f.n++
	}
}

// over is told that the reset has come; owed is what it is to bring.
func (f *belief) over(owed int64) {
	f.owed = owed
	if f.lied {
		f.n = min(f.n, sureAgain-1)
	}
}

// contradict is told that one was served in spite of the claim, which allows for so
// many until now.
func (f *belief) contradict(allowed float64) {
	if f.served++; f.lied || float64(f.served) > 1+allowed {
		*f = belief{wrong: true, lied: true}
	}
}

// closes reports whether the word that nothing remains holds requests up.
func (q *axis) closes(now time.Time) bool { return !q.silent && q.low <= 0 && q.reset.After(now) }

// believe is told of a word that has been learned.
func (q *axis) believe(r reading) {
	f := &q.belief
	if f.wrong {
		return
	}
	current := !r.sent.Before(q.since)
	if !r.refused && !f.lied && f.n == 0 && r.word.Remaining > 0 {
		whole := current && f.owed == q.limit && r.word.Remaining >= q.limit/2
		f.kept = f.kept || whole || q.refill.known() // or it fills up as it says
	}
	if current {
		f.owed = 0
	}
	if q.closes(r.now) && !f.until.After(r.now) {
		f.heard, f.least, f.until, f.served = r.now, q.early.Sub(r.now), q.reset, 0
	}
}

// contradict is told of a request that was served while the word that nothing remains
// held requests up, and what its answer says of the axis.
func (q *axis) contradict(said *ratelimitheader.Axis, r reading, trip time.Duration) {
	f := &q.belief
	if !r.sent.Before(f.heard) && (said == nil || said.Remaining == 0) {
		f.contradict(q.allowed(r.now, trip))
		q.silent = q.silent || f.wrong
	}
}

// allowed is how many may be served since the claim was made if the quota is one that
// fills up until the reset: what has filled by then has been nothing before.
func (q *axis) allowed(now time.Time, trip time.Duration) float64 {
	f := &q.belief
	switch {
	case q.refill.never, q.limit == 0:
		return 0
	case f.least <= 0:
		return math.Inf(1) // or all of it at any moment
	}
	return float64(q.limit) * float64(now.Sub(f.heard)+trip) / float64(f.least)
}
