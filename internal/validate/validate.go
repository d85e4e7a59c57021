// Package validate says what is wrong with a configuration, all of it and each by the
// name of its field: what cannot work, and what nobody can mean.
package validate

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// List is what is wrong. It is not safe for concurrent use.
type Errors struct {
	// Of is what each complaint is: an error that it wraps, and begins with. It must be
	// set.
	Of error

	all []error
}

// Err is all that was added, joined; nil: nothing is wrong.
func (l *Errors) Err() error { return errors.Join(l.all...) }

// Add complains of what is wrong.
func (l *Errors) Check(wrong bool, what string) {
	if wrong {
		l.all = append(l.all, fmt.Errorf("%w: %s", l.Of, what))
	}
}

// Also adds somebody else's complaint; nil is none.
func (l *Errors) Append(err error) {
	if err != nil {
		l.all = append(l.all, err)
	}
}

// Unit complains of a time whose unit was forgotten: 5 is five nanoseconds. One, the least
// there is, may be meant where 0 is the default.
func (l *Errors) Duration(field string, d time.Duration) {
	l.Check(d > 1 && d < time.Microsecond, fmt.Sprintf("%s is %v: its unit was forgotten", field, d))
}

// mostPercent is what no percentage exceeds: a number beyond it says that there is no cap.
const mostPercent = 100

// Share complains of a percentage: a share of all is at most 1.
func (l *Errors) Ratio(field string, x float64) {
	l.Check(x >= 10 && x <= mostPercent, fmt.Sprintf("%s is %v: a share of all, not a percentage, is at most 1", field, x))
}

// Header complains of the name of a header field that cannot be sent, or that means
// something else.
func (l *Errors) Header(field, name string) {
	l.Check(!Token(name), field+" is not a field name")
	name = textproto.CanonicalMIMEHeaderKey(name)
	l.Check(slices.Contains(taken[:], name), field+" is "+name+", which means something else")
}

var taken = [...]string{ //nolint:gochecknoglobals // never written to
	"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Host", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Token reports whether it is one of RFC 9110, section 5.6.2, as the names of methods and
// of header fields are.
func Token(name string) bool {
	for n := range len(name) {
		c := name[n]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}
