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
	calls, served, held [callers]int // held: the client's own breaker was open
	sent                [callers]int // answers that came
	shed, over, other   [callers]int // of these: 503, 429, and neither these nor 201
}

// since returns the difference to an earlier time.
func (f figures) since(earlier figures) figures {
	for _, pair := range [][2]*[callers]int{
		{&f.calls, &earlier.calls}, {&f.served, &earlier.served}, {&f.held, &earlier.held}, {&f.sent, &earlier.sent},
		{&f.shed, &earlier.shed}, {&f.over, &earlier.over}, {&f.other, &earlier.other},
	} {
		for who := range pair[0] {
			pair[0][who] -= pair[1][who]
		}
	}
	return f
}

func (f *figures) success(who caller) float64 {
	return float64(f.served[who]) / float64(max(1, f.calls[who]))
}

// share returns the success of a caller for the table.
func (f *figures) share(who caller) string {
	if f.calls[who] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", f.success(who))
}

func sum(counts [callers]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// tally counts.
type tally struct {
	mu  sync.Mutex
	all figures
}

func (t *tally) read() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// called counts a call that has ended.
func (t *tally) called(who caller, status int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.calls[who]++
	switch {
	case errors.Is(err, resilienthttp.ErrBreakerOpen):
		t.all.held[who]++
	case err == nil && status == http.StatusCreated:
		t.all.served[who]++
	}
}

// answered counts a response of the server.
func (t *tally) answered(who caller, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.sent[who]++
	switch status {
	case http.StatusCreated:
	case http.StatusServiceUnavailable:
		t.all.shed[who]++
	case http.StatusTooManyRequests:
		t.all.over[who]++
	default:
		t.all.other[who]++
	}
}

// watch prints the counts of each second until ctx ends. It returns the number of calls that
// were served by then.
func (t *tally) watch(ctx context.Context, out io.Writer, capacity float64) (served int) {
	fmt.Fprintf(out, "The API can make %.0f charges a second.\n\n", capacity)
	fmt.Fprintln(out, "      goodput   of what   success of the shop's calls  | answers    429,   429,  | held by")
	fmt.Fprintln(out, "           /s    it can  critical   default     batch  |     503  scraper  others | the client")
	every := time.NewTicker(time.Second)
	defer every.Stop()
	var before figures
	last := time.Now()
	for second := 1; ; second++ {
		select {
		case <-ctx.Done():
			return sum(t.read().served)
		case <-every.C:
		}
		now, took := t.read(), time.Since(last).Seconds()
		last = time.Now()
		f := now.since(before)
		before = now
		goodput := float64(sum(f.served)) / took
		fmt.Fprintf(out, "%3d s  %6.0f    %5.2f     %5.3f     %5.3f     %5.3f  |  %6d   %6d  %6d | %6d\n", second, goodput, goodput/capacity,
			f.success(critical), f.success(standard), f.success(batch), sum(f.shed), f.over[scraper], sum(f.over)-f.over[scraper], sum(f.held))
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

	phases  []endedPhase
	most    int     // charges under one key
	goodput float64 // in a second, while the clients asked
}

func (r *result) print(out io.Writer, capacity float64) {
	fmt.Fprint(out, "\nsuccess")
	for who := range callers {
		fmt.Fprintf(out, " %8s", who)
	}
	fmt.Fprintln(out, " | on the page: limit, in flight, queued, baseline, rejected")
	for _, p := range r.phases {
		fmt.Fprint(out, "       ")
		for who := range callers {
			fmt.Fprintf(out, " %8s", p.share(who))
		}
		s := p.shedder
		fmt.Fprintf(out, " | %d, %d, %d, %v, %d  (%s)\n", s.Limit, s.InFlight, s.Queued, s.BaselineLatency.Round(time.Millisecond), s.Rejected, p.name)
	}
	fmt.Fprint(out, "\n             calls   served  success  answers      503      429    other     held\n")
	for who := range callers {
		fmt.Fprintf(out, "%-9s %8d %8d    %5.3f %8d %8d %8d %8d %8d\n", who, r.calls[who], r.served[who], r.success(who),
			r.sent[who], r.shed[who], r.over[who], r.other[who], r.held[who])
	}
	fmt.Fprintf(out, "\nServed %.2f of what the API can do, with %.2f requests for each call. Most charges under one key: %d.\n",
		r.goodput/capacity, float64(sum(r.sent))/float64(max(1, sum(r.calls))), r.most)
}

// verdict returns an error if a client was charged twice, or if one that obeys got a 429.
func (r *result) verdict() error {
	if r.most > 1 {
		return fmt.Errorf("a client was charged %d times", r.most)
	}
	if obeying := sum(r.over) - r.over[scraper]; obeying > 0 {
		return fmt.Errorf("clients that obey met %d answers 429", obeying)
	}
	return nil
}
