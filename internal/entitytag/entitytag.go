// Package entitytag reads entity tags (RFC 9110 section 8.8.3).
package entitytag

import (
	"net/http"
	"strings"
)

// Strong returns the strong entity tag of a response, with its quotes, or "" if the response does
// not have exactly one. Different contents may share a weak tag (W/), but not a strong one.
func Strong(h http.Header) string {
	if tags := h.Values("ETag"); len(tags) == 1 && isStrong(tags[0]) {
		return tags[0]
	}
	return ""
}

func isStrong(tag string) bool {
	inner, ok := strings.CutPrefix(tag, `"`)
	if !ok {
		return false
	}
	inner, ok = strings.CutSuffix(inner, `"`)
	if !ok {
		return false
	}
	for _, c := range []byte(inner) {
		if c < 0x21 || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}
