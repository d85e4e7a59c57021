package quota

import (
	"math"
	"time"
)

// costs is what a dimension that counts tokens knows of estimates (Request.Cost). A request takes its
// estimate from the quota until a response shows what remains. Responses also show which share of their
// estimates requests take, and later ones count that share of theirs.
type costs struct {
	owed    int64     // estimates of the requests that were sent after the one that showed what remains
	shownBy time.Time // when the request was sent that showed what remains
	upTo    int64     // bucket.spent when that one was sent, or when the window began
	share   float64   // what requests took of their estimates; 0 until a response shows it
	samples float64   // of share
}

// maxSamples is how many of the last responses decide on the share. maxShare bounds it, because others may use
// the quota too.
const (
	maxSamples = 8
	maxShare   = 2
)

// expect returns what requests with such estimates take together.
func (c *costs) expect(estimates int64) int64 {
	if c.samples == 0 {
		return estimates
	}
	return int64(math.Ceil(float64(estimates) * c.share))
}

// giveBack returns the estimate of a request that took nothing, unless a later response or a reset has done so.
func (b *bucket) giveBack(f *flight) {
	last := f.spent == b.spent
	if last {
		b.spent -= f.cost
	}
	for i := range b.dims {
		switch d := &b.dims[i]; {
		case !d.costed:
		case f.spent <= d.upTo:
			d.upTo = min(d.upTo, b.spent)
		case last:
			d.owed -= f.cost
		default: // responses of the requests after it show what they took without it
			d.owed, d.upTo = d.owed-f.cost, d.upTo+f.cost
		}
	}
}

// learnCost learns the share, before the dimension takes the observation. A rejected request took nothing.
func (d *dimension) learnCost(o *observation) {
	estimates, permitted := o.spent-d.upTo, o.spent != 0
	if !permitted { // it was sent before a quota was known, and so were those before it
		estimates = o.cost
	}
	switch {
	case !d.costed || !o.own:
		return
	case !o.rejected && d.version > 0 && estimates > 0 && o.sent.After(d.shownBy):
		used := float64(d.remaining-o.field.Remaining) + d.gained(o)
		d.samples = min(d.samples+1, maxSamples)
		d.share += (min(max(used/float64(estimates), 0), maxShare) - d.share) / d.samples
	}
	d.shownBy = later(d.shownBy, o.sent)
	if permitted {
		d.owed, d.upTo = o.after, o.spent
	}
}

// gained returns what a token bucket has gained since the last observation. Its reset is when it is full.
func (d *dimension) gained(o *observation) float64 {
	if d.refill() == 0 && !o.end.early.After(d.end.reset) {
		return 0
	}
	rate := float64(d.limit-o.field.Remaining) / o.end.reset.Sub(o.now).Seconds()
	return max(rate*o.now.Sub(d.at).Seconds(), 0)
}
