package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// with returns a Limiter with RateLimit's defaults for the fields that are not set.
func with(c Config) *Limiter {
	if c.Burst == 0 {
		c.Burst = int(min(max(math.Ceil(float64(c.Limit)), 1), math.MaxInt32))
	}
	if c.MaxWait == 0 {
		c.MaxWait = time.Minute
	}
	if c.MaxBlock == 0 {
		c.MaxBlock = time.Hour
	}
	c.Follow = true
	return New(c)
}

// paced is a transport with a Limiter only.
type paced struct {
	*Limiter

	base      http.RoundTripper
	maxClosed time.Duration
	unknown   atomic.Int64 // requests in flight without a permit
}

func (p *paced) RoundTrip(req *http.Request) (*http.Response, error) {
	r := Request{Method: req.Method, Path: req.URL.Path, MaxBlock: p.maxClosed}
	r.Deadline, _ = req.Context().Deadline()
	set, permit := p.Set(req.URL.Host), Permit{}
	active := set.Active()
	if active {
		var refusal *waitqueue.Rejection
		if permit, refusal = set.Admit(req.Context(), r, time.Now()); refusal != nil {
			return nil, &refusedError{*refusal, context.Cause(req.Context())}
		}
	}
	if !active {
		p.unknown.Add(1)
	}
	sent := time.Now()
	resp, err := p.base.RoundTrip(req)
	now, answer := time.Now(), new(Response)
	if err == nil {
		answer = answerOf(resp.StatusCode, resp.Header, now)
	}
	if active {
		permit.Done(answer, now)
	} else {
		set.Observe(r, answer, sent, now, p.unknown.Load()-1)
		p.unknown.Add(-1)
	}
	return resp, err
}

// answerOf is a response as the Limiter sees it.
func answerOf(status int, h http.Header, now time.Time) *Response {
	a := &Response{Status: status}
	a.Quota, _ = ratelimitheader.Parse(h, now)
	if status >= http.StatusBadRequest {
		a.RetryAfter, a.AsksToWait = retryafter.Parse(h, now)
	}
	return a
}

// refusedError is a Rejection as an error.
type refusedError struct {
	waitqueue.Rejection

	cause error
}

func (e *refusedError) Error() string { return fmt.Sprintf("refused: %v", e.Rejection) }
func (e *refusedError) Unwrap() error { return e.cause }

// client makes requests through a Limiter only.
func client(base http.RoundTripper, l *Limiter) *http.Client {
	return &http.Client{Transport: &paced{Limiter: l, base: base, maxClosed: time.Minute}}
}

// get makes a request and reads its response.
func get(ctx context.Context, client *http.Client, url string) (status int, refused *refusedError) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		if !errors.As(err, &refused) {
			refused = &refusedError{waitqueue.Rejection{Reason: notRefused}, err}
		}
		return 0, refused
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// keepBusy makes requests one after the other, by so many workers, until a time.
func keepBusy(t *testing.T, c *http.Client, workers int, until time.Time) {
	for range workers {
		go func() {
			for time.Now().Before(until) {
				_, _ = get(t.Context(), c, "http://mem.test")
			}
		}()
	}
}

// notRefused is of a request that was sent, and failed.
const notRefused waitqueue.Reason = 255

// exchange is a request and its response, for tests that use the Limiter directly.
type exchange struct {
	*Limiter
	Request
	Permit

	scope  string
	ctx    context.Context
	status int
	header http.Header
}

func newExchange(ctx context.Context, l *Limiter) *exchange {
	return &exchange{
		Limiter: l, ctx: ctx, status: http.StatusOK, header: http.Header{},
		scope:   "api.example.com",
		Request: Request{Method: http.MethodGet, Path: "/v1/things/42", MaxBlock: time.Minute},
	}
}

func (e *exchange) enter() (refused *waitqueue.Rejection) {
	e.Permit, refused = e.Set(e.scope).Admit(e.ctx, e.Request, time.Now())
	return refused
}

