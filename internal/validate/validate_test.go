package validate_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/validate"
)

var errOurs = errors.New("ours")

func TestErrors(t *testing.T) {
	for _, row := range []struct {
		name string
		add  func(*validate.Errors)
		want string // "": no error
	}{
		{"nothing", func(*validate.Errors) {}, ""},
		{"false and nil: no error", func(l *validate.Errors) { l.Check(false, "no"); l.Append(nil) }, ""},
		{"two errors: joined", func(l *validate.Errors) { l.Check(true, "A"); l.Addf("%s%d", "B", 2) }, "ours: A\nours: B2"},
		{"Append: unchanged", func(l *validate.Errors) { l.Check(true, "A"); l.Append(errors.New("theirs")) }, "ours: A\ntheirs"},
		{"a duration without a unit", func(l *validate.Errors) { l.Duration("F", 30) }, "ours: F is 30ns, must be at least 1µs (was the unit forgotten?)"},
		{"the limits of a duration without a unit", func(l *validate.Errors) { l.Duration("F", 2); l.Duration("G", time.Microsecond-1) }, "ours: F is 2ns, must be at least 1µs (was the unit forgotten?)\nours: G is 999ns, must be at least 1µs (was the unit forgotten?)"},
		{"valid durations", func(l *validate.Errors) {
			for _, d := range []time.Duration{math.MinInt64, -5, 0, 1, time.Microsecond, math.MaxInt64} {
				l.Duration("F", d)
			}
		}, ""},
		{"a percentage", func(l *validate.Errors) { l.Ratio("F", 99.9) }, "ours: F is 99.9, must be a ratio from 0 to 1, not a percentage"},
		{"valid ratios", func(l *validate.Errors) {
			for _, x := range []float64{-1, 0, 0.5, 1, 9, 1000, math.NaN(), math.Inf(1)} {
				l.Ratio("F", x)
			}
		}, ""},
		{"valid header fields", func(l *validate.Errors) { l.Header("H", "Idempotency-Key"); l.Header("H", "x_y") }, ""},
		{"invalid header fields", func(l *validate.Errors) { l.Header("H", "a b"); l.Header("H", "") }, "ours: H is not the name of a header field\nours: H is not the name of a header field"},
		{"a standard header field", func(l *validate.Errors) { l.Header("H", "content-length") }, "ours: H is Content-Length, which has another meaning in HTTP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := validate.Errors{Of: errOurs}
			row.add(&l)
			if row.want == "" {
				require.NoError(t, l.Err())
				return
			}
			require.EqualError(t, l.Err(), row.want)
		})
	}
	l := validate.Errors{Of: errOurs}
	l.Check(true, "A")
	require.ErrorIs(t, l.Err(), errOurs)
}

// A Policy is checked at each call.
func TestErrors_validCostsNothing(t *testing.T) {
	d, x := time.Duration(time.Now().Unix())*time.Second, float64(time.Now().Unix())
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l := validate.Errors{Of: errOurs}
		l.Duration("F", d)
		l.Ratio("F", x)
		require.NoError(t, l.Err())
	}))
}
