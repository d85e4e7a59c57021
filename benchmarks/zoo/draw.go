// Package zoo draws rate limiters and the calls that meet them, and compares a library with a bare
// client and with an oracle, which knows the server's counters, in virtual time.
//
// A [Draw] has one or two limits of a kind (windows, buckets, requests at once), headers of a
// dialect that tell all, a part or something wrong, rejections with a status and a Retry-After, a
// load, and at times other failures. [New] draws it from a seed and a number. [Draw.Try] runs it,
// and [Trial.Judge] compares the figures with each [Criterion].
//
// Two runs of a bare client or of the oracle have the same figures: no two events of the model have
// the same time. A library's jitter is not seeded, so its figures differ by chance.
package zoo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// Says is what responses tell about the quota.
type Says string

// What responses tell. SaysAll, SaysCached and SaysShared are true: each response has limit,
// remaining and reset.
const (
	SaysAll        Says = "all"
	SaysCached     Says = "cached"     // the same, but most successes have the headers of an older one, with an Age
	SaysShared     Says = "shared"     // the same, and other clients use a part of the quota
	SaysRejections Says = "rejections" // limit, remaining and reset, only on rejections
	SaysNoReset    Says = "no-reset"   // limit and remaining
	SaysLate       Says = "late"       // the remaining count is old
	SaysWrong      Says = "wrong"      // see Wrong
	SaysWait       Says = "wait"       // only a Retry-After on rejections, which is right
	SaysNothing    Says = "nothing"    // at most a Retry-After on rejections, which is not right
)

func allSays() []Says {
	return []Says{SaysAll, SaysCached, SaysShared, SaysRejections, SaysNoReset, SaysLate, SaysWrong, SaysWait, SaysNothing}
}

// Wrong is what is wrong with the headers of SaysWrong.
type Wrong string

// The wrong headers.
const (
	WrongRemaining0 Wrong = "remaining 0"
	WrongNegative   Wrong = "remaining -1"
	WrongLimit0     Wrong = "limit 0, remaining 0" // of a Concurrency limit: only on rejections
	WrongPast       Wrong = "reset in the past"
	WrongHour       Wrong = "reset an hour off"
)

// Wait is a form of Retry-After.
type Wait string

// The forms of Retry-After.
const (
	WaitSeconds Wait = "seconds"
	WaitDate    Wait = "date"
	WaitMillis  Wait = "ms" // Retry-After-Ms or X-Amz-Retry-After
	WaitZero    Wait = "0"
	WaitNone    Wait = "none"
	WaitShort   Wait = "too short"
)

// honest reports whether the form says how long the quota is exhausted.
func (w Wait) honest() bool { return w == WaitSeconds || w == WaitDate || w == WaitMillis }

// Penalty is what a rejection does beside rejecting.
type Penalty string

// The penalties.
const (
	NoPenalty Penalty = ""
	Counts    Penalty = "rejections count"
	Locks     Penalty = "rejections lock for 30s"
)

const lockTime = 30 * time.Second

// Trouble is a failure of the server beside its limits.
type Trouble struct {
	Errors     float64 // ratio of requests that get 500 after they were counted
	Slow       float64 // ratio of responses that take SlowBy longer
	SlowBy     time.Duration
	DownAt     time.Duration // since the start; connections are refused for DownFor
	DownFor    time.Duration
	underneath string // description; "": no trouble
}

// Draw is one server with its limits, and the calls that it gets.
type Draw struct {
	Seed   uint64
	Number int

	Limits  []limiter.Limit
	Says    Says
	Wrong   Wrong
	Dialect string
	Next    bool          // the reset of an exhausted quota is when the next unit comes; default: when all are available
	Lag     time.Duration // of SaysLate
	Others  float64       // ratio of the first limit that other clients ask for
	Cached  float64       // ratio of successes with the headers of an older one
	Skew    time.Duration // of the server's clock
	NoDate  bool

	Status  int // of a rejection
	Wait    Wait
	Penalty Penalty

	Load    Load
	Trouble Trouble
	Phase   time.Duration // the start of the calls, since the start of the model's clock
	Length  time.Duration // calls start in this time
}

