// Package structured reads and writes the strings of structured fields, RFC 9651
// (and RFC 8941, which says the same of them).
package structured

import "strings"

// String reads the string that s begins with (RFC 9651, section 4.2.5), and
// returns what is behind it. ok is false where there is none: no quotes, another
// escape than those of quote and backslash, or anything but visible ASCII and
// spaces.
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
			copied = i // the escaped character goes along with what follows it
		case c < ' ' || c > '~':
			return "", s, false
		}
	}
	return "", s, false // no closing quote
}

// Quote writes text, which must be visible ASCII and spaces, as a string (section
// 4.1.6).
func Quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
