// Package peers holds the HTTP clients that are compared, each library in a file
// of its own: with its defaults, and with every mechanism that it has switched
// on. Where a library retries nothing by default, the former are those of its
// README or of the example in its documentation.
//
// Three things are the same for all, so that what is compared is resilience:
// each is given the base RoundTripper, none writes a log, and a "full" one makes
// four attempts, waits 100 ms to 10 s between them, with jitter, and gives an
// attempt 30 s, as far as it can be told so.
package peers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// What a full configuration is told, where the library asks.
const (
	attempts       = 4
	retries        = attempts - 1
	shortest       = 100 * time.Millisecond
	longest        = 10 * time.Second
	attemptTimeout = 30 * time.Second
)

// Client makes one logical request. The response's body is the caller's to close.
// *http.Client is one. A Client that is also an io.Closer has goroutines that end
// when it is closed, in a synctest bubble, where all else has come to rest.
type Client interface {
	// Do sends the request, as often as it takes.
	Do(*http.Request) (*http.Response, error)
}

// Setting is where a client is used.
type Setting struct {
	Base http.RoundTripper

	// Quota is how many requests per second the client has been told that it may
	// send. 0: nobody has told it. It is for libraries that know no other way.
	Quota float64

	// Configure sets fields of this library's Transport. nil: it stays the peer's.
	Configure func(*resilienthttp.Transport)
}

// Peer is one library in one configuration.
type Peer struct {
	Name string // of the library, and of the configuration if it is not the default one
	Note string // what is configured, for the tables
	New  func(Setting) Client
}

// All returns the peers in the order of the tables.
func All() []Peer {
	return slices.Concat(baselines(), ours(), retryable(), failsafes(), rehttps(), heimdalls(), azcores(), resties(), awses(), compositions())
}

// Defaults are the names of the libraries, each at its defaults, beside which this
// one must not be worse.
func Defaults() []string {
	return []string{"go-retryablehttp", "failsafe-go", "aws-sdk-go-v2", "azcore"}
}

// Named returns the peers of a comma-separated list of names, or all of them for
// "all".
func Named(names string) ([]Peer, error) {
	if names == "all" {
		return All(), nil
	}
	var found []Peer
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(All(), func(p Peer) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no peer %q; there are %s", name, strings.Join(Names(), ", "))
		}
		found = append(found, All()[i])
	}
	return found, nil
}

// Names are the names of all peers.
func Names() []string {
	var names []string
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// transport makes a Client of what is a RoundTripper.
func transport(t http.RoundTripper) Client { return &http.Client{Transport: t} }

// failed is what most libraries count as a failure.
func failed(resp *http.Response, err error) bool {
	return err != nil || resp.StatusCode >= http.StatusInternalServerError
}