// New returns the draw with the number, always the same for a seed.
func New(seed uint64, number int) Draw {
	d := &drawer{Dice: fleet.Dice{Rand: rand.New(rand.NewPCG(seed, uint64(number)+1))}}
	d.Seed, d.Number = seed, number
	d.limits()
	d.speech()
	d.rejection()
	d.load()
	d.trouble()
	d.begin()
	return d.Draw
}

// drawer draws one Draw.
type drawer struct {
	Draw
	fleet.Dice
}

func (d *drawer) count(low, high float64) int { return max(int(math.Round(d.Log(low, high))), 1) }

func (d *drawer) span(low, high time.Duration) time.Duration {
	return time.Duration(d.Log(float64(low), float64(high)))
}

const (
	maxQuota = 10_000
	day      = 24 * time.Hour
)

// limits draws one or two limits. The first one names the family.
func (d *drawer) limits() {
	kind := fleet.OneOf(d.Dice, limiter.Kinds()...)
	if kind == limiter.Concurrency {
		d.Says = fleet.OneOf(d.Dice, SaysWait, SaysWrong, SaysNothing)
	} else {
		d.Says = fleet.OneOf(d.Dice, append(allSays(), SaysAll, SaysAll)...)
	}
	d.Load.Paths, d.Load.Models, d.Load.Tokens = 1, 1, 1
	if d.Likely(0.6) {
		d.Load.Paths = 2 + d.IntN(19)
	}
	first := d.limit(kind)
	d.Limits = []limiter.Limit{first}
	if kind == limiter.Concurrency {
		return
	}
	switch c := d.Float64(); {
	case c < 0.10 && d.Says != SaysShared:
		d.split(fleet.OneOf(d.Dice, limiter.ByPath, limiter.ByModel), false)
	case c < 0.17 && d.Says != SaysShared:
		d.split(fleet.OneOf(d.Dice, limiter.ByPath, limiter.ByModel), true)
	case c < 0.27:
		d.hourly()
	case c < 0.34:
		d.tokens()
	case c < 0.41 && d.Says != SaysShared:
		d.secondary()
	}
}

func (d *drawer) limit(kind limiter.Kind) limiter.Limit {
	l := limiter.Limit{Name: "requests", Unit: limiter.Requests, Kind: kind, Quota: d.count(1, maxQuota)}
	l.Window = d.span(time.Second, day).Round(time.Second)
	switch kind {
	case limiter.FixedWindow:
		l.Clock = d.Likely(0.5)
	case limiter.TokenBucket, limiter.GCRA:
		l.Burst = d.count(1, float64(l.Quota))
	case limiter.Concurrency:
		l.Quota = d.count(1, 200)
	case limiter.SlidingWindow:
	}
	return l
}

// split makes the limit one of each path or model, with a global one beside it or not.
func (d *drawer) split(by limiter.Split, global bool) {
	l := d.Limits[0]
	keys := &d.Load.Paths
	if by == limiter.ByModel {
		keys = &d.Load.Models
	}
	if *keys == 1 {
		*keys = 2 + d.IntN(4)
	}
	own := l
	own.Name, own.Split = string(by), by
	if !global {
		d.Limits[0] = own
		return
	}
	own.Quota = max(int(float64(l.Quota)/float64(*keys)*d.Log(1.2, 3)), 1)
	own.Burst = min(max(int(float64(l.Burst)/float64(*keys)*2), 1), own.Quota)
	d.Limits = []limiter.Limit{l, own}
}

// hourly adds a limit of a longer time and a lower rate.
func (d *drawer) hourly() {
	short := d.Limits[0]
	short.Window = min(short.Window, time.Hour)
	long := short
	short.Name, long.Name = "burst", "long"
	long.Kind, long.Clock = limiter.FixedWindow, true
	factor := d.Log(5, 100)
	long.Window = (time.Duration(factor * float64(short.Window))).Round(time.Second)
	if d.Likely(0.3) {
		long.Window = day
		factor = float64(day) / float64(short.Window)
	}
	long.Quota = max(int(float64(short.Quota)*factor*d.Log(0.2, 0.9)), 1)
	d.Limits = []limiter.Limit{short, long}
}

