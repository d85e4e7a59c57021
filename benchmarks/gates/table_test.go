package gates

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var tableSeeds = flag.Int("table-seeds", 0, "print the table of TestTable for this number of seeds")

// trial is a load on a server in virtual time: workers of 10 ms, exponential.
type trial struct {
	load       float64 // as a ratio of the capacity
	length     time.Duration
	deadline   time.Duration
	dependency time.Duration // added to the work, exponential
	pauses     time.Duration // the workers stop for 200 ms once in this time
}

const (
	tableWorkers = 12
	tableService = 10 * time.Millisecond
	pauseLength  = 200 * time.Millisecond
)

// result is the result of one request.
type result struct {
	came     time.Duration
	class    int
	served   bool // before its deadline
	rejected bool
}

// recorder is a ResponseWriter that keeps the status.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// run sends the load through a gate.
func (tr trial) run(t *testing.T, name string, seed int) (results []result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(uint64(seed), 11))
		begun := time.Now()
		workers := make(chan struct{}, tableWorkers)
		ctx, stop := context.WithCancel(t.Context())
		gated, _ := gates()[name](ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			need, _ := r.Context().Value(needKey{}).([2]time.Duration)
			workers <- struct{}{}
			tr.work(begun, need[0])
			<-workers
			time.Sleep(need[1])
			w.WriteHeader(http.StatusNoContent)
		}))
		var mu sync.Mutex
		var calls sync.WaitGroup
		rate := tr.load * tableWorkers / tableService.Seconds()
		for time.Since(begun) < tr.length {
			time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
			class := choose(random.Float64())
			need := [2]time.Duration{time.Duration(random.ExpFloat64() * float64(tableService)), time.Duration(random.ExpFloat64() * float64(tr.dependency))}
			calls.Go(func() {
				res := result{came: time.Since(begun), class: class}
				status := send(ctx, gated, tr.deadline, class, need)
				res.served = status == http.StatusNoContent && time.Since(begun)-res.came <= tr.deadline
				res.rejected = status == http.StatusServiceUnavailable
				mu.Lock()
				defer mu.Unlock()
				results = append(results, res)
			})
		}
		calls.Wait()
		stop()
	})
	return results
}

// needKey is the context key of a request's work and dependency.
type needKey struct{}

// send makes one request, and returns its status.
func send(ctx context.Context, h http.Handler, deadline time.Duration, class int, need [2]time.Duration) int {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, needKey{}, need), deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h/", http.NoBody)
	if err != nil {
		return 0
	}
	setPriority(r, class)
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, r)
	return w.status
}

// work takes need of a worker's time, pauses not included.
func (tr trial) work(begun time.Time, need time.Duration) {
	for tr.pauses > 0 {
		since := time.Since(begun) % tr.pauses
		if since < pauseLength && time.Since(begun) >= tr.pauses {
			time.Sleep(pauseLength - since)
			continue
		}
		part := min(need, tr.pauses-since)
		time.Sleep(part)
		if need -= part; need == 0 {
			return
		}
	}
	time.Sleep(need)
}

// ratio returns the ratio of the requests of a period that match.
func ratio(results []result, from, to time.Duration, match func(result) bool) float64 {
	came, matched := 0.0, 0.0
	for _, r := range results {
		if r.came >= from && r.came < to {
			came++
			if match(r) {
				matched++
			}
		}
	}
	return matched / max(came, 1)
}

func rejected(r result) bool { return r.rejected }
func served(r result) bool   { return r.served }

// row is a row of the table: a figure for each gate.
type row struct {
	name   string
	figure func(t *testing.T, gate string, seeds int) (text string, value float64)
	ours   func(value float64) bool
}

// seedsWithRejections counts the seeds that reject in the minute after a warm-up of 10 s.
func seedsWithRejections(load float64) func(*testing.T, string, int) (string, float64) {
	return func(t *testing.T, gate string, seeds int) (string, float64) {
		t.Helper()
		bad := 0
		for seed := range seeds {
			results := trial{load: load, length: 70 * time.Second, deadline: time.Second}.run(t, gate, seed)
			if ratio(results, 10*time.Second, 70*time.Second, rejected) > 0 {
				bad++
			}
		}
		return fmt.Sprintf("%d of %d", bad, seeds), float64(bad)
	}
}

