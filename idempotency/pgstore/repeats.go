package pgstore

import "sync/atomic"

// repeats guesses whether the next claim is for what is finished, by what those before
// it were: as a processor guesses branches. Who asks again is answered by one SELECT if
// the guess is right, and a new claim has a round trip more if it is wrong. So it must
// be wrong twice to change.
type repeats struct{ counter atomic.Int32 }

func (r *repeats) likely() bool { return r.counter.Load() >= 2 }

// count is told what a claim was.
func (r *repeats) count(repeat bool) {
	// Of claims at once one may be lost, which does no harm, and where all are the
	// same nothing is written.
	switch c := r.counter.Load(); {
	case repeat && c < 3:
		r.counter.Store(c + 1)
	case !repeat && c > 0:
		r.counter.Store(c - 1)
	}
}
