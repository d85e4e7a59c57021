package statepage

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// plural returns "1 call", "2 calls".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// grouped returns a number with thousands separators.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func count(n int) string { return grouped(int64(n)) }

// ratioOf returns "3 of 1,000".
func ratioOf(part, whole int) string { return count(part) + " of " + count(whole) }

// formatSeconds returns a time in seconds with its unit, to three digits.
func formatSeconds(seconds float64) string {
	unit := func(x float64, name string) string {
		digits := 0
		switch {
		case x < 10:
			digits = 2
		case x < 100:
			digits = 1
		}
		s := strconv.FormatFloat(x, 'f', digits, 64)
		if digits > 0 {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s + " " + name
	}
	switch {
	case seconds <= 0:
		return "0 s"
	case seconds < 1e-3:
		return unit(seconds*1e6, "µs")
	case seconds < 0.9995:
		return unit(seconds*1e3, "ms")
	case seconds < 120:
		return unit(seconds, "s")
	case seconds < 7200:
		return unit(seconds/60, "min")
	case seconds < 48*3600:
		return unit(seconds/3600, "h")
	}
	return unit(seconds/86400, "d")
}

// formatDuration is formatSeconds for a time.Duration, which may be negative.
func formatDuration(d time.Duration) string {
	if d < 0 {
		return "-" + formatSeconds(-d.Seconds())
	}
	return formatSeconds(d.Seconds())
}

// formatRemaining shows the whole part of a number, and two digits below 1.
func formatRemaining(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.2g", x)
	}
	return grouped(int64(min(x, math.MaxInt64/2)))
}

// percent returns a ratio from 0 to 100, to a tenth.
func percent(part, whole float64) float64 {
	if !(whole > 0) {
		return 0
	}
	return math.Round(min(max(part/whole, 0), 1)*1000) / 10
}

// percentOf returns a ratio with three digits. It is 100 % only if it is all.
func percentOf(part, whole int) string {
	x := 100 * float64(part) / float64(max(whole, 1))
	if part < whole {
		x = min(x, 99.9)
	}
	return fmt.Sprintf("%.3g %%", x)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.0") }

func timeUntil(t, now time.Time) string { return "in " + formatSeconds(t.Sub(now).Seconds()) }

func timeSince(t, now time.Time) string { return formatSeconds(now.Sub(t).Seconds()) + " ago" }
