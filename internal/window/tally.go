package window

import "time"

// Tally counts events in the window that ends now, and holds the line that a
// limit needs: an event is counted until it is exactly one window old, and
// never for less. Events of the same bucket leave together, with the last of
// them: so an event may be counted for up to a fifteenth of the window longer
// if others followed it closely, which is on the safe side of a limit.
//
// The zero value is ready for use. A Tally is not safe for concurrent use: the
// decision that rests on a Sum and the Add that follows from it have to be one
// anyway, under a lock of the owner's.
type Tally struct {
	// The window touches one bucket more than it has room for: the one that its
	// beginning lies in.
	ring [tallyBuckets + 1]tallyBucket
	last time.Duration
}

const tallyBuckets = 15

type tallyBucket struct {
	epoch  int64
	count  uint64
	newest time.Duration // when the last event of the bucket happened
}

// A Mark tells Undo where an event was counted. The zero Mark is one too: it
// says nothing of whether there was an event.
type Mark int64

// Add counts n events at the time now, or at the latest time that the Tally has
// seen, if that is later.
func (t *Tally) Add(now, length time.Duration, n uint64) Mark {
	t.last = max(t.last, now)
	length = max(length, MinLength)
	// Rounded up, so that the ring is never shorter than the window.
	e := int64(t.last / ((length-1)/tallyBuckets + 1))
	b := &t.ring[e%int64(len(t.ring))]
	if b.epoch != e {
		*b = tallyBucket{epoch: e}
	}
	b.count += n
	b.newest = t.last
	return Mark(e)
}

// Sum returns the number of events in the window that ends now, or at the
// latest time that the Tally has seen, if that is later.
func (t *Tally) Sum(now, length time.Duration) (n uint64) {
	now = max(t.last, now)
	length = max(length, MinLength)
	for i := range t.ring {
		// Written so that it does not overflow: both are not negative.
		if b := &t.ring[i]; now-b.newest < length {
			n += b.count
		}
	}
	return n
}

// Undo takes back n of the events that the Add which returned the mark has
// counted. If they have left the window already, or were taken back before,
// there is nothing to do: a Tally never counts less than nothing.
func (t *Tally) Undo(m Mark, n uint64) {
	b := &t.ring[int64(m)%int64(len(t.ring))]
	if b.epoch == int64(m) {
		b.count -= min(n, b.count)
	}
}
