package conditional

import (
	"net/http"
	"strings"
	"time"
)

// condition is a header field that makes a PUT conditional.
type condition struct{ name, value string }

// ifNoneExists permits a PUT only to create the resource (RFC 9110 section 13.1.2).
func ifNoneExists() condition { return condition{"If-None-Match", "*"} }

// conditionOf returns the condition that the resource is unchanged since a response with this
// header. Its name is "" if the header has no usable validator.
func conditionOf(h http.Header, useDates bool) condition {
	if tags := h.Values("ETag"); len(tags) == 1 && isStrong(tags[0]) {
		return condition{"If-Match", tags[0]}
	}
	if useDates && hasStrongDate(h) {
		return condition{"If-Unmodified-Since", h.Get("Last-Modified")}
	}
	return condition{}
}

// isStrong reports whether tag is a strong entity tag (RFC 9110 section 8.8.3): quoted and
// without the prefix W/. Different contents may share a weak tag.
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

// hasStrongDate reports whether Last-Modified identifies the version: it is at least one
// second older than the response's Date, so each later change gets another date
// (RFC 9110 section 8.8.2.2).
func hasStrongDate(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false
	}
	date, err := http.ParseTime(h.Get("Date"))
	return err == nil && date.Sub(modified) >= time.Second
}
