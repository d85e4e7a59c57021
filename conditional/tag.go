package conditional

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// condition is a header field that makes a PUT conditional.
type condition struct{ name, value string }

// conditionOf returns the condition that the resource is unchanged since a response with this
// header. Its name is "" if the header has no usable validator.
func conditionOf(h http.Header, useDates bool) condition {
	if tag := field.StrongTag(h); tag != "" {
		return condition{"If-Match", tag}
	}
	if useDates && hasStrongDate(h) {
		return condition{"If-Unmodified-Since", h.Get("Last-Modified")}
	}
	return condition{}
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