// tokens adds a limit of tokens, which are exhausted before or after the requests.
func (d *drawer) tokens() {
	d.Load.Tokens = d.count(20, 2000)
	l := d.Limits[0]
	l.Name, l.Unit = "tokens", limiter.Tokens
	cost := d.Log(0.3, 2) * float64(d.Load.Tokens)
	l.Quota = max(int(float64(l.Quota)*cost), maxCost*d.Load.Tokens)
	l.Burst = max(int(float64(l.Burst)*cost), maxCost*d.Load.Tokens)
	d.Limits = append(d.Limits, l)
}

// secondary adds a limit that no header shows, below one that is never exhausted.
func (d *drawer) secondary() {
	far := d.Limits[0]
	d.Limits[0].Secret = true
	factor := d.Log(10, 500)
	far.Quota, far.Burst = int(float64(far.Quota)*factor), int(float64(far.Burst)*factor)
	d.Limits = []limiter.Limit{far, d.Limits[0]}
}

// speech draws what the responses say.
func (d *drawer) speech() {
	switch d.Says {
	case SaysWrong:
		d.Wrong = fleet.OneOf(d.Dice, WrongRemaining0, WrongNegative, WrongLimit0, WrongPast, WrongHour)
		if d.Limits[0].Kind == limiter.Concurrency {
			d.Wrong = WrongLimit0
		}
	case SaysLate:
		d.Lag = d.span(100*time.Millisecond, 10*time.Second)
	case SaysShared:
		d.Others = d.Log(0.05, 0.6)
	case SaysCached:
		d.Cached = 0.5 + 0.4*d.Float64()
	default:
	}
	d.Next = d.Likely(0.3)
	d.Skew = fleet.OneOf(d.Dice, 0, 0, 0, time.Hour, -time.Hour, 3*time.Second)
	if d.Skew == 0 {
		d.NoDate = d.Likely(0.2)
	}
	if d.Says == SaysWait || d.Says == SaysNothing {
		return
	}
	fit := slices.DeleteFunc(limiter.Dialects(), func(l limiter.Dialect) bool { return !d.fits(l) })
	if len(d.shownLimits()) > 1 && d.Likely(0.7) {
		fit = slices.DeleteFunc(fit, func(l limiter.Dialect) bool { return !l.Many })
	}
	d.Dialect = fleet.OneOf(d.Dice, fit...).Name
	if d.Dialect == "shopify" { // a full bucket is empty after 20 s
		d.Limits[0].Window = 20 * time.Second * time.Duration(d.Limits[0].Quota) / time.Duration(d.Limits[0].Burst)
	}
}

// fits reports whether servers with such limits write the dialect.
func (d *drawer) fits(l limiter.Dialect) bool {
	first := d.Limits[0]
	switch l.Name {
	case "shopify":
		return len(d.Limits) == 1 && first.Kind == limiter.TokenBucket && d.Wrong == "" && d.Says != SaysNoReset
	case "atlassian":
		return first.Kind == limiter.FixedWindow && first.Window >= 20*time.Minute
	case "x":
		return len(d.Limits) == 1 || d.Limits[1].Window == day && d.Limits[1].Name == "long"
	case "hubspot":
		return len(d.Limits) == 1 || d.Limits[1].Name == "long"
	case "openai", "azure", "anthropic":
		return len(d.Limits) == 1 || d.Limits[1].Unit == limiter.Tokens
	}
	return true
}

// rejection draws the rejections.
func (d *drawer) rejection() {
	d.Status = fleet.OneOf(d.Dice, http.StatusTooManyRequests, http.StatusTooManyRequests, http.StatusTooManyRequests,
		http.StatusServiceUnavailable, http.StatusForbidden, http.StatusBadRequest)
	switch d.Says {
	case SaysWait:
		d.Wait = fleet.OneOf(d.Dice, WaitSeconds, WaitSeconds, WaitDate, WaitMillis)
	case SaysNothing:
		d.Wait = fleet.OneOf(d.Dice, WaitNone, WaitNone, WaitZero, WaitShort)
	default:
		d.Wait = fleet.OneOf(d.Dice, WaitSeconds, WaitSeconds, WaitDate, WaitMillis, WaitZero, WaitNone, WaitNone, WaitShort)
	}
	if d.Limits[0].Kind != limiter.Concurrency {
		switch c := d.Float64(); {
		case c < 0.10:
			d.Penalty = Counts
		case c < 0.15:
			d.Penalty = Locks
		}
	}
}

