package pgstore

import "sync/atomic"

// replayPredictor predicts from the claims before whether the next claim is for a new
// key, like a processor's branch predictor. A completed key costs one read if the
// prediction is right, and a new key saves a round trip. The prediction changes after
// two errors. The zero value predicts a completed key.
type replayPredictor struct{ counter atomic.Int32 }

func (r *replayPredictor) newKey() bool { return r.counter.Load() >= 2 }

// record counts the result of a claim. Two concurrent calls may count as one.
func (r *replayPredictor) record(newKey bool) {
	switch c := r.counter.Load(); {
	case newKey && c < 3:
		r.counter.Store(c + 1)
	case !newKey && c > 0:
		r.counter.Store(c - 1)
	}
}
