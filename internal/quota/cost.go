package quota

import (
	"math"
	"time"
)

// load is what has been sent: the requests in flight, and the estimates (Request.Cost) of all, which order them too. A request takes
// its estimate from a quota of tokens until a response shows what remains.
type load struct{ inflight, spent int64 }

// costs is what a dimension that counts tokens knows of estimates. Responses also show which share of their estimates requests take,
// and later ones count that share of theirs.
type costs struct {
	upTo    int64     // load.spent of the request that showed what remains, or when the window began
	back    int64     // estimates of later requests that took nothing
	shownBy time.Time // when the request was sent that showed what remains

	took, estimated float64 // what late requests took, and their estimates
}

const (
	// The server may count concurrent requests in another order than they were sent, so the first response of a burst may show what
	// all of them took, or one. The sums are right when the last has come, and those of old requests fade.
	costsFade = 7. / 8

	maxShare = 2 // others may use the quota too
)

// owed returns the estimates of which no response has shown what they took.
func (c *costs) owed(spent int64) int64 { return max(spent-c.upTo-c.back, 0) }

// expect returns what requests with such estimates take together.
func (c *costs) expect(estimates int64) int64 {
	if c.estimated == 0 {
		return estimates
	}
	return int64(math.Ceil(float64(estimates) * min(c.took/c.estimated, maxShare)))
}

// giveBack returns the estimate of a request that took nothing, unless a later response or a reset has done so.
func (b *bucket) giveBack(f *flight) {
	last := f.spent == b.spent
	if last { // as if it had not been sent: the response of an earlier one forgets what was given back
		b.spent -= f.cost
	}
	for i := range b.dims {
		switch d := &b.dims[i]; {
		case last:
			d.upTo = min(d.upTo, b.spent)
		case f.spent > d.upTo:
			d.back += f.cost
		}
	}
}

// learnCost learns the share, before the dimension takes the observation. A rejected request took nothing, and one without an
// estimate teaches nothing.
func (d *dimension) learnCost(o *observation) {
	estimates := d.owed(o.spent)
	if o.spent == 0 && o.sent.After(d.shownBy) { // it was sent before a quota was known, and so were those before it
		estimates = o.cost
	}
	used := float64(d.remaining-o.field.Remaining) + d.gained(o)
	teaches := !o.rejected && o.cost > 0 && d.version > 0
	if teaches && used >= 0 { // less than 0: of a new window
		d.took, d.estimated = costsFade*d.took+used, costsFade*d.estimated+float64(estimates)
	}
	d.shownBy = later(d.shownBy, o.sent)
	if o.spent > d.upTo {
		d.upTo, d.back = o.spent, 0
	}
}

// gained returns what a token bucket has gained since the last observation. Its reset is when it is full.
func (d *dimension) gained(o *observation) float64 {
	if d.refill() == 0 {
		return 0
	}
	rate := float64(d.limit-o.field.Remaining) / o.end.reset.Sub(o.now).Seconds()
	return max(rate*o.now.Sub(d.at).Seconds(), 0)
}