// shows ends the exchange with a response that shows a quota. reset is in seconds.
func (e *exchange) shows(limit, remaining, reset int) {
	setFields(e.header, "X-RateLimit-Limit", limit, "X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset)
	e.done()
}

func (e *exchange) done() {
	now := time.Now()
	e.Done(answerOf(e.status, e.header, now), now)
}

// quotaKind is how a server counts.
type quotaKind string

const (
	aligned     quotaKind = "aligned"    // windows by the clock
	fromFirst   quotaKind = "from first" // a window begins with the first request after the last one
	tokenBucket quotaKind = "refill"     // a token bucket: the reset is when it is full
)

// quotaSaying is the state of the quota that a server shows, by its clock.
type quotaSaying struct {
	limit, left int
	window      time.Duration
	reset, now  time.Time
}

// epoch is the time of the reset, rounded up.
func (s quotaSaying) epoch(unit time.Duration) time.Time { return s.reset.Add(unit - 1).Truncate(unit) }

// quotaDialect is a set of fields. Resets are rounded up to the grain.
type quotaDialect struct {
	grain time.Duration
	faulttest.Dialect
}

// quotaDialects are those that quotaServer writes. Resets of "floor" are rounded down, which is wrong.
func quotaDialects() map[string]quotaDialect {
	return map[string]quotaDialect{
		"github":   {time.Second, faulttest.GitHub},
		"epoch ms": {time.Millisecond, faulttest.Okta},
		"delta":    {time.Second, faulttest.IETF06},
		"floor":    {time.Second, faulttest.IETF06},
		"rfc 3339": {time.Second, faulttest.Anthropic},
		"openai":   {time.Millisecond, faulttest.OpenAI},
		"ietf":     {time.Second, faulttest.IETF},
		"discord":  {time.Millisecond, faulttest.Discord},
	}
}

// header has the fields of a dialect. Where quotas have names, there is one of tokens too, of which much is left.
func (s quotaSaying) header(dialect string) http.Header {
	d, reset := quotaDialects()[dialect].Dialect, s.reset.Sub(s.now)
	if dialect == "floor" {
		reset = reset.Truncate(time.Second)
	}
	h := faulttest.RateLimit{Dialect: d, Limit: s.limit, Remaining: s.left, Reset: reset, Window: s.window}.Header(s.now)
	switch dialect {
	case "epoch ms":
		setFields(h, "X-Rate-Limit-Reset", s.epoch(time.Millisecond).UnixMilli())
	case "rfc 3339", "openai":
		tokens := faulttest.RateLimit{Dialect: d, Name: "Tokens", Limit: 150000, Remaining: 149984, Reset: 6 * time.Millisecond}
		maps.Copy(h, tokens.Header(s.now))
	}
	return h
}

func setFields(h http.Header, fields ...any) {
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i].(string), fmt.Sprint(fields[i+1]))
	}
}

// quotaServer has one quota, shows it, and counts its usage.
type quotaServer struct {
	kind    quotaKind
	limit   int
	window  time.Duration
	dialect string        // of quotaDialects
	skew    time.Duration // its clock is ahead by this
	work    time.Duration // that a request takes after it was counted
	curt    bool          // it shows its quota in rejections only

	mu       sync.Mutex
	begin    time.Time // of the window; of a token bucket, when tokens was true
	used     int       // in this window
	tokens   float64
	arrivals []time.Time // by our clock

	// Since measure, by the server's clock:
	from            time.Time
	served, refused int
	windows         int           // that have begun
	first, last     time.Time     // when the first and the last of them began
	spent           int           // in all but the last
	announced       time.Duration // how long they were, by the resets
	spilled         float64       // tokens above the capacity of the bucket
}

// measure resets the counts.
func (s *quotaServer) measure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = time.Now().Add(s.skew)
	s.served, s.refused, s.windows, s.spent, s.announced, s.spilled = 0, 0, 0, 0, 0, 0
}

// count counts one request.
func (s *quotaServer) count(now time.Time) (ok bool, say quotaSaying) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, now.Add(-s.skew))
	say = quotaSaying{limit: s.limit, window: s.window, now: now}
	if s.kind == tokenBucket {
		ok = s.takeToken(now, &say)
	} else {
		ok = s.takeFromWindow(now, &say)
	}
	if ok {
		s.served++
	} else {
		s.refused++
	}
	return ok, say
}

func (s *quotaServer) takeToken(now time.Time, say *quotaSaying) (ok bool) {
	rate := float64(s.limit) / s.window.Seconds()
	if s.begin.IsZero() {
		s.tokens = float64(s.limit)
	} else {
		s.tokens += now.Sub(s.begin).Seconds() * rate
		s.spilled += max(s.tokens-float64(s.limit), 0)
		s.tokens = min(s.tokens, float64(s.limit))
	}
	s.begin = now
	const hair = 1e-9 // floating point
	if ok = s.tokens >= 1-hair; ok {
		s.tokens = max(s.tokens-1, 0)
	}
	say.left = int(s.tokens + hair)
	say.reset = now.Add(time.Duration((float64(s.limit) - s.tokens) / rate * float64(time.Second)))
	return ok
}

func (s *quotaServer) takeFromWindow(now time.Time, say *quotaSaying) (ok bool) {
	if s.begin.IsZero() || now.Sub(s.begin) >= s.window {
		used := s.used
		s.begin, s.used = now, 0
		if s.kind == aligned {
			s.begin = now.Truncate(s.window)
		}
		if !s.from.IsZero() {
			if s.windows++; s.windows == 1 {
				s.first = s.begin
			} else {
				s.spent += used
			}
			s.last = s.begin
			s.announced += quotaSaying{reset: s.begin.Add(s.window)}.epoch(quotaDialects()[s.dialect].grain).Sub(s.begin)
		}
	}
	if ok = s.used < s.limit; ok {
		s.used++
	}
	say.left, say.reset = s.limit-s.used, s.begin.Add(s.window)
	return ok
}

