package resilienthttp

import (
	"strings"
	"sync"
	"time"
)

// repetition is what makes records the same.
type repetition struct{ event, scope, what string }

const (
	repetitionTime   = 10 * time.Second
	mostRepetitions  = 10   // in that time
	mostKinds        = 1024 // of records, that are counted apart; all others are as one
	leftOutAtOnce    = 8    // are told of beside one record
	longestRepeating = 128  // bytes of a name that may be a stranger's
)

// repetitions counts the records that say the same. It is safe for concurrent use, and
// bounded. The zero value is ready for use.
type repetitions struct {
	mu    sync.Mutex
	kinds map[repetition]*repeating
	swept time.Time // when those that are over were last looked for
}

// repeating is how often the same was said since.
type repeating struct {
	since            time.Time
	written, leftOut int
}

// silenced is what was left out of records that are not written any more.
type silenced struct {
	repetition
	leftOut int
}

// admit reports whether a record is to be written, and how many like it were left out
// before; and of which others some were, whose time is over.
func (r *repetitions) admit(kind repetition, now time.Time) (leftOut int, write bool, silent []silenced) {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent = r.sweep(kind, now)
	k := r.kinds[kind]
	if k == nil {
		k = r.add(kind, now)
	}
	if now.Sub(k.since) >= repetitionTime {
		leftOut = k.leftOut
		*k = repeating{since: now}
	}
	if k.written >= mostRepetitions {
		k.leftOut++
		return 0, false, silent
	}
	k.written++
	return leftOut, true, silent
}

// add makes the count of a kind of records; beyond mostKinds it is that of all others.
func (r *repetitions) add(kind repetition, now time.Time) *repeating {
	if r.kinds == nil {
		r.kinds = make(map[repetition]*repeating)
	}
	if len(r.kinds) >= mostKinds || len(kind.scope) > longestRepeating {
		kind = repetition{event: kind.event, scope: "others"}
		if k := r.kinds[kind]; k != nil {
			return k
		}
	}
	kind.scope, kind.what = strings.Clone(kind.scope), strings.Clone(kind.what)
	k := &repeating{since: now}
	r.kinds[kind] = k
	return k
}

// sweep forgets the kinds whose time is over, save the one that is about to be written,
// and returns what was left out of them; the rest of what there is to tell, the next time.
func (r *repetitions) sweep(but repetition, now time.Time) (silent []silenced) {
	if now.Sub(r.swept) < time.Second {
		return nil
	}
	r.swept = now
	for kind, k := range r.kinds {
		if kind == but || now.Sub(k.since) < repetitionTime {
			continue
		}
		if k.leftOut > 0 {
			if len(silent) == leftOutAtOnce {
				r.swept = time.Time{}
				break
			}
			silent = append(silent, silenced{kind, k.leftOut})
		}
		delete(r.kinds, kind)
	}
	return silent
}
