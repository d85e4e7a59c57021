package ratelimitheader

import (
	"strconv"
	"strings"
)

// quotaExceeded is the type of the problem.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Violated returns the names of the policies in a body that is the problem quota-exceeded of draft-ietf-httpapi-ratelimit-headers,
// at most MaxDimensions. It returns nil for another body. Other names than those of RateLimit-Policy are left out: a line feed
// would forge a line of a transcript.
//
// It reads the few strings of such a body by itself: encoding/json would add .4 MB to each program. A body that is JSON has
// the result of encoding/json, for keys that are written as in the draft and once. Of another body the result is unspecified.
func Violated(problem []byte) (names []string) {
	kind, key, depth := "", "", 0
	for rest := unescaped(problem); rest != ""; {
		if rest[0] != '"' {
			depth += nesting(rest[0])
			rest = rest[1:]
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil
		}
		text, _ := strconv.Unquote(quoted) // no error: the prefix is valid
		rest = strings.TrimLeft(rest[len(quoted):], " \t\r\n")
		switch isKey := strings.HasPrefix(rest, ":"); {
		case isKey && depth == 1:
			key = text
		case isKey && depth == 2: // the value is an object, and has no string for us
			key = ""
		case depth == 1 && key == "type":
			kind = text
		case depth == 2 && key == "violated-policies" && isName(text):
			names = append(names, text)
		}
	}
	if kind != quotaExceeded || depth != 0 {
		return nil
	}
	return names[:min(len(names), MaxDimensions)]
}

// unescaped makes the strings of JSON strings of Go, which have no escaped slash and no halves of a surrogate pair. A half
// becomes another character that no name may have.
func unescaped(problem []byte) string {
	return strings.NewReplacer(`\\`, `\\`, `\/`, `/`, `\ud`, `\u3`, `\uD`, `\u3`).Replace(string(problem))
}

// nesting returns by how much a byte outside of strings changes the depth.
func nesting(c byte) int {
	switch c {
	case '{', '[':
		return 1
	case '}', ']':
		return -1
	}
	return 0
}

// isName reports whether a policy may have this name.
func isName(text string) bool {
	printable := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
	return printable && text != "" && len(text) <= MaxName
}
