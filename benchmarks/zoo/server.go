package zoo

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// clock is the time since the epoch.
func clock() time.Duration { return time.Since(fleet.Epoch()) }

// server is the model of a server.
type server struct {
	Draw
	random  fleet.Chance
	dialect limiter.Dialect

	mu       sync.Mutex
	meters   []map[int]limiter.Meter // of each limit, by the key of its split
	history  map[limiter.Meter][]count
	cache    map[int]cached // by path
	others   time.Duration  // the next request of other clients
	locked   time.Duration  // all requests are rejected until then
	granted  map[int]bool   // calls, by id, of which the oracle has taken the units
	rejected int
}

// count is a remaining count of the past.
type count struct {
	at        time.Duration
	remaining int
}

// cached are headers of the past.
type cached struct {
	at     time.Duration
	header http.Header
}

func newServer(d Draw) *server {
	s := &server{
		Draw: d, random: d.chance(), dialect: d.dialect(),
		history: map[limiter.Meter][]count{}, cache: map[int]cached{}, granted: map[int]bool{}, others: math.MaxInt64,
	}
	for range d.Limits {
		s.meters = append(s.meters, map[int]limiter.Meter{})
	}
	if d.Others > 0 {
		s.others = d.Phase
	}
	return s
}

// of returns the meters of a call, in the order of the limits. The server is locked.
func (s *server) of(c call) []limiter.Meter {
	all := make([]limiter.Meter, 0, 2)
	for i, l := range s.Limits {
		key := c.key(l)
		m := s.meters[i][key]
		if m == nil {
			m = limiter.New(l)
			s.meters[i][key] = m
		}
		all = append(all, m)
	}
	return all
}

// key is the quota of a limit that a call uses.
func (c call) key(l limiter.Limit) int {
	return map[limiter.Split]int{limiter.ByPath: c.path, limiter.ByModel: c.model}[l.Split]
}

// cost is what a call takes of a limit.
func (c call) cost(l limiter.Limit) int {
	if l.Unit == limiter.Tokens {
		return c.tokens
	}
	return 1
}

// earliest is the first time at which the call is permitted if nothing else is. The server is
// locked.
func (s *server) earliest(c call, now time.Duration) time.Duration {
	s.serveOthers(now)
	at := max(now, s.locked)
	for i, m := range s.of(c) {
		at = max(at, m.Earliest(now, c.cost(s.Limits[i])))
	}
	return at
}

// serveOthers makes the requests of other clients until now, evenly spaced.
func (s *server) serveOthers(now time.Duration) {
	if s.others > now {
		return
	}
	l := s.Limits[0]
	gap := max(time.Duration(float64(time.Second)/(s.Others*l.PerSecond(0))), 1)
	if l.Unit == limiter.Tokens {
		gap *= time.Duration(s.Load.Tokens)
	}
	m := s.of(call{})[0]
	for ; s.others <= now; s.others += gap {
		if m.Earliest(s.others, 1) <= s.others {
			m.Take(s.others, s.others, 1)
		}
	}
}

// take takes the units of a permitted call until it ends. The server is locked.
func (s *server) take(c call, now, until time.Duration) {
	for i, m := range s.of(c) {
		m.Take(now, until, c.cost(s.Limits[i]))
	}
}

// Arrive implements fleet.Model.
func (s *server) Arrive(id, attempt int, at time.Duration) (fleet.Response, http.Header) {
	v := visit{call: s.newCall(id), attempt: attempt, now: s.Phase + at}
	s.mu.Lock()
	defer s.mu.Unlock()
	if down := s.Trouble.DownAt; at >= down && at < down+s.Trouble.DownFor {
		return fleet.Response{Err: fleet.ErrRefused}, nil
	}
	status, header := s.respond(v)
	return fleet.Response{Status: status, After: s.duration(v)}, header
}

// visit is one request.
type visit struct {
	call
	attempt int
	now     time.Duration
}

// duration is the time until the response.
func (s *server) duration(v visit) time.Duration {
	took := s.Load.took(s.random.Fraction(v.id, v.attempt, drawService))
	took += s.Load.queued(v.call)
	if t := s.Trouble; t.Slow > 0 && s.random.Fraction(v.id, v.attempt, drawSlow) < t.Slow {
		took += t.SlowBy
	}
	return took
}

// respond decides about a request. The server is locked.
func (s *server) respond(v visit) (status int, header http.Header) {
	if !s.granted[v.id] {
		if at := s.earliest(v.call, v.now); at > v.now {
			s.rejected++
			s.punish(v)
			return s.Status, s.rejection(v, max(at, s.locked)-v.now)
		}
		s.take(v.call, v.now, v.now+s.duration(v))
	}
	delete(s.granted, v.id)
	if t := s.Trouble; t.Errors > 0 && s.random.Fraction(v.id, v.attempt, drawError) < t.Errors {
		return http.StatusInternalServerError, s.success(v)
	}
	return http.StatusOK, s.success(v)
}

