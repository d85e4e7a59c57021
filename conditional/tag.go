package conditional

import (
	"net/http"
	"strings"
	"time"
)

// condition is a header of a PUT that lets it be done in one state only.
type condition struct{ name, value string }

// creation lets a PUT create, and never overwrite (RFC 9110 section 13.1.2).
func creation() condition { return condition{"If-None-Match", "*"} }

// conditionOf is what holds as long as the resource is as this answer shows it. "" is
// the name of none.
func conditionOf(h http.Header, dates bool) condition {
	if tags := h.Values("ETag"); len(tags) == 1 && strong(tags[0]) {
		return condition{"If-Match", tags[0]}
	}
	if dates && datesStrongly(h) {
		return condition{"If-Unmodified-Since", h.Get("Last-Modified")}
	}
	return condition{}
}

// strong reports whether tag is a strong entity tag (RFC 9110 section 8.8.3): quoted,
// and without a W/ before it, which would say that different contents may share it.
func strong(tag string) bool {
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

// datesStrongly reports whether Last-Modified tells versions apart: it is by the same
// clock at least a second older than the answer, so nothing can change any more
// without changing it (RFC 9110 section 8.8.2.2).
func datesStrongly(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false
	}
	date, err := http.ParseTime(h.Get("Date"))
	return err == nil && date.Sub(modified) >= time.Second
}
