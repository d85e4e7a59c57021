package idempotency

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// replayedHeader marks the replay of an earlier response.
const replayedHeader = "Idempotency-Replayed"

// result returns what is stored of a response that is not tooLarge.
//
// A header field without values suppresses a field that net/http or middleware would
// set. Trailers are fields with http.TrailerPrefix, as in net/http.
func (c *capture) result() Result {
	h := make(http.Header, len(c.snapshot)+1)
	named := connectionFields(c.snapshot)
	for name, values := range c.snapshot {
		if c.storable(name, values, named) {
			h[name] = values
		}
	}
	for name := range c.before {
		if _, ok := c.snapshot[name]; !ok && !ofOneResponse(textproto.CanonicalMIMEHeaderKey(name)) {
			h[name] = nil
		}
	}
	c.storeTrailers(h)
	c.storeSniffed(h)
	c.withoutLength(h)
	return Result{Code: c.code, Header: h, Body: c.body.memory}
}

// storable reports whether a field belongs to the result. A field that outer middleware
// set and the handler did not change does not: the middleware sets its own on each
// replay, such as a request id. Fields that describe the body are stored, but not
// Content-Encoding, which the middleware that compresses sets each time.
func (c *capture) storable(name string, values, named []string) bool {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if ofOneResponse(canonical) || slices.Contains(named, canonical) {
		return false
	}
	before, was := c.before[name]
	return !was || !slices.Equal(before, values) || ofTheBody(canonical)
}

// ofTheBody reports whether a field describes the body as the handler wrote it.
func ofTheBody(canonical string) bool {
	return strings.HasPrefix(canonical, "Content-") && canonical != "Content-Encoding" &&
		!strings.HasPrefix(canonical, "Content-Security-Policy")
}

// ofOneResponse reports whether a field is valid for one response or connection only.
// The list is in docs/server-idempotency.md.
func ofOneResponse(canonical string) bool {
	name := strings.TrimPrefix(canonical, "X-")
	switch name {
	case "Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", // RFC 9110, section 7.6.1
		"Date", "Age", "Server-Timing", field.ExecutedHeader, replayedHeader:
		return true

	// Credentials and challenges: a duplicate may come from another user of the tenant,
	// or from a later session.
	case "Authorization", "Www-Authenticate", "Authentication-Info", // RFC 9110, section 11; Proxy- is below
		"Set-Cookie", "Set-Cookie2", "Cookie", "Api-Key", "Auth-Token", "Access-Token", "Refresh-Token", "Id-Token",
		"Session-Token", "Subject-Token", "Amz-Security-Token", "Csrf-Token", "Csrftoken", "Xsrf-Token":
		return true
	}
	for _, prefix := range [...]string{
		"Proxy-", "Ratelimit", "Rate-Limit", // remaining quotas are valid now only
		http.TrailerPrefix, // see storeTrailers
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// storeTrailers stores the trailers that the handler set. An announcement is already in
// the header.
func (c *capture) storeTrailers(h http.Header) {
	for key, values := range c.trailers {
		name := textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(key, http.TrailerPrefix))
		if len(values) > 0 && !slices.Equal(values, c.before[key]) && !ofOneResponse(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// connectionFields returns the fields that the Connection field names.
func connectionFields(h http.Header) []string {
	var names []string
	for name, values := range h {
		if textproto.CanonicalMIMEHeaderKey(name) == "Connection" {
			names = slices.AppendSeq(names, listed(values))
		}
	}
	return names
}

// listed returns the field names in the values of Trailer or Connection.
func listed(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range values {
			for name := range strings.SplitSeq(list, ",") {
				if !yield(textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))) {
					return
				}
			}
		}
	}
}

// storeSniffed stores the Content-Type that net/http finds in the body.
func (c *capture) storeSniffed(h http.Header) {
	_, set := c.snapshot["Content-Type"]
	switch {
	case set || len(c.body.memory) == 0 || c.snapshot.Get("Content-Encoding") != "":
		// net/http sniffs neither here nor in a replay
	case c.transferEncoded():
		h["Content-Type"] = nil
	default:
		h["Content-Type"] = []string{http.DetectContentType(c.body.memory)}
	}
}

// withoutLength prevents that net/http adds a Content-Length over HTTP/1, where a response with
// trailers has none. It would drop those with http.TrailerPrefix.
func (c *capture) withoutLength(h http.Header) {
	if _, set := h["Content-Length"]; !set && (c.http1() && len(c.trailers) > 0 || c.transferEncoded()) {
		h["Content-Length"] = nil
	}
}

// transferEncoded reports whether the handler set Transfer-Encoding, which is not stored. Then
// net/http adds neither a Content-Type nor a Content-Length.
func (c *capture) transferEncoded() bool {
	return c.http1() && c.snapshot.Get("Transfer-Encoding") != ""
}

func (c *capture) http1() bool { return c.r.ProtoMajor < 2 }

// replay sends a stored result. Header fields that middleware set for this response stay,
// unless the result has a field of that name.
func replay(w http.ResponseWriter, res Result) {
	h := w.Header()
	for name, values := range res.Header {
		if len(values) == 0 {
			h[name] = nil // net/http sends none
			continue
		}
		h[name] = slices.Clone(values) // the store may share its values
	}
	h.Set(replayedHeader, "true")
	code := res.Code
	if code < http.StatusOK || code > 999 {
		code = http.StatusOK // the reconciler gave no HTTP status
	}
	w.WriteHeader(code)
	if bodyAllowed(code) && len(res.Body) > 0 {
		w.Write(res.Body)
	}
	replayTrailers(h, res.Header)
}

// replayTrailers puts announced trailers where net/http looks for them. The others have
// their prefix.
func replayTrailers(h, stored http.Header) {
	for name := range listed(stored["Trailer"]) {
		delete(h, http.TrailerPrefix+name)
		if values, ok := stored[http.TrailerPrefix+name]; ok {
			h[name] = slices.Clone(values)
		} else if _, ok := stored[name]; ok {
			delete(h, name)
		}
	}
}
