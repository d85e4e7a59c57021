// Package validate collects the errors of a configuration. Each error names its field.
package validate

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Errors is a list of errors. Of must be set. It is not safe for concurrent use.
type Errors struct {
	// Of is the error that each error wraps and begins with, except those of Append.
	Of error

	all []error
}

// Err returns all errors, joined, or nil.
func (l *Errors) Err() error { return errors.Join(l.all...) }

// Check adds an error if wrong is true.
func (l *Errors) Check(wrong bool, what string) {
	if wrong {
		l.Addf("%s", what)
	}
}

// Addf adds an error with a formatted text. Its caller checks the condition before, so that a valid value
// formats nothing.
func (l *Errors) Addf(format string, args ...any) {
	l.all = append(l.all, fmt.Errorf("%w: %s", l.Of, fmt.Sprintf(format, args...)))
}

// Append adds err unchanged, unless it is nil.
func (l *Errors) Append(err error) { l.all = append(l.all, err) }

// Duration adds an error for a positive duration below a microsecond, which probably has no unit:
// 5 means five nanoseconds. 1 ns is allowed, as the minimum where 0 means the default.
func (l *Errors) Duration(field string, d time.Duration) {
	if d > 1 && d < time.Microsecond {
		l.Addf("%s is %v, must be at least 1µs (was the unit forgotten?)", field, d)
	}
}

// Ratio adds an error if x looks like a percentage. A ratio is at most 1, and a number above 100
// means no limit.
func (l *Errors) Ratio(field string, x float64) {
	if x >= 10 && x <= 100 {
		l.Addf("%s is %v, must be a ratio from 0 to 1, not a percentage", field, x)
	}
}

// Header adds an error if name is not a valid name of a header field, or is the name of a
// standard field.
func (l *Errors) Header(field, name string) {
	l.Check(!Token(name), field+" is not the name of a header field")
	name = textproto.CanonicalMIMEHeaderKey(name)
	l.Check(slices.Contains(standardFields[:], name), field+" is "+name+", which has another meaning in HTTP")
}

var standardFields = [...]string{ //nolint:gochecknoglobals // never written to
	"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Host", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Token reports whether name is a token (RFC 9110, section 5.6.2), as the names of methods
// and of header fields are.
func Token(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r|' ' >= 'a' && r|' ' <= 'z'
		digit := r >= '0' && r <= '9'
		return !letter && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
