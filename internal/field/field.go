// Package field reads and writes values of header fields: strings of structured fields (RFC 9651), priorities and entity tags.
package field

import (
	"net/http"
	"strings"
)

// Value is Header.Get for a name that is canonical, which is much quicker.
func Value(h http.Header, canonical string) string {
	if values := h[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Find returns the name of a field with a value in a header, and that of one without, or "". They may be in any case, because
// net/http sends names unchanged. The canonical one comes first.
func Find(h http.Header, canonical string) (name, empty string) {
	for other := range h {
		switch {
		case len(other) != len(canonical) || !strings.EqualFold(other, canonical):
		case Value(h, other) == "":
			empty = other
		case name != canonical:
			name = other
		}
	}
	return name, empty
}

// String parses the string at the beginning of s (RFC 9651, section 4.2.5), and returns its
// text and the rest of s. ok is false, and rest is s, if there is no valid string. A string
// has quotes, visible ASCII and spaces, and the escapes \" and \\.
func String(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	var unescaped strings.Builder
	copied := 1
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if copied == 1 { // no escapes, nothing to copy
				return s[1:i], s[i+1:], true
			}
			unescaped.WriteString(s[copied:i])
			return unescaped.String(), s[i+1:], true
		case c == '\\':
			unescaped.WriteString(s[copied:i])
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", s, false
			}
			copied = i // the escaped character is copied with the text after it
		case c < ' ' || c > '~':
			return "", s, false
		}
	}
	return "", s, false // no closing quote
}

// Quote returns text as a string (section 4.1.6). The text must be visible ASCII and spaces.
func Quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// PriorityHeader is the name of the field with a request's priority.
const PriorityHeader = "X-Request-Priority"

// The three priorities. A greater number is more important.
const (
	Batch    int8 = -1
	Default  int8 = 0
	Critical int8 = 1
)

// ParsePriority returns the priority of a field's value, in any letter case and with optional blanks
// around it. A value other than batch and critical means Default.
func ParsePriority(value string) int8 {
	switch value = strings.TrimSpace(value); {
	case strings.EqualFold(value, "batch"):
		return Batch
	case strings.EqualFold(value, "critical"):
		return Critical
	}
	return Default
}

// FormatPriority returns the field's value: "" for Default, which is not sent.
func FormatPriority(p int8) string {
	switch p {
	case Batch:
		return "batch"
	case Critical:
		return "critical"
	}
	return ""
}

// ExecutedHeader is the name of the response field by which a server says whether it has executed anything of the
// request, a Boolean (RFC 9651, section 3.3.6).
const ExecutedHeader = "Request-Executed"

// NotExecuted is the value of ExecutedHeader that says: nothing was executed. No server of this repository sends true.
const NotExecuted = "?0"

// StrongTag returns the strong entity tag of a response (RFC 9110 section 8.8.3), with its quotes, or "" if
// the response does not have exactly one. Different contents may share a weak tag (W/), but not a strong one.
func StrongTag(h http.Header) string {
	tags := h.Values("ETag")
	if len(tags) != 1 {
		return ""
	}
	inner, begins := strings.CutPrefix(tags[0], `"`)
	inner, ends := strings.CutSuffix(inner, `"`)
	if !begins || !ends || strings.ContainsFunc(inner, func(r rune) bool { return r < '!' || r == '"' || r == 0x7f }) {
		return ""
	}
	return tags[0]
}
