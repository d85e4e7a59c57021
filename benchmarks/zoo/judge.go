package zoo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Criterion is a rule that each draw, or nearly each draw, keeps.
type Criterion string

// The criteria. A window is Limit.refill: the time in which a limit grants all of its units.
const (
	// AboveBare: served at least 0.95 × bare's - 2. It applies to each draw. If workers meet quotas of
	// paths or models, the oracle's figure counts if it is less: a worker that waits for one quota
	// makes no call of another one.
	AboveBare Criterion = "served/bare"

	// NearOracle: served at least 0.95 × the oracle's - 2, in 98 % of the draws to which it applies:
	// each response tells limit, remaining and reset of each limit, and truly. It does not apply
	//   - to Concurrency limits, which have neither a remaining count for a time nor a reset;
	//   - to quotas of models, because no response says which requests share them;
	//   - if the unit of the reset is more than a tenth of the window: a client that waits until the
	//     reset that it gets loses more than the criterion permits;
	//   - beside other failures, with which the oracle does not deal.
	NearOracle Criterion = "served/oracle"

	// FewWhereAllTell: at most 2 rejections a window and process + 20, or + the first flight if that
	// is more. Responses tell everything, as for NearOracle, but the unit of the reset is no
	// matter: a client that waits too long is not rejected. Counted by process, because a process
	// cannot know what another one has just taken. It does not apply
	//   - to limits that grant units one by one (all but a FixedWindow) if processes or other
	//     clients compete for each: there is no moment at which all of them learn what is left;
	//   - to such limits of Tokens: what is left is never known to suffice for the next call.
	FewWhereAllTell Criterion = "rejected/all-tell"

	// FewWhereRejectionsTell: at most the first flight, and in each window 4 rejections a process and
	// the calls of one response time, which are sent before a rejection arrives. Rejections tell limit, remaining
	// and reset, or a right Retry-After; or all responses tell, but FewWhereAllTell does not apply. It
	// does not apply to Concurrency limits, which have no window, and to quotas of models.
	FewWhereRejectionsTell Criterion = "rejected/rejections"

	// FewBesideBare: at most 3.6 × bare's rejections + 2. It applies to each draw.
	FewBesideBare Criterion = "rejected/bare"
)

// Criteria returns all criteria.
func Criteria() []Criterion {
	return []Criterion{AboveBare, NearOracle, FewWhereAllTell, FewWhereRejectionsTell, FewBesideBare}
}

// Miss is a criterion that a trial does not keep.
type Miss struct {
	Criterion Criterion
	Got       int
	Want      float64
}

func (m Miss) String() string { return fmt.Sprintf("%s %d, want %.0f", m.Criterion, m.Got, m.Want) }

// Judge returns the criteria that the trial misses.
func (t Trial) Judge() (misses []Miss) {
	for _, c := range Criteria() {
		if !t.applies(c) {
			continue
		}
		got, want, ok := t.compare(c)
		if !ok {
			misses = append(misses, Miss{c, got, want})
		}
	}
	return misses
}

// compare compares a figure with the bound of a criterion that applies.
func (t Trial) compare(c Criterion) (got int, want float64, ok bool) {
	const share, calls = 0.95, 2
	switch c {
	case AboveBare:
		bare := t.Bare.Served
		if t.Load.Kind == Workers && t.split() {
			bare = min(bare, t.Oracle.Served)
		}
		got, want = t.Ours.Served, share*float64(bare)-calls
		return got, want, float64(got) >= want
	case NearOracle:
		got, want = t.Ours.Served, share*float64(t.Oracle.Served)-calls
		return got, want, float64(got) >= want
	case FewWhereAllTell:
		want = 2*t.windows()*float64(t.Load.Processes) + max(20, float64(t.firstFlight()))
	case FewWhereRejectionsTell:
		want = float64(t.firstFlight()) + t.windows()*(4*float64(t.Load.Processes)+float64(t.Load.inFlight()))
	case FewBesideBare:
		want = 3.6*float64(t.Bare.Rejected) + 2
	}
	got = t.Ours.Rejected
	return got, want, float64(got) <= want
}

