package gates

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// BenchmarkOverload overloads a server over loopback. The handler only computes. The client
// measures the capacity, sends half of it for two seconds, and then three times the capacity
// in an open loop: 10 % critical, 60 % default, 30 % batch, deadline 500 ms, no retries. The
// server is a separate process on the same processors. It takes 55 s; use -benchtime 1x.
// With -short it takes seconds and measures nothing.
func BenchmarkOverload(b *testing.B) {
	phases := phases{capacity: 2 * time.Second, healthy: 2 * time.Second, warmup: 2 * time.Second, measured: 7 * time.Second}
	if testing.Short() {
		phases = phases.short()
	}
	for _, name := range []string{"none", "resilienthttp", "failsafe-go", "failsafe-go by priority"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				phases.run(b, name)
			}
		})
	}
}

func gates() map[string]gate {
	return map[string]gate{
		"none": func(_ context.Context, next http.Handler) (http.Handler, func() int) {
			return next, func() int { return 0 }
		},
		"resilienthttp": func(_ context.Context, next http.Handler) (http.Handler, func() int) {
			s := &admission.Shedder{Priority: admission.PriorityFromHeader}
			return s.Handler(next), func() int { return s.State().Limit }
		},
		"failsafe-go":             failsafe,
		"failsafe-go by priority": failsafePriority,
	}
}

// gate wraps a handler and returns its current limit; 0: none.
type gate = func(ctx context.Context, next http.Handler) (gated http.Handler, limit func() int)

// failsafe and failsafePriority are failsafe-go's adaptive limiter with its defaults. They do
// not use failsafehttp.NewHandler, which does not pass the request's context, its priority
// and its cancellation to the limiter. failsafe-go has no default for the calibration
// interval of priorities; here it is 100 ms.
func failsafe(_ context.Context, next http.Handler) (gated http.Handler, limit func() int) {
	limiter := adaptivelimiter.NewWithDefaults[any]()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		permit, ok := limiter.TryAcquirePermit()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer permit.Record()
		next.ServeHTTP(w, r)
	}), limiter.Limit
}

func failsafePriority(ctx context.Context, next http.Handler) (gated http.Handler, limit func() int) {
	prioritizer := adaptivelimiter.NewPrioritizer()
	prioritizer.ScheduleCalibrations(ctx, 100*time.Millisecond)
	limiter := adaptivelimiter.NewBuilder[any]().BuildPrioritized(prioritizer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		level := priority.Medium
		switch admission.PriorityFromHeader(r) {
		case resilienthttp.PriorityCritical:
			level = priority.VeryHigh
		case resilienthttp.PriorityBatch:
			level = priority.VeryLow
		case resilienthttp.PriorityDefault:
		}
		permit, err := limiter.AcquirePermitWithPriority(r.Context(), level)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer permit.Record()
		next.ServeHTTP(w, r)
	}), limiter.Limit
}

const (
	work     = 5 * time.Millisecond // CPU time of a request
	patience = 500 * time.Millisecond
	overload = 3
)

// phases are the durations of the phases.
type phases struct{ capacity, healthy, warmup, measured time.Duration }

func (p phases) short() phases {
	return phases{capacity: 50 * time.Millisecond, healthy: 30 * time.Millisecond, warmup: 30 * time.Millisecond, measured: 60 * time.Millisecond}
}

// run measures one gate.
func (p phases) run(b *testing.B, gate string) {
	b.Helper()
	s := open(b, gate)
	capacity := s.closedLoop(b.Context(), p.capacity)
	require.Positive(b, capacity)
	s.openLoop(b.Context(), capacity/2, p.healthy, 0)
	s.openLoop(b.Context(), overload*capacity, p.warmup, p.measured)

	came, served := 0, 0
	for class, name := range []string{"critical", "default", "batch"} {
		came += s.came[class]
		served += s.served[class]
		b.ReportMetric(float64(s.served[class])/float64(max(1, s.came[class])), name)
	}
	b.ReportMetric(float64(served)/p.measured.Seconds()/capacity, "goodput")
	b.ReportMetric(capacity, "capacity/s")
	b.ReportMetric(float64(came)/p.measured.Seconds()/capacity, "load")
	b.ReportMetric(float64(s.limit(b)), "limit")
	b.ReportMetric(float64(len(s.rejected))/float64(max(1, came)), "rejected")
	report(b, s.took, 0.99, "p99-ms")
	report(b, s.rejected, 0.5, "rejected-p50-ms")
	report(b, s.rejected, 0.99, "rejected-p99-ms")
	b.ReportMetric(0, "ns/op")
}

// report is a quantile of the latencies.
func report(b *testing.B, took []time.Duration, share float64, unit string) {
	b.Helper()
	if slices.Sort(took); len(took) > 0 {
		b.ReportMetric(took[int(float64(len(took))*share)].Seconds()*1000, unit)
	}
}

// client sends requests and counts the results.
type client struct {
	url   string
	http  *http.Client
	calls sync.WaitGroup

	mu             sync.Mutex
	came, served   [3]int
	took, rejected []time.Duration // latencies of successes and of rejections
}

// closedLoop returns the rate of successes with two workers per processor. Each worker sends
// at least one request.
func (s *client) closedLoop(ctx context.Context, length time.Duration) float64 {
	var served atomic.Int64
	begun := time.Now()
	for range 2 * runtime.GOMAXPROCS(0) {
		s.calls.Go(func() {
			for again := true; again; again = time.Since(begun) < length {
				if s.ask(ctx, "/plain", 1) == http.StatusNoContent {
					served.Add(1)
				}
			}
		})
	}
	s.calls.Wait()
	return float64(served.Load()) / time.Since(begun).Seconds()
}

// openLoop starts rate requests per second, and counts those that start after the warm-up.
func (s *client) openLoop(ctx context.Context, rate float64, warmup, measured time.Duration) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	begun, done := time.Now(), 0.0
	for since := time.Duration(0); since < warmup+measured; since = time.Since(begun) {
		for ; done < rate*since.Seconds(); done++ {
			counts := since >= warmup
			s.calls.Go(func() { s.call(ctx, counts) })
		}
		<-every.C
	}
	s.calls.Wait()
}

func (s *client) call(ctx context.Context, counts bool) {
	class := choose(rand.Float64())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	status := s.ask(ctx, "/", class)
	took := time.Since(begun)
	if !counts {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came[class]++
	switch {
	case took > patience:
	case status == http.StatusNoContent:
		s.served[class]++
		s.took = append(s.took, took)
	case status == http.StatusServiceUnavailable:
		s.rejected = append(s.rejected, took)
	}
}

// choose returns a class of the mix from a random number below 1.
func choose(x float64) int {
	switch {
	case x < 0.1:
		return 0
	case x < 0.7:
		return 1
	}
	return 2
}

func setPriority(req *http.Request, class int) {
	if name := [...]string{"critical", "", "batch"}[class]; name != "" {
		req.Header.Set("X-Request-Priority", name)
	}
}

// ask returns the status of a request; 0: an error.
func (s *client) ask(ctx context.Context, path string, class int) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		return 0
	}
	setPriority(req, class)
	req.Header.Set("X-Request-Timeout-Ms", "500")
	resp, err := s.http.Do(req)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return 0
	}
	return resp.StatusCode
}
