package endpoints

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Validate returns an error that names every invalid field, also of Transport, or nil. Call it when a
// program starts: without it, each call fails with the same error. It must not run while fields are
// set.
func (t *Transport) Validate() error {
	wrong := &validate.Errors{Of: neterr.ErrMisconfigured}
	wrong.Check(len(t.Endpoints) == 0, "Endpoints is empty, must have at least one")
	keyHeader := "Idempotency-Key"
	if t.Transport != nil {
		wrong.Append(t.Transport.Validate())
		keyHeader = cmp.Or(t.Transport.Idempotency.Header, keyHeader)
	}
	names := map[string]int{}
	for i := range t.Endpoints {
		e, field := &t.Endpoints[i], fmt.Sprintf("Endpoints[%d].", i)
		problem := e.problem()
		wrong.Check(problem != "", field+"URL "+problem)
		e.validateHeader(wrong, field+"Header", keyHeader)
		if problem != "" {
			continue
		}
		name := e.name()
		other, used := names[name]
		wrong.Check(used, fmt.Sprintf("%sName is %q, as that of Endpoints[%d], must differ", field, name, other))
		names[name] = i
	}
	return wrong.Err()
}

// problem returns what is wrong with the URL, or "". It never has the URL, which may have a password.
func (e *Endpoint) problem() string {
	switch u := e.URL; {
	case u == nil:
		return "is nil"
	case u.Scheme != "http" && u.Scheme != "https":
		return "has another scheme than http or https"
	case u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return "has no host"
	case u.User != nil:
		return "has a user, must have none (set Header)"
	case u.RawQuery != "" || u.ForceQuery:
		return "has a query, must have none"
	case u.Fragment != "" || u.RawFragment != "":
		return "has a fragment, must have none"
	case u.Path != "" && u.Path[0] != '/':
		return "has a path without a slash in front"
	case slices.Contains(strings.Split(u.Path, "/"), ".."):
		return `has a path with "..", must have none`
	}
	return ""
}

// validateHeader rejects fields that net/http sets or that differ for each request.
func (e *Endpoint) validateHeader(wrong *validate.Errors, field, keyHeader string) {
	notHere := []string{
		"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Trailer", "Transfer-Encoding", "Upgrade",
		http.CanonicalHeaderKey(keyHeader),
	}
	for name, values := range e.Header {
		wrong.Check(!validate.Token(name), fmt.Sprintf("%s: %q is not the name of a header field", field, name))
		wrong.Check(slices.Contains(notHere, http.CanonicalHeaderKey(name)), fmt.Sprintf("%s has %s, which is not the same for all requests", field, name))
		for _, value := range values {
			wrong.Check(strings.ContainsAny(value, "\r\n\x00"), fmt.Sprintf("%s: the value of %s has a line break", field, name))
		}
	}
}
