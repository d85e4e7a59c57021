package netfail

import (
	"errors"
	"net/url"
	"strings"
)

// ReasonedError is a cause with a reason, which errors.Is finds as well, in front of
// it.
type ReasonedError struct{ Reason, Cause error }

// With is err, preceded by reason where errors.Is does not find it in err.
func With(reason, err error) error {
	if errors.Is(err, reason) {
		return err
	}
	return &ReasonedError{reason, err}
}

func (b *ReasonedError) Error() string   { return b.Reason.Error() + ": " + b.Cause.Error() }
func (b *ReasonedError) Unwrap() []error { return []error{b.Reason, b.Cause} }

// longest is the most of a text that is told.
const longest = 256

// Describe is an error's text, on one line, without what must not be told: URLs
// with their queries, and what a server wrote that net/http could not parse.
func Describe(err error) string {
	if b, ok := err.(*ReasonedError); ok { //nolint:errorlint // what wraps it has a text of its own
		return b.Reason.Error() + ": " + Describe(b.Cause)
	}
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		op := strings.ToLower(withURL.Op)
		if withURL.Err == nil {
			return op
		}
		return op + ": " + Describe(withURL.Err)
	}
	if tokenRefusal(err) != nil {
		return "no token from the token endpoint (its answer is not shown)"
	}
	text := err.Error()
	if i := quotation(text); i >= 0 {
		text = strings.TrimRight(text[:i], " ") + " (not shown)"
	}
	text = strings.ToValidUTF8(text, "")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// quotation is where an error of net/http begins to quote what the peer has
// sent, or what was to be sent, behind the first of the words that announce it;
// -1 if it does not. Names and schemes that it quotes may be told.
func quotation(text string) int {
	first := -1
	for _, announced := range [...]string{
		"malformed ", "bad Content-Length", "bad trailer key", "multiple Content-Length", "transfer encoding",
		"request header", "request :path", "debug=", // HTTP/2's
	} {
		i := strings.Index(text, announced)
		if i < 0 {
			continue
		}
		i += len(announced)
		if j := strings.IndexAny(text[i:], "\":["); j >= 0 && (first < 0 || i+j < first) {
			first = i + j
		}
	}
	return first
}
