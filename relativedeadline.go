package resilienthttp

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	timeoutHeader     = "X-Request-Timeout-Ms"
	grpcTimeoutHeader = "Grpc-Timeout"

	// grpcMax is the largest number of grpc-timeout, which has at most eight digits.
	grpcMax    = 99_999_999
	grpcDigits = 8
)

// grpcUnits are the units of grpc-timeout, the finest first. See "Timeout" in
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
var grpcUnits = [...]struct { //nolint:gochecknoglobals // never written to
	letter byte
	length time.Duration
}{
	{'n', time.Nanosecond}, {'u', time.Microsecond}, {'m', time.Millisecond}, {'S', time.Second}, {'M', time.Minute}, {'H', time.Hour},
}

// parseRelative parses the value of a field that has the remaining time. The field's canonical name
// decides the form: grpc-timeout has a unit, and any other field has milliseconds. A time that is
// too large is clamped.
func parseRelative(name, value string) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if name == grpcTimeoutHeader {
		return parseGRPCTimeout(value)
	}
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || value[0] == '+' {
		return 0, false
	}
	const maxMillis = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, -1), maxMillis)) * time.Millisecond, true // negative: the deadline has passed
}

// formatRelative returns the value of the field for the remaining time, rounded down, because the
// receiver must not work longer than its caller waits.
func formatRelative(name string, left time.Duration) string {
	if name != grpcTimeoutHeader {
		return strconv.FormatInt(left.Milliseconds(), 10)
	}
	unit := 0
	for left/grpcUnits[unit].length > grpcMax {
		unit++ // a Duration has fewer than 3,000,000 hours
	}
	return strconv.FormatInt(int64(left/grpcUnits[unit].length), 10) + string(grpcUnits[unit].letter)
}

// parseGRPCTimeout parses one to eight digits and a unit.
func parseGRPCTimeout(value string) (time.Duration, bool) {
	digits := len(value) - 1
	if digits < 1 || digits > grpcDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(value[:digits], 10, 63) // it accepts no sign
	if err != nil {
		return 0, false
	}
	for _, unit := range grpcUnits {
		if unit.letter == value[digits] {
			most := math.MaxInt64 / int64(unit.length)
			return time.Duration(min(int64(number), most) * int64(unit.length)), true
		}
	}
	return 0, false
}
