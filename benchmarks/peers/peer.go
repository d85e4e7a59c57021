// Package peers has the compared HTTP clients: each library with its defaults, and as "-full"
// with all its mechanisms.
//
// All clients use the base RoundTripper of the Setting and write no log. If the library
// permits it, a "-full" client makes four attempts with a timeout of 30 s each, and waits
// 100 ms to 10 s between them, with jitter.
package peers

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// The settings of "-full" clients.
const (
	attempts       = 4
	retries        = attempts - 1
	shortest       = 100 * time.Millisecond
	longest        = 10 * time.Second
	attemptTimeout = 30 * time.Second
)

// Client sends a request, with retries. An *http.Client is a Client.
type Client interface {
	// Do sends the request. The caller must close the response's body.
	Do(*http.Request) (*http.Response, error)
}

// Setting is the environment of a client.
type Setting struct {
	Base http.RoundTripper

	// Quota is the permitted rate in requests per second, for libraries with a rate limiter
	// that does not read headers. 0: unknown.
	Quota float64

	// Endpoints are base URLs of servers that do the same. This library uses all of them with package
	// endpoints, and the naive loop tries one after the other. The others know only the first, to
	// which all requests are addressed. nil: one server.
	Endpoints []string

	// Configure sets fields of this library's Transport. nil: none.
	Configure func(*resilienthttp.Transport)
}

// Peer is one library in one configuration.
type Peer struct {
	Name string // of the library and the configuration
	Note string // the configuration, for the tables
	New  func(Setting) Client
}

// All returns the peers in the order of the tables.
func All() []Peer {
	return slices.Concat(baselines(), ours(), retryable(), failsafes(), azcores(), awses())
}

// Defaults returns the names of the libraries with their defaults that this library must
// not be worse than.
func Defaults() []string {
	return []string{"go-retryablehttp", "failsafe-go", "aws-sdk-go-v2", "azcore"}
}

// Named returns the peers of a comma-separated list of names. "all" means All, "variants" means Variants.
func Named(names string) ([]Peer, error) {
	var found []Peer
	for name := range strings.SplitSeq(names, ",") {
		some := slices.DeleteFunc(append(All(), Variants()...), func(p Peer) bool { return p.Name != name })
		switch name {
		case "all":
			some = All()
		case "variants":
			some = Variants()
		}
		if len(some) == 0 {
			return nil, fmt.Errorf("no peer %q; there are %s", name, strings.Join(Names(), ", "))
		}
		found = append(found, some...)
	}
	return found, nil
}

// Names returns the names of all peers.
func Names() []string {
	var names []string
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// transport makes a Client from a RoundTripper.
func transport(t http.RoundTripper) Client { return &http.Client{Transport: t} }

// failed reports whether most libraries consider the response a failure.
func failed(resp *http.Response, err error) bool {
	return err != nil || resp.StatusCode >= http.StatusInternalServerError
}

// payload returns the bytes of a body with GetBody, for libraries that do not take an
// *http.Request or that copy a body that is not seekable. It does not copy the bytes of a
// bytes.Reader. It returns nil without a body, and for a body without GetBody.
func payload(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody || req.GetBody == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var taken taker
	if _, err := io.Copy(&taken, body); err != nil {
		return nil, err
	}
	return taken.bytes, nil
}

// taker is a writer that keeps its input. It does not copy a single Write, which a
// bytes.Reader makes.
type taker struct{ bytes []byte }

// Write keeps p, which io.Writer forbids. The bytes of a request's body do not change.
func (t *taker) Write(p []byte) (int, error) {
	if t.bytes == nil {
		t.bytes = slices.Clip(p)
	} else {
		t.bytes = append(t.bytes, p...)
	}
	return len(p), nil
}

// seekable is a seekable body.
type seekable struct{ *bytes.Reader }

// Close implements io.Closer.
func (seekable) Close() error { return nil }
