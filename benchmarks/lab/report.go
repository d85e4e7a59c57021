package lab

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Report is the result of an experiment.
type Report struct {
	Seconds int        // in which calls arrive
	Band    [2]float64 // the failure, in seconds
	Runs    []Run      // the bare client first
}

// Run is the result of one library. P50s and P99s, in seconds, are of the successful calls that were made in a second; 0 means none.
type Run struct {
	fleet.Result

	Name                         string
	P50s, P99s, AttemptsPerCalls []float64
	Ended                        []Cause // of the failed calls, the most frequent first
}

// Cause is what ended failed calls.
type Cause struct {
	Text  string
	Calls int
}

// watch collects the calls of a run.
type watch struct {
	mu        sync.Mutex
	ended     map[string]int
	latencies [][]time.Duration // of successful calls, by the second in which they were made
}

func (w *watch) note(o fleet.Observation) {
	cause := ""
	if !o.Success {
		cause = endedBy(o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !o.Success {
		w.ended[cause]++
		return
	}
	if second := int(o.At / time.Second); second < len(w.latencies) {
		w.latencies[second] = append(w.latencies[second], o.Latency)
	}
}

// endedBy returns why a call failed: the StopReason, or else the status or the kind of error.
func endedBy(o fleet.Observation) string {
	attempts := resilienthttp.Attempts(o.Response)
	failed, ok := errors.AsType[*resilienthttp.Error](o.Err)
	if ok {
		attempts = failed.Attempts
	}
	for i := range attempts {
		if stop := attempts[i].StopReason; stop != nil {
			return stop.Error()
		}
	}
	switch {
	case ok && failed.Reason != nil:
		return failed.Reason.Error()
	case o.Response != nil:
		return "status " + strconv.Itoa(o.Response.StatusCode)
	}
	kind := resilienthttp.ErrorType(o.Err)
	if kind == "_OTHER" {
		return textOf(o.Err)
	}
	return strings.ReplaceAll(kind, "_", " ")
}

var (
	address = regexp.MustCompile(`(?i)\b((get|post) )?"?https?://[^\s"]+"?:? ?`)
	figure  = regexp.MustCompile(`\d+`)
)

// textOf returns the text of another library's error, without what differs from call to call.
func textOf(err error) string {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	text := figure.ReplaceAllString(address.ReplaceAllString(err.Error(), ""), "n")
	for _, next := range []string{". ", ", ", "\n"} { // the last response, and the errors of other attempts
		text, _, _ = strings.Cut(text, next)
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

func newRun(name string, r fleet.Result, w *watch) Run {
	run := Run{Name: name, Result: r}
	for _, counts := range []*[]int{&run.Arrivals, &run.Load, &run.Goodput} {
		*counts = append(*counts, make([]int, len(w.latencies))...)[:len(w.latencies)]
	}
	for second, l := range w.latencies {
		slices.Sort(l)
		run.P50s = append(run.P50s, fleet.Quantile(l, 0.5).Seconds())
		run.P99s = append(run.P99s, fleet.Quantile(l, 0.99).Seconds())
		run.AttemptsPerCalls = append(run.AttemptsPerCalls, float64(run.Load[second])/float64(max(run.Arrivals[second], 1)))
	}
	for text, calls := range w.ended {
		run.Ended = append(run.Ended, Cause{text, calls})
	}
	slices.SortFunc(run.Ended, func(a, b Cause) int { return cmp.Or(b.Calls-a.Calls, strings.Compare(a.Text, b.Text)) })
	return run
}

// Sentences compare each library with the bare client, and say what ended its failed calls.
func (r *Report) Sentences() (all []string) {
	bare := &r.Runs[0]
	for i := range r.Runs[1:] {
		run := &r.Runs[1+i]
		verdict := "as good as bare"
		switch points := 100 * (run.Success() - bare.Success()); {
		case math.Abs(points) < 0.05:
		case points > 0:
			verdict = fmt.Sprintf("better than bare by %.1f percentage points", points)
		default:
			verdict = fmt.Sprintf("worse than bare by %.1f percentage points", -points)
		}
		text := fmt.Sprintf("%s is %s: %s of %s calls succeed (bare: %s), with %.2f attempts per call and a p99 of %s (bare: %s).",
			run.Name, verdict, percent(run.Success()), grouped(run.Offered), percent(bare.Success()), run.AttemptsPerCall(), seconds(run.P99), seconds(bare.P99))
		if failed := run.Offered - run.Succeeded; failed > 0 {
			var causes []string
			for _, c := range run.Ended {
				causes = append(causes, c.Text+" ("+grouped(c.Calls)+")")
			}
			text += fmt.Sprintf(" Failed calls: %s. They ended by: %s.", grouped(failed), strings.Join(causes, ", "))
		}
		if names := run.decisive(); len(names) > 0 && run.Name == peers.Ours {
			text += " These fields decide about them: " + strings.Join(names, ", ") + "."
		}
		all = append(all, text)
	}
	return all
}

// decisive returns the fields that decide about the failed calls, at most three, those of the most frequent cause first.
func (r *Run) decisive() (names []string) {
	timeouts := []error{resilienthttp.ErrDeadline, resilienthttp.ErrAttemptTimeout}
	for _, cause := range r.Ended {
		for _, field := range []struct {
			name   string
			causes []error // that end calls
		}{
			{"Policy.MaxAttempts", []error{resilienthttp.ErrMaxAttempts}},
			{"Policy.MaxRetryAfter", []error{resilienthttp.ErrRetryAfter}},
			{"Budget.Ratio", []error{resilienthttp.ErrBudgetExhausted}},
			{"Budget.Burst", []error{resilienthttp.ErrBudgetExhausted}},
			{"Breaker.MaxWait", []error{resilienthttp.ErrBreakerOpen}},
			{"Breaker.MaxCooldown", []error{resilienthttp.ErrBreakerOpen}},
			{"RateLimit.MaxWait", []error{resilienthttp.ErrRateLimited}},
			{"Policy.AttemptTimeout", append(timeouts, resilienthttp.ErrMaxAttempts)},
			{"Hedge.Delay", timeouts},
		} {
			decides := slices.ContainsFunc(field.causes, func(err error) bool { return err.Error() == cause.Text })
			if decides && len(names) < 3 && !slices.Contains(names, field.name) {
				names = append(names, field.name)
			}
		}
	}
	return names
}

// percent has one digit, and more if a failure would not be visible.
func percent(ratio float64) string {
	for _, digits := range []int{1, 2} {
		if text := fmt.Sprintf("%.*f\u00a0%%", digits, 100*ratio); ratio == 1 || !strings.HasPrefix(text, "100.0") {
			return text
		}
	}
	return fmt.Sprintf("%.3f\u00a0%%", 100*ratio)
}

// seconds formats a time with about two digits.
func seconds(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", 1000*d.Seconds())
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// grouped formats a number with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plot is a picture of the page.
type plot struct {
	Title string
	Image template.URL
}

// The size of a plot: its text is legible on a phone.
const plotWidth, plotHeight = 360, 210

// plots draw each library beside the bare client.
func (r *Report) plots() ([]plot, error) {
	var all []plot
	for _, p := range []struct {
		title  string
		values func(*Run) []float64
		log    bool
	}{
		{"Requests per second at the server", func(r *Run) []float64 { return floats(r.Load) }, false},
		{"Successful calls per second", func(r *Run) []float64 { return floats(r.Goodput) }, false},
		{"Attempts per call", func(r *Run) []float64 { return r.AttemptsPerCalls }, false},
		{"Median latency of successful calls (s)", func(r *Run) []float64 { return r.P50s }, true},
		{"p99 latency of successful calls (s)", func(r *Run) []float64 { return r.P99s }, true},
	} {
		panel, ok := r.panel(p.values, p.log)
		if !ok {
			continue
		}
		svg, err := chart.SVG(plotWidth, plotHeight, panel)
		if err != nil {
			return nil, err
		}
		all = append(all, plot{p.title, template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg))}) //nolint:gosec // base64
	}
	return all, nil
}

// panel has a line for each run. A logarithmic one leaves out seconds without a value, and is not ok
// without any.
func (r *Report) panel(values func(*Run) []float64, log bool) (panel chart.Panel, ok bool) {
	panel = chart.Panel{X: "seconds", LogY: log, Band: r.Band}
	low, high := math.Inf(1), 0.0
	for i, run := range r.drawn() {
		line := chart.Line{Name: run.Name, Thick: i == 0}
		for second, v := range values(run) {
			if log && v <= 0 {
				continue
			}
			line.Points = append(line.Points, chart.Point{X: float64(second), Y: v})
			low, high = min(low, v), max(high, v)
		}
		ok = ok || len(line.Points) > 0
		panel.Lines = append(panel.Lines, line)
	}
	if log {
		panel.Min, panel.Max = decade(math.Floor(math.Log10(low))), decade(math.Ceil(math.Log10(high)))
		if panel.Max <= panel.Min {
			panel.Max = 10 * panel.Min
		}
	} else {
		panel.Max = max(1.05*high, 1)
	}
	return panel, ok
}

// drawn returns the runs in the order of their lines: the first library is thick, the bare client
// is the second and black.
func (r *Report) drawn() []*Run {
	runs := []*Run{&r.Runs[1], &r.Runs[0]}
	for i := 2; i < len(r.Runs); i++ {
		runs = append(runs, &r.Runs[i])
	}
	return runs
}

func decade(exponent float64) float64 { return math.Pow(10, exponent) }

func floats(counts []int) []float64 {
	all := make([]float64, len(counts))
	for i, n := range counts {
		all[i] = float64(n)
	}
	return all
}