// firstFlight is the number of calls that are sent before a client can know more. Of a burst at the
// start, those count that a quota rejects. One process knows how many it has sent, if all share the quota.
func (d Draw) firstFlight() int {
	first := d.Load.First
	if d.Load.Processes == 1 && d.Others == 0 && !d.split() {
		first = 0
		for _, l := range d.Limits {
			first = max(first, d.Load.First-int(float64(l.Capacity())/d.unitsOf(l)))
		}
	}
	return d.Load.firstFlight() + first
}

// applies reports whether the criterion applies to the draw.
func (d Draw) applies(c Criterion) bool {
	switch c {
	case AboveBare, FewBesideBare:
		return true
	case NearOracle:
		return d.tellsAll() && d.exact() && d.Trouble == Trouble{}
	case FewWhereAllTell:
		return d.tellsAll() && d.foreseeable()
	case FewWhereRejectionsTell:
		return d.rejectionsTell() && !d.applies(FewWhereAllTell)
	}
	return false
}

// tellsAll reports whether each response tells limit, remaining and reset of each limit, and truly.
func (d Draw) tellsAll() bool {
	return slices.Contains([]Says{SaysAll, SaysCached, SaysShared}, d.Says) && d.dialectTells()
}

// dialectTells reports whether the headers, where they are sent, tell everything.
func (d Draw) dialectTells() bool {
	l := d.dialect()
	return !l.Blind && (len(d.Limits) <= 1 || l.Many) && !d.hasUntold() &&
		!slices.ContainsFunc(d.Limits, func(l limiter.Limit) bool { return l.Secret })
}

// hasUntold reports whether a limit is of a kind that no response can tell a client.
func (d Draw) hasUntold() bool {
	return slices.ContainsFunc(d.Limits, func(l limiter.Limit) bool {
		return l.Kind == limiter.Concurrency || l.Split == limiter.ByModel
	})
}

// exact reports whether the unit of resets is at most a tenth of each window.
func (d Draw) exact() bool {
	return !slices.ContainsFunc(d.Limits, func(l limiter.Limit) bool { return d.dialect().Unit > l.Refill()/10 })
}

// foreseeable reports whether a client can know that its next request is permitted.
func (d Draw) foreseeable() bool {
	return !slices.ContainsFunc(d.Limits, func(l limiter.Limit) bool {
		return l.Continuous() && (d.Load.Processes > 1 || d.Others > 0 || l.Unit == limiter.Tokens)
	})
}

// rejectionsTell reports whether rejections tell how long the quota is exhausted.
func (d Draw) rejectionsTell() bool {
	if d.hasUntold() {
		return false
	}
	switch d.Says {
	case SaysAll, SaysCached, SaysShared, SaysRejections:
		return d.dialectTells() || d.Wait.honest()
	case SaysNoReset, SaysWait:
		return d.Wait.honest()
	default:
		return false
	}
}

// split reports whether a limit is one of each path or model.
func (d Draw) split() bool {
	return slices.ContainsFunc(d.Limits, func(l limiter.Limit) bool { return l.Split != limiter.All })
}

// windows is the number of windows in which the calls find the limits, of all limits and keys.
func (d Draw) windows() (n float64) {
	for _, l := range d.Limits {
		n += (math.Ceil(float64(d.Length)/float64(l.Refill())) + 1) * float64(d.keys(l))
	}
	return n
}

// Line is one line that repeats a trial and shows its figures and misses.
func (t Trial) Line() string {
	misses := t.Judge()
	names := make([]string, len(misses))
	for i, m := range misses {
		names[i] = m.String()
	}
	return fmt.Sprintf("-seed %d -zoo-draw %d: served %d/%d/%d, rejected %d/%d/%d (bare/oracle/ours): %s | %s | %v",
		t.Seed, t.Number, t.Bare.Served, t.Oracle.Served, t.Ours.Served, t.Bare.Rejected, t.Oracle.Rejected, t.Ours.Rejected,
		cmp.Or(strings.Join(names, "; "), "holds"), t.Family(), t.Draw)
}

