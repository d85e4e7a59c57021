package quota

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

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

// until is the time to the reset in units, rounded up.
func (s quotaSaying) until(unit time.Duration) int64 {
	return int64(math.Ceil(float64(s.reset.Sub(s.now)) / float64(unit)))
}

// epoch is the time of the reset, rounded up.
func (s quotaSaying) epoch(unit time.Duration) time.Time {
	if t := s.reset.Truncate(unit); !t.Equal(s.reset) {
		return t.Add(unit)
	}
	return s.reset
}

// quotaDialect writes the fields of a dialect. Resets are rounded up to the grain.
type quotaDialect struct {
	name  string
	grain time.Duration
	say   func(h http.Header, s quotaSaying)
}

func setFields(h http.Header, fields ...any) {
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i].(string), fmt.Sprint(fields[i+1]))
	}
}

func quotaDialects() []quotaDialect {
	return []quotaDialect{
		{"github", time.Second, func(h http.Header, s quotaSaying) {
			setFields(h, "X-RateLimit-Limit", s.limit, "X-RateLimit-Remaining", s.left, "X-RateLimit-Used", s.limit-s.left,
				"X-RateLimit-Reset", s.epoch(time.Second).Unix(), "X-RateLimit-Resource", "core")
		}},
		{"epoch ms", time.Millisecond, func(h http.Header, s quotaSaying) {
			setFields(h, "X-RateLimit-Limit", s.limit, "X-RateLimit-Remaining", s.left,
				"X-RateLimit-Reset", s.epoch(time.Millisecond).UnixMilli())
		}},
		{"delta", time.Second, func(h http.Header, s quotaSaying) {
			setFields(h, "RateLimit-Limit", s.limit, "RateLimit-Remaining", s.left, "RateLimit-Reset", s.until(time.Second))
		}},
		{"rfc 3339", time.Second, func(h http.Header, s quotaSaying) {
			reset := s.epoch(time.Second).UTC().Format(time.RFC3339)
			setFields(h, "anthropic-ratelimit-requests-limit", s.limit, "anthropic-ratelimit-requests-remaining", s.left,
				"anthropic-ratelimit-requests-reset", reset, "anthropic-ratelimit-tokens-limit", 1000000,
				"anthropic-ratelimit-tokens-remaining", 900000, "anthropic-ratelimit-tokens-reset", reset)
		}},
		{"openai", time.Millisecond, func(h http.Header, s quotaSaying) {
			setFields(h, "x-ratelimit-limit-requests", s.limit, "x-ratelimit-remaining-requests", s.left,
				"x-ratelimit-reset-requests", time.Duration(s.until(time.Millisecond))*time.Millisecond,
				"x-ratelimit-limit-tokens", 150000, "x-ratelimit-remaining-tokens", 149984, "x-ratelimit-reset-tokens", "6ms")
		}},
		{"ietf", time.Second, func(h http.Header, s quotaSaying) {
			setFields(h, "RateLimit-Policy", fmt.Sprintf(`"p";q=%d;w=%d`, s.limit, int(s.window.Seconds())),
				"RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, s.left, s.until(time.Second)))
		}},
		{"discord", time.Millisecond, func(h http.Header, s quotaSaying) {
			seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
			setFields(h, "X-RateLimit-Limit", s.limit, "X-RateLimit-Remaining", s.left,
				"X-RateLimit-Reset", seconds(s.epoch(time.Millisecond).UnixMilli()),
				"X-RateLimit-Reset-After", seconds(s.until(time.Millisecond)), "X-RateLimit-Bucket", "abcd1234")
		}},
		// Rounded down, which is wrong. It must be the last, because tests of correct dialects
		// omit it.
		{"floor", time.Second, func(h http.Header, s quotaSaying) {
			setFields(h, "RateLimit-Limit", s.limit, "RateLimit-Remaining", s.left, "RateLimit-Reset", int64(s.reset.Sub(s.now)/time.Second))
		}},
	}
}

func quotaDialectNamed(name string) quotaDialect {
	for _, d := range quotaDialects() {
		if d.name == name {
			return d
		}
	}
	panic(name)
}

// quotaServer has one quota, shows it, and counts its usage.
type quotaServer struct {
	kind    quotaKind
	limit   int
	window  time.Duration
	dialect quotaDialect
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
			s.announced += quotaSaying{reset: s.begin.Add(s.window)}.epoch(s.dialect.grain).Sub(s.begin)
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
		s.dialect.say(w.Header(), say)
	}
	if ok {
		time.Sleep(s.work)
	}
	w.Header().Set("Date", time.Now().Add(s.skew).UTC().Format(http.TimeFormat))
	if !ok {
		w.Header().Set("Retry-After", strconv.FormatInt(max(say.until(time.Second), 1), 10))
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
	select {
	case <-time.After(way):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	direct  bool          // without net/http
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
	used, believed  float64
	served, refused int
	atOnce          int // calls that were rejected at once
	afterWait       int // calls that were rejected after a wait
}

func (r quotaRun) run(t *testing.T) quotaResult {
	in2026(r.offset)
	s := &quotaServer{
		kind: r.kind, limit: r.limit, window: r.window, dialect: quotaDialectNamed(r.dialect), skew: r.skew, work: r.work,
	}
	up, down := r.latency/2, r.latency-r.latency/2
	var base http.RoundTripper = direct{s, up, down, r.jitter}
	url := "http://mem.test"
	if !r.direct && !r.jitter {
		server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			time.Sleep(up)
			s.ServeHTTP(w, req)
			time.Sleep(down)
		}))
		transport := server.Transport()
		transport.MaxIdleConnsPerHost = 10000
		base, url = transport, server.URL
	}
	c := client(base, with(Config{MaxWait: time.Hour}))

	trip := r.latency + r.work
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	var mu sync.Mutex
	var result quotaResult
	one := func(ctx context.Context) (refused bool) {
		begun := time.Now()
		_, err := get(ctx, c, url)
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
	result.used, result.believed = s.share()
	s.mu.Lock()
	defer s.mu.Unlock()
	result.served, result.refused = s.served, s.refused
	return result
}