// over returns the worst of a figure over the seeds, by less.
func over(tr trial, worst func([]float64) float64, figure func([]result) float64) func(*testing.T, string, int) (string, float64) {
	return func(t *testing.T, gate string, seeds int) (string, float64) {
		t.Helper()
		var all []float64
		for seed := range seeds {
			all = append(all, figure(tr.run(t, gate, seed)))
		}
		value := worst(all)
		return fmt.Sprintf("%.3f", value), value
	}
}

func rows() []row {
	cold := trial{load: 0.5, length: 10 * time.Second, deadline: time.Second, dependency: 100 * time.Millisecond}
	paused := trial{load: 0.8, length: 42 * time.Second, deadline: time.Second, pauses: 2 * time.Second}
	overloaded := trial{load: 3, length: 12 * time.Second, deadline: 500 * time.Millisecond}
	const second = time.Second
	return []row{
		{"(a) seeds with rejections at .5", seedsWithRejections(0.5), func(v float64) bool { return v == 0 }},
		{"(a) seeds with rejections at .6", seedsWithRejections(0.6), func(v float64) bool { return v == 0 }},
		{"(b) seeds with rejections at .7", seedsWithRejections(0.7), func(v float64) bool { return v <= 1 }},
		{"(c) cold start: rejected in the worst second after the second one", over(cold, slices.Max[[]float64], func(results []result) (worst float64) {
			for from := 2 * second; from < cold.length; from += second {
				worst = max(worst, ratio(results, from, from+second, rejected))
			}
			return worst
		}), func(v float64) bool { return v <= 0.15 }}, // package admission tests the .05 of A14
		{"(d) pauses of 200 ms at .8: served", over(paused, slices.Min[[]float64], func(results []result) float64 {
			return ratio(results, 2*second, paused.length, served)
		}), func(v float64) bool { return v >= 0.99 }},
		{"3 × the capacity: goodput", over(overloaded, slices.Min[[]float64], func(results []result) float64 {
			return 3 * ratio(results, 2*second, overloaded.length, served)
		}), func(v float64) bool { return v >= 0.95 }},
		{"3 × the capacity: critical", over(overloaded, slices.Min[[]float64], func(results []result) float64 {
			critical := slices.DeleteFunc(results, func(r result) bool { return r.class != 0 })
			return ratio(critical, 2*second, overloaded.length, served)
		}), func(v float64) bool { return v >= 0.99 }},
	}
}

// TestTable compares false rejections and overload with failsafe-go's adaptive limiter, in
// virtual time. Each figure is the worst of the seeds. To print the table for 20 seeds:
//
//	go test ./gates -run TestTable -v -table-seeds 20
func TestTable(t *testing.T) {
	if *tableSeeds > 0 {
		names := []string{"resilienthttp", "failsafe-go", "failsafe-go by priority"}
		fmt.Println("| 12 workers of 10 ms, exponential | resilienthttp | failsafe-go adaptivelimiter | the same, prioritized |")
		fmt.Println("|---|--:|--:|--:|")
		for _, row := range rows() {
			fmt.Print("| ", row.name)
			for _, name := range names {
				text, _ := row.figure(t, name, *tableSeeds)
				fmt.Print(" | ", text)
			}
			fmt.Println(" |")
		}
		return
	}
	for _, row := range rows() {
		t.Run(row.name, func(t *testing.T) {
			_, value := row.figure(t, "resilienthttp", 1)
			assert.True(t, row.ours(value), "got %v", value)
		})
	}
	for _, name := range []string{"failsafe-go", "failsafe-go by priority"} {
		require.NotEmpty(t, trial{load: 0.5, length: time.Second, deadline: time.Second}.run(t, name, 1))
	}
}