// Summarize lists the misses of trials by criterion, and then by family, most misses first. Before them it has the gain (the mean
// of the ratio of calls that are served, less a bare client's) and the rejections ÷ a bare client's, of all draws together.
func Summarize(trials []Trial) string {
	missed, rejected, ofBare, gain := 0, 0, 0, 0.0
	applied, misses := map[Criterion]int{}, map[Criterion]int{}
	draws, missesOf := map[string]int{}, map[string]int{} // by family
	type familyMiss struct {
		family string
		Criterion
	}
	byCriterion := map[familyMiss]int{}
	for _, t := range trials {
		gain += float64(t.Ours.Served-t.Bare.Served) / float64(max(t.Bare.Calls, 1)*len(trials))
		rejected, ofBare = rejected+t.Ours.Rejected, ofBare+t.Bare.Rejected
		family := t.Family()
		draws[family]++
		for _, c := range Criteria() {
			if t.applies(c) {
				applied[c]++
			}
		}
		all := t.Judge()
		if len(all) > 0 {
			missed++
		}
		for _, m := range all {
			misses[m.Criterion]++
			missesOf[family]++
			byCriterion[familyMiss{family, m.Criterion}]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d draws, %d with a miss\n", len(trials), missed)
	fmt.Fprintf(&b, "beside a bare client: %+.4f of the calls served, %.3f of its rejections\n", gain, float64(rejected)/float64(max(ofBare, 1)))
	for _, c := range Criteria() {
		fmt.Fprintf(&b, "%-22s %4d of %4d missed (%.1f %%)\n", c, misses[c], applied[c], 100*float64(misses[c])/float64(max(applied[c], 1)))
	}
	families := slices.SortedFunc(maps.Keys(missesOf), func(a, b string) int { return cmp.Or(missesOf[b]-missesOf[a], cmp.Compare(a, b)) })
	for _, family := range families {
		fmt.Fprintf(&b, "%-36s of %3d:", family, draws[family])
		for _, c := range Criteria() {
			if n := byCriterion[familyMiss{family, c}]; n > 0 {
				fmt.Fprintf(&b, "  %s %d", c, n)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// patience is how long a call of the oracle waits for units at most: as long as a call of this
// library by default.
const patience = time.Minute

// oracle is a client of all processes that knows the server's counters: a call waits in the order
// of the calls of its path and model until its units are there, and is never rejected.
type oracle struct {
	server *server

	mu    sync.Mutex
	heads map[[2]int]chan struct{} // holds the first call of each queue; the others wait to send, in their order
}

// client is the oracle of a process.
type client struct {
	*oracle
	base http.RoundTripper
}

// Do implements peers.Client.
func (o client) Do(req *http.Request) (*http.Response, error) {
	c := o.server.newCall(fleet.CallID(req.Context()))
	most := o.patience(req, c)
	if most <= 0 {
		return nil, http.ErrHandlerTimeout
	}
	waits, cancel := context.WithTimeout(req.Context(), most)
	defer cancel()
	key := o.queue(c)
	head := o.head(key)
	select {
	case head <- struct{}{}:
	case <-waits.Done():
		return nil, waits.Err()
	}
	for wait := o.grant(c); wait > 0; wait = o.grant(c) {
		if err := sleep.Context(waits, wait+time.Duration(key[0]+key[1])*apart); err != nil {
			<-head
			return nil, err
		}
	}
	<-head
	return o.base.RoundTrip(req)
}

// head is the place of the first call of a queue.
func (o *oracle) head(key [2]int) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heads[key] == nil {
		o.heads[key] = make(chan struct{}, 1)
	}
	return o.heads[key]
}

// patience is the time after which a call would get its response too late.
func (o *oracle) patience(req *http.Request, c call) time.Duration {
	most := patience
	if deadline, ok := req.Context().Deadline(); ok {
		v := visit{call: c, attempt: 1, now: clock()}
		most = min(most, time.Until(deadline)-o.server.duration(v)-apart)
	}
	return most
}

// queue is the queue of a call. Calls that share all limits share it.
func (o *oracle) queue(c call) (key [2]int) {
	for i, l := range o.server.Limits {
		key[i] = c.key(l)
	}
	return key
}

// grant takes the units of the call, or returns how long the call must wait.
func (o *oracle) grant(c call) time.Duration {
	s, now := o.server, clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.earliest(c, now); at > now {
		return at - now
	}
	v := visit{call: c, attempt: 1, now: now}
	s.take(c, now, now+s.duration(v))
	s.granted[c.id] = true
	return 0
}
