package quota

import "time"

// trial finds out which part of the time to an inexact reset calls must wait.
type trial struct {
	part     float64   // of the time from the newest response to the reset
	waits    int64     // that must end with a success before the part is halved; maxLimit: none has ended so
	patience int64     // their number after the last rejection; 0: none
	endsBy   time.Time // the window, of which calls have waited a part only, ends by then; zero or past: unknown
	first    time.Time // when the first request after a reset was sent; zero: none was
}

// initialPart is the part of the time until an inexact reset that calls wait at first, if only rejections show it. Of one that
// responses show it is all, because some servers ban a client that sends a request too early. But a limit of 1 may be a bucket that refills
// before, so half of the part is tried after two waits. Each rejection of that makes the waits until the next try probeFactor times more.
const initialPart = 0.25

// test learns the part from the result of the first request after a reset.
func (t *trial) test(sent time.Time, a *Response) {
	switch {
	// Only the first request after a wait for a part shows whether that part was long enough.
	case !sent.Equal(t.first) || t.endsBy.IsZero():
	case a.served():
		t.endsBy = time.Time{}
		if t.waits--; t.waits < 0 {
			t.part /= 2
		}
	case a.rejected() && t.part < 1:
		t.part = min(2*t.part+initialPart/4, 1)
		t.patience = min(probeFactor*t.patience, maxLimit)
		t.waits = t.patience
	}
}