// trouble draws other failures for 5 % of the draws.
func (d *drawer) trouble() {
	if !d.Likely(0.05) {
		return
	}
	t := &d.Trouble
	switch d.IntN(3) {
	case 0:
		t.Errors = d.Log(0.01, 0.2)
		t.underneath = fmt.Sprintf("%.2g of requests get 500", t.Errors)
	case 1:
		t.Slow, t.SlowBy = d.Log(0.01, 0.2), d.span(time.Second, 5*time.Second)
		t.underneath = fmt.Sprintf("%.2g of responses are %v slower", t.Slow, t.SlowBy.Round(time.Millisecond))
	default:
		t.DownAt = time.Duration(d.Float64() * float64(d.Length))
		t.DownFor = min(d.span(time.Second, 30*time.Second), d.Length/4)
		t.underneath = fmt.Sprintf("down for %v", t.DownFor.Round(time.Millisecond))
	}
}

// Family is the kind of limiter, what responses tell, and the kind of load.
func (d Draw) Family() string {
	return fmt.Sprintf("%s × %s × %s", d.drawnLimit().Kind, d.Says, d.Load.Kind)
}

// drawnLimit is the limit with the kind that was drawn: the secondary one if there is one.
func (d Draw) drawnLimit() limiter.Limit {
	if last := d.Limits[len(d.Limits)-1]; last.Secret {
		return last
	}
	return d.Limits[0]
}

// shownLimits are the limits that headers may show.
func (d Draw) shownLimits() []limiter.Limit {
	return slices.DeleteFunc(slices.Clone(d.Limits), func(l limiter.Limit) bool { return l.Secret })
}

func (d Draw) dialect() limiter.Dialect {
	i := slices.IndexFunc(limiter.Dialects(), func(l limiter.Dialect) bool { return l.Name == d.Dialect })
	if i < 0 {
		return limiter.Dialect{}
	}
	return limiter.Dialects()[i]
}

// perSecond is the mean rate of calls that the limits permit.
func (d Draw) perSecond() float64 {
	rate := math.Inf(1)
	for i, l := range d.Limits {
		r := l.PerSecond(d.Load.Service)
		r /= d.unitsOf(l)
		if i == 0 {
			r *= 1 - d.Others
		}
		rate = min(rate, r*float64(d.keys(l)))
	}
	return rate
}

// keys is the number of quotas of a limit.
func (d Draw) keys(l limiter.Limit) int {
	return map[limiter.Split]int{limiter.All: 1, limiter.ByPath: d.Load.Paths, limiter.ByModel: d.Load.Models}[l.Split]
}

// String describes the draw in one line.
func (d Draw) String() string {
	parts := make([]string, 0, 12)
	for _, l := range d.Limits {
		parts = append(parts, l.String())
	}
	says := "tells " + string(d.Says)
	if d.Dialect != "" {
		says += " (" + d.Dialect + ")"
	}
	if d.Wrong != "" {
		says += ": " + string(d.Wrong)
	}
	if d.Others > 0 {
		says += fmt.Sprintf(", others %.2g", d.Others)
	}
	if d.Lag > 0 {
		says += fmt.Sprintf(" by %v", d.Lag.Round(time.Millisecond))
	}
	if d.Skew != 0 {
		says += fmt.Sprintf(", clock %v", d.Skew)
	}
	if d.NoDate {
		says += ", no Date"
	}
	parts = append(parts, says, fmt.Sprintf("%d, Retry-After %s", d.Status, d.Wait))
	for _, more := range []string{string(d.Penalty), d.Load.String(), d.Trouble.underneath} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(append(parts, d.Length.Round(time.Millisecond).String()), "; ")
}
