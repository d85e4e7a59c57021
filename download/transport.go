package download

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
)

// Transport is an http.RoundTripper that continues downloads. If reading the body of a 200
// response to a GET fails, it requests the rest with Range and If-Range. It takes the response if
// that is a 206 of the same entity tag that begins at exactly the missing byte. Otherwise Read
// returns the error that interrupted the download.
//
// Requests without Accept-Encoding get "identity", because a compressed response has no ranges of
// the content. Requests that have a body or another Accept-Encoding pass unchanged, and so do other
// methods and other responses. The zero value has the defaults. A Transport is safe for concurrent
// use. Its fields must not change after the first call.
type Transport struct {
	// Base makes the calls: the first one, and one for each resume. Each has retries, a budget, a
	// circuit breaker and the deadline of the request. nil means a new resilienthttp.Transport.
	Base http.RoundTripper

	// MaxResumes is the maximum number of resumes in a row that bring no byte, or too few (see
	// MinProgress). The second of them and those after it wait for up to 100 ms, 200 ms … 2 s, at
	// random. Zero means 10. A negative number means that nothing is resumed.
	MaxResumes int

	// MinProgress is the least number of bytes, or the rest, that must arrive while Reads have been
	// blocked for a minute in all. Otherwise the connection counts as broken, and the download goes
	// on with another one. A caller that reads slowly is not counted. Zero means 60,000, which is
	// 1 kB/s. A negative number means no minimum.
	MinProgress int64

	once sync.Once
	base http.RoundTripper
}

const (
	defaultMaxResumes  = 10
	defaultMinProgress = 60_000
)

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip makes a call of Base. The body of its response resumes by itself. Its error, if
// resuming fails, wraps the error that interrupted the download, and says why. An error of the
// request's own context is returned as it is. RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.MaxResumes < 0 || !resumable(req) {
		return t.inner().RoundTrip(req)
	}
	req = req.Clone(req.Context()) // the caller may change its own after the call
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := t.send(req)
	if err != nil {
		return nil, err
	}
	if v, ok := versionOf(resp); ok {
		resp.Body = &body{
			version: v, transport: t, request: req, end: v.length, part: resp.Body,
			backoff: resilienthttp.FullJitter(100*time.Millisecond, 2*time.Second),
		}
	}
	return resp, nil
}

var errNoResponse = errors.New("download: Base returned neither a response nor an error")

// send makes a call of Base. Its response has a body, as http.Client sees to it.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	resp, err := t.inner().RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errNoResponse
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of Base, if Base has this method.
func (t *Transport) CloseIdleConnections() {
	(&http.Client{Transport: t.inner()}).CloseIdleConnections()
}

// Unwrap returns the RoundTripper that makes the calls.
func (t *Transport) Unwrap() http.RoundTripper { return t.inner() }

func (t *Transport) inner() http.RoundTripper {
	t.once.Do(func() { t.base = cmp.Or[http.RoundTripper](t.Base, &resilienthttp.Transport{}) })
	return t.base
}

func (t *Transport) maxResumes() int { return cmp.Or(t.MaxResumes, defaultMaxResumes) }

func (t *Transport) minProgress() int64 { return cmp.Or(t.MinProgress, defaultMinProgress) }

// resumable reports whether the rest of the response to the request could be requested.
func resumable(req *http.Request) bool {
	if req == nil || req.Method != "" && req.Method != http.MethodGet || req.Body != nil && req.Body != http.NoBody {
		return false
	}
	encodings := req.Header["Accept-Encoding"]
	return len(encodings) == 0 || len(encodings) == 1 && strings.EqualFold(encodings[0], "identity")
}

// version identifies the bytes of a body.
type version struct {
	tag      string // strong
	encoding string // Content-Encoding, usually ""
	length   int64
}

// versionOf returns the version of a whole body, if the server can continue it.
func versionOf(resp *http.Response) (version, bool) {
	v := version{field.StrongTag(resp.Header), resp.Header.Get("Content-Encoding"), resp.ContentLength}
	ok := resp.StatusCode == http.StatusOK && !resp.Uncompressed && v.tag != "" && v.length > 0
	return v, ok && acceptsBytes(resp.Header)
}

func acceptsBytes(h http.Header) bool {
	units := strings.Split(strings.Join(h["Accept-Ranges"], ","), ",")
	return slices.ContainsFunc(units, func(unit string) bool { return strings.EqualFold(strings.TrimSpace(unit), "bytes") })
}