// punish applies the penalty of a rejection.
func (s *server) punish(v visit) {
	switch s.Penalty {
	case Counts:
		for i, m := range s.of(v.call) {
			m.Take(v.now, v.now, v.cost(s.Limits[i]))
		}
	case Locks:
		if s.locked <= v.now {
			s.locked = v.now + lockTime
		}
	case NoPenalty:
	}
}

// success returns the headers of a permitted request.
func (s *server) success(v visit) http.Header {
	h := s.dated(v.now)
	switch s.Says {
	case SaysRejections, SaysWait, SaysNothing:
		return h
	case SaysWrong:
		if s.Limits[0].Kind == limiter.Concurrency {
			return h
		}
	default:
	}
	if old, ok := s.cache[v.path]; ok && s.Cached > 0 && s.random.Fraction(v.id, v.attempt, drawCached) < s.Cached {
		h = old.header.Clone()
		h.Set("Age", strconv.Itoa(1+int((v.now-old.at).Seconds())))
		return h
	}
	s.describe(h, v)
	if s.Cached > 0 {
		s.cache[v.path] = cached{v.now, h}
	}
	return h
}

// rejection returns the headers of a rejected request that would be permitted after the wait.
func (s *server) rejection(v visit, wait time.Duration) http.Header {
	h := s.dated(v.now)
	if s.Says != SaysWait && s.Says != SaysNothing {
		s.describe(h, v)
	}
	seconds := int(math.Ceil(wait.Seconds()))
	switch s.Wait {
	case WaitSeconds:
		h.Set("Retry-After", strconv.Itoa(seconds))
	case WaitDate:
		h.Set("Retry-After", fleet.Epoch().Add(v.now+wait+s.Skew+time.Second-1).UTC().Format(http.TimeFormat))
	case WaitMillis:
		name := "Retry-After-Ms"
		if s.Number%2 == 0 {
			name = "X-Amz-Retry-After"
		}
		h.Set(name, strconv.FormatInt(wait.Milliseconds()+1, 10))
	case WaitZero:
		h.Set("Retry-After", "0")
	case WaitShort:
		h.Set("Retry-After", strconv.Itoa(max(seconds/4, 1)))
	case WaitNone:
	}
	return h
}

func (s *server) dated(now time.Duration) http.Header {
	if s.NoDate {
		return http.Header{}
	}
	return http.Header{"Date": {fleet.Epoch().Add(now + s.Skew).UTC().Format(http.TimeFormat)}}
}

// describe writes the quotas.
func (s *server) describe(h http.Header, v visit) {
	p := limiter.Page{Date: fleet.Epoch().Add(v.now + s.Skew), NoReset: s.Says == SaysNoReset}
	for i, m := range s.of(v.call) {
		l := s.Limits[i]
		if l.Secret {
			continue
		}
		p.Quotas = append(p.Quotas, s.shown(l, m, v.now))
		if l.Split == limiter.ByPath && s.dialect.Paths {
			p.Bucket = "path-" + strconv.Itoa(v.path)
		}
	}
	if !s.dialect.Many && len(p.Quotas) == 2 && share(p.Quotas[1]) < share(p.Quotas[0]) {
		p.Quotas = p.Quotas[1:] // the one that is exhausted first
	}
	if !s.dialect.Many {
		p.Quotas = p.Quotas[:1]
	}
	s.dialect.Write(h, p)
}

func share(q limiter.Shown) float64 { return float64(q.Remaining) / float64(q.Limit) }

// shown is what responses show of a limit.
func (s *server) shown(l limiter.Limit, m limiter.Meter, now time.Duration) limiter.Shown {
	remaining, reset := m.Left(now)
	if remaining == 0 && s.Next {
		reset = m.Earliest(now, 1) - now
	}
	reset = max(reset, s.locked-now)
	q := limiter.Shown{Name: l.Name, Unit: l.Unit, Limit: l.Capacity(), Remaining: s.late(m, now, remaining), Reset: reset, Window: l.Refill()}
	switch s.Wrong {
	case WrongRemaining0:
		q.Remaining = 0
	case WrongNegative:
		q.Remaining = -1
	case WrongLimit0:
		q.Limit, q.Remaining = 0, 0
	case WrongPast:
		q.Reset = -time.Hour
	case WrongHour:
		q.Reset += time.Hour
	}
	return q
}

// late returns the remaining count of the time that is Lag ago.
func (s *server) late(m limiter.Meter, now time.Duration, remaining int) int {
	if s.Lag == 0 {
		return remaining
	}
	past := s.history[m]
	past = append(past, count{now, remaining})
	for len(past) > 1 && past[1].at <= now-s.Lag {
		past = past[1:]
	}
	s.history[m] = past
	return past[0].remaining
}
