// Package route is how package endpoints chooses the server of each attempt. The root asks it for
// requests with a Route: the outermost context, so that a call without one needs no search.
//
// A Route is what package endpoints knows of the request, and a Call what the call knows of its
// servers. Pass is the one loop that chooses. See docs/endpoints.md.
package route

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Target is a server of the list. It does not change.
type Target struct {
	Name   string      // Attempt.Endpoint
	Scope  string      // the scope of its attempts
	URL    *url.URL    // in front of the path of each request
	Header http.Header // replaces fields of the request; canonical names
}

// Route is the list for one call.
type Route struct {
	context.Context //nolint:containedctx // a Route is a context

	Targets []Target // in the order of preference; not empty
	First   int      // the index of the preferred one
	Path    string   // of the request below the URL of a target, escaped
	Shared  bool     // the servers know each other's idempotency keys

	Answered *Target // of the response; set when the call ends
}

// URL returns the URL of a request at a target.
func (r *Route) URL(t *Target, req *url.URL) *url.URL {
	u := *req
	u.Scheme, u.Host = t.URL.Scheme, t.URL.Host
	SetPath(&u, Base(t.URL)+r.Path)
	return &u
}

// Apply sets the Header fields of the target in a copy of a header.
func (t *Target) Apply(h http.Header) http.Header {
	if len(t.Header) == 0 {
		return h
	}
	if h = h.Clone(); h == nil {
		h = make(http.Header)
	}
	for name := range h { // in any case: net/http sends names unchanged
		if _, ours := t.Header[http.CanonicalHeaderKey(name)]; ours {
			delete(h, name)
		}
	}
	for name, values := range t.Header {
		h[name] = slices.Clip(values)
	}
	return h
}

// Base returns the escaped path of a target's URL, without a slash at its end.
func Base(u *url.URL) string { return strings.TrimRight(u.EscapedPath(), "/") }

// SetPath sets an escaped path, which must be valid.
func SetPath(u *url.URL, escaped string) {
	u.Path, u.RawPath = escaped, ""
	if plain, err := url.PathUnescape(escaped); err == nil {
		u.Path = plain
	}
	if u.EscapedPath() != escaped {
		u.RawPath = escaped
	}
}
