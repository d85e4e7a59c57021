// Package structured parses and writes strings of structured fields (RFC 9651 and RFC 8941).
// Its functions are pure and safe for concurrent use.
package structured

import "strings"

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
