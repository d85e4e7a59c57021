package resilienthttp

import (
	"math/rand/v2"
	"sync"
	"time"
)

// worth is whether copies of a scope's requests have been worth their while: most of them
// were answered first. Where all answers are late together, because requests queue up, or
// take their time anyway, the copies lose, and are more of what the others wait for. So
// where they are not, one is sent at a time, and when one has lost, the next waits.
type worth struct {
	mu     sync.Mutex
	begun  bool
	credit int // rises with wins and falls with losses; more than 0: they are
	losses int // in a row
	trying bool
	until  time.Time // no other try before
}

const (
	mostCredit = 8
	winCredit  = 2
	firstPause = 10 * time.Second
	mostPauses = 8
)

// admit reports whether a copy may be sent. They begin with this credit, and as long as
// they are not worth their while, that is the chance of a try.
func (w *worth) admit(credit int, chance float64, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun {
		w.begun, w.credit = true, credit
	}
	if w.credit > 0 {
		return true
	}
	if w.trying || now.Before(w.until) || rand.Float64() >= chance {
		return false
	}
	w.trying = true
	return true
}

// cancel is told of a copy that has shown nothing: it was not sent, or nobody won.
func (w *worth) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trying = false
}

// done tells whether a copy was answered first.
func (w *worth) done(won bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trying = false
	if won {
		w.credit, w.losses = min(w.credit+winCredit, mostCredit), 0
		return
	}
	w.credit = max(w.credit-1, 0)
	if w.losses++; w.credit == 0 {
		pause := firstPause * time.Duration(min(1<<min(w.losses-1, 8), mostPauses))
		w.until = now.Add(pause + rand.N(pause))
	}
}
