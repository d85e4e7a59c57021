package quotastore

// windowSlots is the number of parts of a window. If Limit is larger than that, the
// takes of one part are counted together.
const windowSlots = 64

// window holds the takes of the last Window, the oldest first. Takes that are counted
// together count until the last of them leaves the window. So at most Limit units are
// taken in any Window, and up to a 64th less.
type window struct {
	slots []slot
	used  int64
}

type slot struct {
	last  int64 // the time of the slot's last take
	units int64
}

// expire removes the takes that have left the window. If the clock was set back, it
// moves the takes that are later than now to now.
func (w *window) expire(now int64, r *Rule) {
	expired := 0
	for expired < len(w.slots) && now-w.slots[expired].last >= int64(r.Window) {
		w.used -= w.slots[expired].units
		expired++
	}
	w.drop(expired)
	for i := len(w.slots) - 1; i >= 0 && w.slots[i].last > now; i-- {
		w.slots[i].last = now
	}
}

func (w *window) drop(n int) {
	if n > 0 {
		w.slots = append(w.slots[:0], w.slots[n:]...)
	}
}

// take does what bucket.take does.
func (w *window) take(now int64, want, minUnits int64, r *Rule) (taken int64, ok bool) {
	w.expire(now, r)
	left := w.left(r)
	switch {
	case want < 0:
		return w.giveBack(-want), true
	case left < minUnits:
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

// giveBack removes units from the oldest takes. It is unknown which take is returned,
// and this way the remaining ones count for long enough.
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

// left is negative if the rule has become smaller than what was taken.
func (w *window) left(r *Rule) int64 { return int64(r.Limit) - w.used }

// wait returns the time from now until so many units are left.
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