// share returns the used part of the quota since measure: of the whole quota, and of the part
// that a client can use that believes the resets. They differ if windows begin with a request and
// their end is rounded up.
func (s *quotaServer) share() (used, believed float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == tokenBucket {
		used = 1 - s.spilled/(s.begin.Sub(s.from).Seconds()*float64(s.limit)/s.window.Seconds())
		return used, used
	}
	if s.windows < 2 {
		return 0, 0
	}
	took := float64(s.last.Sub(s.first))
	used = float64(s.spent) / (float64(s.limit) * took / float64(s.window))
	if s.kind == aligned {
		return used, used
	}
	return used, float64(s.spent) / (float64(s.limit) * took / (float64(s.announced) / float64(s.windows)))
}

func (s *quotaServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ok, say := s.count(time.Now().Add(s.skew))
	if !ok || !s.curt {
		maps.Copy(w.Header(), say.header(s.dialect))
	}
	if ok {
		time.Sleep(s.work)
	}
	w.Header().Set("Date", time.Now().Add(s.skew).UTC().Format(http.TimeFormat))
	if !ok {
		w.Header().Set("Retry-After", strconv.FormatFloat(max(math.Ceil(say.reset.Sub(say.now).Seconds()), 1), 'f', 0, 64))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	_, _ = io.WriteString(w, "ok")
}

// direct is a RoundTripper to a handler without net/http, for large numbers of requests.
type direct struct {
	handler  http.Handler
	up, down time.Duration
	jitter   bool // each of them is a half more or less
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := d.travel(r.Context(), d.up); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	d.handler.ServeHTTP(rec, r)
	if err := d.travel(r.Context(), d.down); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

func (d direct) travel(ctx context.Context, way time.Duration) error {
	if way == 0 {
		return ctx.Err()
	}
	if d.jitter {
		way = way/2 + rand.N(way+1)
	}
	return sleep.Context(ctx, way)
}

// in2026 advances a bubble's clock from the year 2000, in which epoch times look like durations,
// and to a time between two seconds.
func in2026(off time.Duration) {
	time.Sleep(time.Until(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).Add(off)))
}

// quotaRun is one load on one quota.
type quotaRun struct {
	kind    quotaKind
	limit   int
	window  time.Duration
	latency time.Duration // there and back
	work    time.Duration
	dialect string
	skew    time.Duration
	offset  time.Duration // of the start from a full second
	open    bool          // requests arrive at twice the speed, with deadlines; else loops
	jitter  bool          // latencies differ, so that responses arrive in another order
}

func (r quotaRun) String() string {
	demand := "loops"
	if r.open {
		demand = "open"
	}
	if r.jitter {
		demand += ", jitter"
	}
	return fmt.Sprintf("%s, %d per %v, latency %v, work %v, %s, skew %v, start at %v, %s",
		r.kind, r.limit, r.window, r.latency, r.work, r.dialect, r.skew, r.offset, demand)
}

// quotaResult is the result of a run after the first windows.
type quotaResult struct {
	believed  float64
	refused   int
	atOnce    int // calls that were rejected at once
	afterWait int // calls that were rejected after a wait
}

func (r quotaRun) run(t *testing.T) quotaResult {
	in2026(r.offset)
	s := &quotaServer{
		kind: r.kind, limit: r.limit, window: r.window, dialect: r.dialect, skew: r.skew, work: r.work,
	}
	c := client(direct{s, r.latency / 2, r.latency - r.latency/2, r.jitter}, with(Config{MaxWait: time.Hour}))

	trip := r.latency + r.work
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	var mu sync.Mutex
	var result quotaResult
	one := func(ctx context.Context) (refused bool) {
		begun := time.Now()
		_, err := get(ctx, c, "http://mem.test")
		if err == nil || ctx.Err() == context.Canceled {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if time.Since(begun) > 0 {
			result.afterWait++
		} else {
			result.atOnce++
		}
		return true
	}
	if r.open {
		gap := r.window / time.Duration(2*r.limit)
		calls.Go(func() {
			for next := time.Now(); ctx.Err() == nil; next = next.Add(gap) {
				time.Sleep(time.Until(next))
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, 2*r.window+2*trip)
					defer cancel()
					one(ctx)
				})
			}
		})
	} else {
		// Enough to use the quota up within a third of the window.
		for range max(20, int(3*float64(r.limit)*float64(trip)/float64(r.window))) {
			calls.Go(func() {
				for ctx.Err() == nil {
					if one(ctx) {
						time.Sleep(r.window / 10)
					}
				}
			})
		}
	}
	warm := 2*r.window + 3*trip
	if trip >= r.window/4 {
		// The limiter learns only from the responses.
		warm += 3*trip + 2*r.window
	}
	if r.work >= r.window {
		// Only rejections show the quota, so the window is learned step by step.
		warm += 15 * r.window
	}
	time.Sleep(warm)
	s.measure()
	mu.Lock()
	result = quotaResult{}
	mu.Unlock()
	time.Sleep(6 * r.window)
	mu.Lock()
	defer calls.Wait()
	defer mu.Unlock()
	stop()
	_, result.believed = s.share()
	s.mu.Lock()
	defer s.mu.Unlock()
	result.refused = s.refused
	return result
}
