package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// Transport is an http.RoundTripper above a [resilienthttp.Transport]. Each attempt of a call goes to
// one of the Endpoints. It needs at least one.
//
// A Transport is safe for concurrent use and should be shared. Its fields are read at the first call
// and must not change after it. It must not be copied. See docs/endpoints.md.
type Transport struct {
	// Endpoints are the servers in the order of preference. Requests name the URL of the first.
	Endpoints []Endpoint

	// Transport makes the calls. nil means a new one with the defaults. Its fields are not written.
	// Breaker, Budget, RateLimit and Hedge work for each endpoint, and MaxAttempts for all together.
	Transport *resilienthttp.Transport

	// SharedKeys says that the endpoints know each other's idempotency keys, because they have one
	// store. A POST or PATCH with a key may then go to another endpoint after any failure. Do not set it
	// for servers that merely accept keys: two of them would do the work twice.
	SharedKeys bool

	once    sync.Once
	inner   *resilienthttp.Transport
	targets []route.Target
	invalid error
}

// Endpoint is one server of the list.
type Endpoint struct {
	// Name is Attempt.Endpoint in traces and transcripts. "" means host and path of URL. Names must
	// differ. The scope of the endpoint is its URL's host, and "#" and the Name if that is set.
	Name string

	// URL is the beginning of the URL of each request, with or without a path. It must have no user,
	// query or fragment.
	URL *url.URL

	// Header replaces fields of the request, such as Authorization in a pool of keys. Only this
	// endpoint gets it. A name without values removes the field.
	Header http.Header
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip makes one call. It implements http.RoundTripper with the contract of
// [resilienthttp.Transport.RoundTrip]. A Location below an endpoint is rewritten to the first one.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.once.Do(t.configure)
	if t.invalid != nil {
		return failed(req, t.invalid)
	}
	if req == nil || req.URL == nil {
		return t.inner.RoundTrip(req)
	}
	_, path, ok := match(t.targets, req.URL, nil)
	if !ok {
		return t.inner.RoundTrip(req)
	}
	r := &route.Route{
		Context: req.Context(), Targets: t.targets, First: t.redirectedTo(req), Path: path,
		Shared: t.SharedKeys,
	}
	if name, ok := r.Value(onlyKey{}).(string); ok {
		r.Context = context.WithValue(r.Context, onlyKey{}, nil) // it is for this list, not for those that Base uses
		if r.Targets, r.First = t.only(name), 0; r.Targets == nil {
			return failed(req, fmt.Errorf("%w: endpoints: WithEndpoint: no endpoint has the name %q", neterr.ErrMisconfigured, name))
		}
	}
	resp, err := t.inner.RoundTrip(req.WithContext(r))
	if resp != nil && r.Answered != nil {
		t.relocate(resp, req.URL, r)
	}
	return resp, err
}

// failed returns the error of a call that sends nothing.
func failed(req *http.Request, err error) (*http.Response, error) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, &resilienthttp.Error{Err: err}
}

// CloseIdleConnections closes the idle connections of the Transport.
func (t *Transport) CloseIdleConnections() {
	if t.once.Do(t.configure); t.invalid == nil {
		t.inner.CloseIdleConnections()
	}
}

// Unwrap returns the Transport that makes the calls.
func (t *Transport) Unwrap() http.RoundTripper {
	t.once.Do(t.configure)
	return t.inner
}

func (t *Transport) configure() {
	t.inner = cmp.Or(t.Transport, &resilienthttp.Transport{})
	if t.invalid = t.Validate(); t.invalid != nil {
		return
	}
	for i := range t.Endpoints {
		e := &t.Endpoints[i]
		target := route.Target{Name: e.name(), Scope: e.scope(), URL: new(*e.URL), Header: http.Header{}}
		for name, values := range e.Header {
			target.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
		}
		t.targets = append(t.targets, target)
	}
}

func (e *Endpoint) name() string {
	if e.Name != "" {
		return e.Name
	}
	return e.URL.Host + route.Base(e.URL)
}

func (e *Endpoint) scope() string {
	if e.Name != "" {
		return e.URL.Host + "#" + e.Name
	}
	return e.name()
}

// redirectKey is for the index of an endpoint of one list.
type redirectKey struct{ list *Transport }

// redirectedTo returns the index of the endpoint to which the response of another one has redirected
// the client, or 0. Otherwise the first one would redirect it again.
func (t *Transport) redirectedTo(req *http.Request) int {
	if from := req.Response; from != nil && from.Request != nil {
		if i, ok := from.Request.Context().Value(redirectKey{t}).(int); ok {
			return i
		}
	}
	return 0
}

// relocate rewrites a Location below an endpoint to the first one. The client resolves a relative
// Location with the URL of its own request, so it becomes absolute if another endpoint responded.
func (t *Transport) relocate(resp *http.Response, named *url.URL, r *route.Route) {
	values := resp.Header["Location"]
	if len(values) == 0 || values[0] == "" {
		return
	}
	at, err := r.URL(r.Answered, named).Parse(values[0])
	if err != nil {
		return // as it is: the client reports it
	}
	i, path, ok := match(t.targets, at, r.Answered)
	if ok {
		first := t.targets[0].URL
		at.Scheme, at.Host, at.User = first.Scheme, first.Host, nil
		route.SetPath(at, route.Base(first)+path)
	}
	if as, err := named.Parse(values[0]); err == nil && as.String() == at.String() {
		at = nil // the client finds it by itself
	}
	if at != nil {
		resp.Header = resp.Header.Clone()
		resp.Header["Location"] = []string{at.String()}
	}
	if ok && i != 0 && resp.Request != nil {
		resp.Request = resp.Request.WithContext(context.WithValue(resp.Request.Context(), redirectKey{t}, i))
	}
}

// match finds the endpoint for a URL: the URL begins with the endpoint's. The longest path decides, and of
// endpoints with the same URL the preferred one or else the first. path is the rest of the path, escaped:
// "" or with a slash in front. A path with a dot segment is below none, because a server may resolve it to
// a path outside.
func match(targets []route.Target, u *url.URL, preferred *route.Target) (index int, path string, ok bool) {
	if u.Opaque != "" || u.Host == "" || slices.Contains(strings.Split(u.Path, "/"), "..") {
		return 0, "", false
	}
	escaped, longest := u.EscapedPath(), -1
	for i := range targets {
		at := targets[i].URL
		base := route.Base(at)
		rest, below := strings.CutPrefix(escaped, base)
		better := len(base) > longest || len(base) == longest && &targets[i] == preferred
		if below = below && (rest == "" || rest[0] == '/'); below && better && hostmatch.SameOrigin(at, u) {
			index, path, longest = i, rest, len(base)
		}
	}
	return index, path, longest >= 0
}

// onlyKey is for the name of the endpoint that a context permits.
type onlyKey struct{}

// WithEndpoint returns a context for calls that go only to the endpoint with the name (Attempt.Endpoint).
// The call behaves as with a list of this endpoint. A list without that name fails it, and sends nothing.
//
// It is for the repetition of a POST that may be done. Without [Transport.SharedKeys] another endpoint does not
// know its key, so the second call must go to the endpoint of the last attempt of the first. A loop that sends the same
// request within ten seconds needs no WithEndpoint. A later call knows nothing of the one before. See docs/endpoints.md.
func WithEndpoint(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, onlyKey{}, name)
}

// only returns a list of the target with the name, or nil.
func (t *Transport) only(name string) []route.Target {
	for i := range t.targets {
		if t.targets[i].Name == name {
			return t.targets[i : i+1]
		}
	}
	return nil
}
