package ratelimitheader

import (
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// moment is the time of a quota's next reset: a wait in [0, MaxReset], or an instant.
type moment struct {
	wait    time.Duration // or unknown
	instant time.Time
}

// parseReset parses a reset; see [Parse] for the forms, which exclude each other.
func (p *parser) parseReset(s string) (m moment, ok bool) {
	if n, ok := number(s); ok {
		return p.numericReset(n), true
	}
	if strings.IndexByte(s, '-') == 4 { // of the year
		for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00"} { // Atlassian omits the seconds
			if t, err := time.Parse(layout, s); err == nil {
				return moment{instant: t}, true
			}
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return moment{wait: min(d, MaxReset)}, true
	}
	if t, ok := retryafter.ParseDate(s); ok {
		return moment{instant: t}, true
	}
	return moment{}, false
}

// numericReset distinguishes epoch times from seconds by their size. 1e9 seconds are 31
// years, and 1e11 ms after the epoch was in 1973. If the server's clock is before 1e9, as in a
// testing/synctest bubble, which starts in the year 2000, epoch times start at 9e8.
func (p *parser) numericReset(n retryafter.Number) moment {
	switch {
	case n.Whole > 1e11:
		return moment{instant: n.Time(time.Millisecond)}
	case n.Whole > 1e9, n.Whole >= 9e8 && p.written().Unix() < 1e9:
		return moment{instant: n.Time(time.Second)}
	}
	return moment{wait: n.Duration(time.Second)}
}

// number parses a number, or the first one of a list, without its parameters: "100, 100;w=60", two
// lines that a proxy has joined, and Docker Hub's "76;w=21600".
func number(s string) (n retryafter.Number, ok bool) {
	end := 0
	for end < len(s) && s[end] != ',' && s[end] != ';' {
		end++
	}
	return retryafter.ParseNumber(s[:end])
}
