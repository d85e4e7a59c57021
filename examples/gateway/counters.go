package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// caller is a client; the shop is three callers, by priority.
type caller int

const (
	critical caller = iota
	standard
	batch
	partner
	scraper
	bulk
	callers
)

func (c caller) priority() resilienthttp.Priority {
	switch c {
	case critical:
		return resilienthttp.PriorityCritical
	case batch:
		return resilienthttp.PriorityBatch
	default:
		return resilienthttp.PriorityDefault
	}
}

func (c caller) String() string {
	return [...]string{"critical", "default", "batch", "partner", "scraper", "bulk"}[c]
}

// figures are the counts of calls and responses.
type figures struct {
	calls, served, rejected [callers]int // rejected: by the client's circuit breaker
	responses               [callers]int
	shed, throttled, other  [callers]int // responses with 503, 429, and other errors
}

// since returns the difference to an earlier time.
func (f figures) since(earlier figures) figures {
	for _, pair := range [][2]*[callers]int{
		{&f.calls, &earlier.calls}, {&f.served, &earlier.served}, {&f.rejected, &earlier.rejected}, {&f.responses, &earlier.responses},
		{&f.shed, &earlier.shed}, {&f.throttled, &earlier.throttled}, {&f.other, &earlier.other},
	} {
		for c := range pair[0] {
			pair[0][c] -= pair[1][c]
		}
	}
	return f
}

func (f *figures) success(c caller) float64 {
	return float64(f.served[c]) / float64(max(1, f.calls[c]))
}

// share returns the success of a caller for the table.
func (f *figures) share(c caller) string {
	if f.calls[c] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", f.success(c))
}

func sum(counts [callers]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// counters counts calls and responses.
type counters struct {
	mu  sync.Mutex
	all figures
}

func (t *counters) read() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// call counts a call that has ended.
func (t *counters) call(c caller, status int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.calls[c]++
	switch {
	case errors.Is(err, resilienthttp.ErrBreakerOpen):
		t.all.rejected[c]++
	case err == nil && status == http.StatusCreated:
		t.all.served[c]++
	}
}

// response counts a response of the server.
func (t *counters) response(c caller, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.responses[c]++
	switch status {
	case http.StatusCreated:
	case http.StatusServiceUnavailable:
		t.all.shed[c]++
	case http.StatusTooManyRequests:
		t.all.throttled[c]++
	default:
		t.all.other[c]++
	}
}

// watch prints the counts of each second until ctx ends. It returns the number of calls that
// were served by then.
func (t *counters) watch(ctx context.Context, out io.Writer, capacity float64) (served int) {
	fmt.Fprintf(out, "The API can make %.0f charges per second.\n\n", capacity)
	fmt.Fprintln(out, "      goodput  part of    success of the shop's calls  |     503    429,    429, | rejected by")
	fmt.Fprintln(out, "           /s  capacity  critical   default     batch  |         scraper  others | the client")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var before figures
	last := time.Now()
	for second := 1; ; second++ {
		select {
		case <-ctx.Done():
			return sum(t.read().served)
		case <-ticker.C:
		}
		now, took := t.read(), time.Since(last).Seconds()
		last = time.Now()
		f := now.since(before)
		before = now
		goodput := float64(sum(f.served)) / took
		fmt.Fprintf(out, "%3d s  %6.0f    %5.2f     %5.3f     %5.3f     %5.3f  |  %6d   %6d  %6d | %6d\n", second, goodput, goodput/capacity,
			f.success(critical), f.success(standard), f.success(batch), sum(f.shed), f.throttled[scraper], sum(f.throttled)-f.throttled[scraper], sum(f.rejected))
	}
}

// endedPhase has the counts of a phase, and the Shedder's state near its end, as on the page.
type endedPhase struct {
	name string
	figures
	shedder admission.ShedderState
}

// result has the counts of the whole run.
type result struct {
	figures

	phases     []endedPhase
	maxCharges int     // largest number of charges with one key
	goodput    float64 // per second
}

func (r *result) print(out io.Writer, capacity float64) {
	fmt.Fprint(out, "\nsuccess")
	for c := range callers {
		fmt.Fprintf(out, " %8s", c)
	}
	fmt.Fprintln(out, " | state page: limit, in flight, queued, baseline, rejected")
	for _, p := range r.phases {
		fmt.Fprint(out, "       ")
		for c := range callers {
			fmt.Fprintf(out, " %8s", p.share(c))
		}
		s := p.shedder
		fmt.Fprintf(out, " | %d, %d, %d, %v, %d  (%s)\n", s.Limit, s.InFlight, s.Queued, s.BaselineLatency.Round(time.Millisecond), s.Rejected, p.name)
	}
	fmt.Fprint(out, "\n             calls   served  success responses     503      429    other rejected\n")
	for c := range callers {
		fmt.Fprintf(out, "%-9s %8d %8d    %5.3f %8d %8d %8d %8d %8d\n", c, r.calls[c], r.served[c], r.success(c),
			r.responses[c], r.shed[c], r.throttled[c], r.other[c], r.rejected[c])
	}
	fmt.Fprintf(out, "\nServed %.2f of the capacity, with %.2f requests for each call. Largest number of charges with one key: %d.\n",
		r.goodput/capacity, float64(sum(r.responses))/float64(max(1, sum(r.calls))), r.maxCharges)
}

// verdict returns an error if a client was charged twice, or if a client that follows its quota got
// a 429.
func (r *result) verdict() error {
	if r.maxCharges > 1 {
		return fmt.Errorf("a client was charged %d times", r.maxCharges)
	}
	if n := sum(r.throttled) - r.throttled[scraper]; n > 0 {
		return fmt.Errorf("clients that follow their quotas got 429 %d times", n)
	}
	return nil
}
