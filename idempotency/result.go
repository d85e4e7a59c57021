package idempotency

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// replayedHeader marks a response that was made for an earlier request.
const replayedHeader = "Idempotency-Replayed"

// result is what is stored of a response that is not tooLarge.
//
// In its header, a field without any value is one that must not be there: a
// handler can suppress what net/http would add, and take away what middleware has
// set. Trailers are fields with http.TrailerPrefix, as net/http takes them.
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
	c.storeLength(h)
	return Result{Code: c.code, Header: h, Body: c.body.memory}
}

// storable reports whether a field belongs to the result. What middleware around
// this package has set, and the handler has left alone, does not: the middleware
// will set its own on each replay, a request's id or what a browser's origin is
// allowed. Content-Type and the like describe the body and stay with it;
// Content-Encoding is the work of who announces it, each time that it is done.
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

// ofOneResponse reports whether a field means one response, or one connection,
// and not those that repeat it. docs/server-idempotency.md lists them.
func ofOneResponse(canonical string) bool {
	name := strings.TrimPrefix(canonical, "X-")
	switch name {
	case "Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", // RFC 9110, section 7.6.1
		"Date", "Age", "Server-Timing", replayedHeader:
		return true

	// Credentials, and the challenges to them: who repeats a request may be another
	// user of the same tenant, or a session later.
	case "Authorization", "Www-Authenticate", "Authentication-Info", // RFC 9110, section 11; Proxy- is below
		"Set-Cookie", "Set-Cookie2", "Cookie", "Api-Key", "Auth-Token", "Access-Token", "Refresh-Token", "Id-Token",
		"Session-Token", "Subject-Token", "Amz-Security-Token", "Csrf-Token", "Csrftoken", "Xsrf-Token":
		return true
	}
	for _, prefix := range [...]string{
		"Proxy-", "Ratelimit", "Rate-Limit", // what is left of a quota is so now
		http.TrailerPrefix, // see storeTrailers
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// storeTrailers stores those of the handler's own. Where it has announced them,
// the announcement is in the header already.
func (c *capture) storeTrailers(h http.Header) {
	for key, values := range c.trailers {
		name := textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(key, http.TrailerPrefix))
		if len(values) > 0 && !slices.Equal(values, c.before[key]) && !ofOneResponse(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// connectionFields are the fields that Connection says end with the connection.
func connectionFields(h http.Header) []string {
	var names []string
	for name, values := range h {
		if textproto.CanonicalMIMEHeaderKey(name) == "Connection" {
			names = slices.AppendSeq(names, listed(values))
		}
	}
	return names
}

// listed are the names of fields that a field lists, Trailer or Connection.
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

// storeSniffed stores the Content-Type that net/http finds for this response, by
// its first bytes up to the first flush; those of a replay might tell otherwise.
func (c *capture) storeSniffed(h http.Header) {
	_, set := c.snapshot["Content-Type"]
	if set || c.log.total == 0 || c.snapshot.Get("Content-Encoding") != "" {
		return // nothing is sniffed, here and in a replay
	}
	first := int64(len(c.body.memory))
	if c.log.flushed {
		first = min(first, c.log.atFlush)
	}
	if first == 0 || c.http1() && c.snapshot.Get("Transfer-Encoding") != "" {
		h["Content-Type"] = nil
		return
	}
	h["Content-Type"] = []string{http.DetectContentType(c.body.memory[:first])}
}

// storeLength keeps net/http from giving a replay a Content-Length where the
// response has none: it was flushed, or had trailers.
func (c *capture) storeLength(h http.Header) {
	_, set := c.snapshot["Content-Length"]
	if set || !bodyAllowed(c.code) || c.r.Method == http.MethodHead && c.log.total == 0 {
		return
	}
	gathered := int64(bufferedByHTTP2)
	unknown := c.log.flushed
	if c.http1() {
		gathered = buffered
		unknown = unknown || len(c.trailers) > 0 || c.snapshot.Get("Transfer-Encoding") != ""
	}
	if unknown && c.log.total <= gathered {
		h["Content-Length"] = nil
	}
}

func (c *capture) http1() bool { return c.r.ProtoMajor < 2 }

// replay sends a stored result. What middleware has set for this response stays,
// unless the result has a field of that name.
func replay(w http.ResponseWriter, res Result) {
	h := w.Header()
	for name, values := range res.Header {
		if len(values) == 0 {
			h[name] = nil // net/http adds none, and sends none
			continue
		}
		h[name] = slices.Clone(values) // the store's own may be shared
	}
	h.Set(replayedHeader, "true")
	code := res.Code
	if code < http.StatusOK || code > 999 {
		code = http.StatusOK // somebody settled the record who knows no HTTP
	}
	w.WriteHeader(code)
	if bodyAllowed(code) && len(res.Body) > 0 {
		w.Write(res.Body)
	}
	replayTrailers(h, res.Header)
}

// replayTrailers puts those that were announced where net/http looks for them. The
// others are there, by their prefix.
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
