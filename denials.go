package resilienthttp

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// denials are 429s that came although the wait which the last one asked for was
// over. Somebody else uses the quota too, and the server does not know that:
// when a thousand clients share one, each of them is told to come back in a
// second. So from the second such denial in a row each one doubles the wait, and
// every fourth answer halves it again, until about a fifth of what is sent is
// denied, and not most.
type denials struct {
	known atomic.Bool // there was one, and it is not forgotten

	mu    sync.Mutex
	level float64   // denials in a row
	until time.Time // when the wait of the last one is over
}

const (
	mostDoublings = 5
	mostDoubled   = 30 * time.Second // a wait is not made longer than this
)

// again is how long a 429 closes that asks for a wait. One that was on its way
// before the last wait was over tells nothing new. Nor does one that asks for
// none: that is what the rest of a second is called by a server that rounds down,
// and the wait before it was too short by as much.
func (d *denials) again(sent, now time.Time, asked time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known.Swap(true) && asked > 0 && !sent.Before(d.until) {
		d.level = min(d.level+1, mostDoublings+1)
	}
	wait := asked
	if d.level > 1 && asked > 0 && asked < mostDoubled {
		wait = time.Duration(min(float64(asked)*math.Exp2(d.level-1), float64(mostDoubled)))
		wait += rand.N(wait/4 + 1)
	}
	d.until = later(d.until, now.Add(wait))
	return wait
}

// relent takes a part of a doubling back, since a request was let through.
func (d *denials) relent() {
	if !d.known.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.level = max(d.level-0.25, 0); d.level == 0 {
		d.known.Store(false)
		d.until = time.Time{}
	}
}
