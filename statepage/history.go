package statepage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// picture shows the calls and the failures per second of the last 5 min: two paths of SVG, in a square of 100.
type picture struct{ Calls, Failures, Label string }

// newPicture adds up the scopes. Those of several Transports may be apart by a part of a step. It is nil if no call has ended.
func newPicture(scopes []ownedScope, now time.Time) *picture {
	var calls, failures []float64
	for _, o := range scopes {
		h := &o.History
		for i := range h.Calls {
			if i == len(calls) {
				calls, failures = append(calls, 0), append(failures, 0)
			}
			seconds := h.Step
			if i == len(h.Calls)-1 {
				seconds = min(max(now.Sub(h.At).Seconds(), 1), h.Step)
			}
			calls[i] += float64(h.Calls[i]) / seconds
			failures[i] += float64(h.Failures[i]) / seconds
		}
	}
	most, mostFailures := 0.0, 0.0
	for i := range calls {
		most, mostFailures = max(most, calls[i]), max(mostFailures, failures[i])
	}
	if most == 0 {
		return nil
	}
	return &picture{
		Calls: bars(calls, most), Failures: bars(failures, most),
		Label: "At most " + formatRate(most) + " calls per second, failed: " + formatRate(mostFailures),
	}
}

// bars returns the path of the bars that are not 0.
func bars(rates []float64, most float64) string {
	var path strings.Builder
	width := 100 / float64(len(rates))
	for i, rate := range rates {
		if rate > 0 {
			_, _ = fmt.Fprintf(&path, "M%.4g 100v-%.4gh%.4gV100z", width*float64(i), 100*rate/most, 0.9*width)
		}
	}
	return path.String()
}

// formatRate shows two digits, or all of the whole part.
func formatRate(x float64) string {
	switch {
	case x >= 10:
		return grouped(int64(x + 0.5))
	case x == 0:
		return "0"
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}
