package quotastore

// windowSlots is into how many parts a window is divided in which takes are counted
// together, if there can be more of them than that.
const windowSlots = 64

// window is what was taken in the last Window, the oldest first. Takes that are
// counted together count until the last of them has left the window: never more
// than Limit in any Window, and up to a 64th less.
type window struct {
	slots []slot
	used  int64
}

type slot struct {
	last  int64 // when the last of them was taken
	units int64
}

// expire forgets what has left the window. Where the clock has been set back,
// nothing is taken for later than now.
func (w *window) expire(now int64, r *Rule) {
	gone := 0
	for gone < len(w.slots) && now-w.slots[gone].last >= int64(r.Window) {
		w.used -= w.slots[gone].units
		gone++
	}
	w.drop(gone)
	for i := len(w.slots) - 1; i >= 0 && w.slots[i].last > now; i-- {
		w.slots[i].last = now
	}
}

func (w *window) drop(n int) {
	if n > 0 {
		w.slots = append(w.slots[:0], w.slots[n:]...)
	}
}

// take is bucket.take.
func (w *window) take(now int64, want, least int64, r *Rule) (taken int64, ok bool) {
	w.expire(now, r)
	left := w.left(r)
	switch {
	case want < 0:
		return w.giveBack(-want), true
	case left < least:
		return 0, false
	}
	taken = min(want, max(left, 0))
	if taken > 0 {
		w.add(now, taken, r)
	}
	return taken, true
}

func (w *window) add(now, units int64, r *Rule) {
	w.used += units
	if n := len(w.slots); n > 0 {
		newest := &w.slots[n-1]
		part := int64(r.Window) / windowSlots
		if newest.last == now || r.Limit > windowSlots && part > 0 && newest.last/part == now/part || n > windowSlots {
			newest.last, newest.units = now, newest.units+units
			return
		}
	}
	w.slots = append(w.slots, slot{now, units})
}

// giveBack takes from the oldest: nobody knows which it was, and those that remain
// then count for no shorter than they should.
func (w *window) giveBack(units int64) (taken int64) {
	empty := 0
	for i := range w.slots {
		n := min(units+taken, w.slots[i].units)
		w.slots[i].units -= n
		taken -= n
		if w.slots[i].units > 0 {
			break
		}
		empty++
	}
	w.used += taken
	w.drop(empty)
	return taken
}

// left may be negative when the rule has become a smaller one.
func (w *window) left(r *Rule) int64 { return int64(r.Limit) - w.used }

// wait is how long it takes from now until so many are there.
func (w *window) wait(now, units int64, r *Rule) int64 {
	missing := units - w.left(r)
	for i := 0; i < len(w.slots) && missing > 0; i++ {
		if missing -= w.slots[i].units; missing <= 0 {
			return w.slots[i].last + int64(r.Window) - now
		}
	}
	return 0
}

func (w *window) reset(now int64, r *Rule) int64 {
	if len(w.slots) == 0 {
		return 0
	}
	return w.slots[len(w.slots)-1].last + int64(r.Window) - now
}
