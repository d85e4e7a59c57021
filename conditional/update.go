package conditional

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Errors of Update. Errors of the client, of the context and of modify are returned
// unchanged.
var (
	// ErrNoETag means that the response to the read has no strong entity tag, so a write
	// could overwrite a change of another writer. A weak tag (W/) is not enough, because
	// different contents may share it.
	ErrNoETag = errors.New("conditional: response has no strong ETag")

	// ErrUnknown means that the response to a write was lost and its result is unknown. The
	// resource has changed since, and nothing proves that this write has changed it, or it could
	// not be read. Check the resource before you update it again. See Updater.Equal and
	// Updater.Repeatable.
	ErrUnknown = errors.New("conditional: response to a write was lost, result unknown")

	// ErrUnreadable means that the response body is not the plain content of the resource:
	// it is compressed, although Update asks for identity, longer than Updater.MaxBytes, or of
	// another success than 200 and 203: a 206 has only a part.
	ErrUnreadable = errors.New("conditional: response body is not readable")

	// ErrRedirected means that the read was redirected to another origin, and nothing was written.
	// With ErrUnknown, the write was redirected in a way that turns it into a GET (301, 302, 303).
	ErrRedirected = errors.New("conditional: redirected")
)

// Modify returns the new content of a resource. current is nil if the resource does not
// exist; return an error to prevent its creation. h is the header of the response to the
// read. The write is sent with the Content-Type in h, which Modify may set. Modify is called
// in each cycle of read and write, so it must have no other effects. An error ends the
// update and is returned, unchanged unless an earlier write adds ErrUnknown.
type Modify = func(current []byte, h http.Header) ([]byte, error)

// Update reads the resource at url and writes the result of modify if the resource has not
// changed since. After a conflict it starts again, up to five times. It calls the Update
// method of an [Updater] with c and the defaults.
//
// It returns the response to the last write, whatever its status: 412 after five conflicts.
// If the read gets neither 2xx nor 404 (which creates the resource), Update returns that
// response. If the response to a write was lost, and Updater.Equal proves by a read that the write
// was executed, Update returns the response to that read. The caller must close the body.
func Update(ctx context.Context, c *http.Client, url string, modify Modify) (*http.Response, error) {
	return (&Updater{Client: c}).Update(ctx, url, modify)
}

// Updater has the options of an update. Its methods are safe for concurrent use if its fields
// are not modified. It may be copied.
type Updater struct {
	// Client sends the requests. Required. A resilienthttp.Transport retries reads and writes
	// after a lost response. With another transport a lost response is an error, and the
	// result of the write is unknown.
	Client *http.Client

	// Header is sent with each read and write, for example Accept. nil means none.
	Header http.Header

	// LastModified permits If-Unmodified-Since as the condition if there is no strong ETag. The
	// resource must have been modified at least one second before the read, because the date does
	// not distinguish two changes within one second.
	LastModified bool

	// Repeatable means that modify may be applied to its own result: it sets a city, and does not
	// add to a balance. If the response to a write was lost and the resource has changed since,
	// the update starts again instead of returning ErrUnknown.
	Repeatable bool

	// Equal reports whether current proves that written was stored, after the response to the write
	// was lost. Equal content proves only that some writer has written it: two deposits of 5 to a
	// balance of 100 write 105 both. So modify must put a token into the content, such as a UUID or
	// the number of the operation, and Equal must compare that token. nil means that there is no
	// proof: Update then returns ErrUnknown, or starts again if Repeatable is set.
	Equal func(written, current []byte) bool

	// MaxAttempts is the maximum number of cycles of read and write. Zero means 5. A
	// negative number is an error.
	MaxAttempts int

	// Backoff is the wait before each cycle except the first. Nil means
	// resilienthttp.FullJitter(50ms, 1s). The Transport handles Retry-After; if it asks for a
	// longer wait than Policy permits, the update ends.
	Backoff resilienthttp.Backoff

	// MaxBytes is the maximum size of the resource. Zero means 16 MiB. A negative number is
	// an error.
	MaxBytes int64
}

const (
	defaultMaxAttempts = 5
	defaultMaxBytes    = 16 << 20
	baseWait           = 50 * time.Millisecond
	maxWait            = time.Second
)

// Update updates the resource at url, as the function [Update] does.
func (u *Updater) Update(ctx context.Context, url string, modify Modify) (*http.Response, error) {
	if err := u.validate(modify); err != nil {
		return nil, err
	}
	t := update{Updater: u, modify: modify, url: url}
	backoff := u.Backoff
	if backoff == nil {
		backoff = resilienthttp.FullJitter(baseWait, maxWait)
	}
	maxAttempts := cmp.Or(u.MaxAttempts, defaultMaxAttempts)
	var wait time.Duration
	for attempt := 1; ; attempt++ {
		t.readOnly = attempt > maxAttempts
		resp, err := t.cycle(ctx)
		if err != nil {
			return nil, t.wrapUnknown(err)
		}
		if t.asked.Method == http.MethodGet || !isConflict(resp) {
			return resp, nil
		}
		// The Transport has already waited as the response asks, or the wait is too long for
		// its policy.
		attempts := resilienthttp.Attempts(resp)
		tooLong := len(attempts) > 0 && attempts[len(attempts)-1].StopReason != nil && !resilienthttp.NotBefore(resp, nil).IsZero()
		if (attempt == maxAttempts || tooLong) && !t.lost {
			return resp, nil
		}
		discard(resp)
		wait = backoff(attempt, wait)
		if err := sleep.BeforeDeadline(ctx, wait); err != nil {
			return nil, t.wrapUnknown(err)
		}
	}
}

func (u *Updater) validate(modify Modify) error {
	switch {
	case u.Client == nil:
		return errors.New("conditional: Updater.Client is nil")
	case modify == nil:
		return errors.New("conditional: modify is nil")
	case u.MaxAttempts < 0:
		return fmt.Errorf("conditional: Updater.MaxAttempts is %d, must not be negative", u.MaxAttempts)
	case u.MaxBytes < 0:
		return fmt.Errorf("conditional: Updater.MaxBytes is %d, must not be negative", u.MaxBytes)
	}
	return nil
}

// update is the state of one call of Update.
type update struct {
	*Updater

	modify Modify
	url    string

	asked    *http.Request // the last one, after its redirects
	written  []byte        // the body of the last PUT
	lost     bool          // the last PUT has an attempt without a response
	readOnly bool          // no more writes: the next read only detects the result of a lost write
}

// cycle reads and writes. Its response is a conflict if another writer was faster.
func (t *update) cycle(ctx context.Context) (*http.Response, error) {
	resp, err := t.send(ctx, http.MethodGet, t.url, condition{}, nil, "")
	if err != nil {
		return nil, err
	}
	if !isSuccess(resp) && resp.StatusCode != http.StatusNotFound {
		if t.lost {
			discard(resp)
			return nil, fmt.Errorf("read after the write: status %d", resp.StatusCode)
		}
		return resp, nil
	}
	current, err := t.read(resp)
	if err != nil {
		return nil, err
	}
	if !sameOrigin(t.url, t.asked.URL) {
		return nil, ErrRedirected
	}
	if t.lost {
		if t.isWritten(current) { // the conflict was with the lost write
			resp.Body = io.NopCloser(bytes.NewReader(current))
			return resp, nil
		}
		if !t.Repeatable || t.readOnly {
			return nil, ErrUnknown
		}
	}
	cond := condition{"If-None-Match", "*"} // a PUT that only creates the resource (RFC 9110 section 13.1.2)
	if current != nil {
		if cond = conditionOf(resp.Header, t.LastModified); cond.name == "" {
			return nil, ErrNoETag
		}
	}
	return t.write(ctx, resp, current, cond)
}

// wrapUnknown adds ErrUnknown to err if the response to a write was lost.
func (t *update) wrapUnknown(err error) error {
	if !t.lost || err == ErrUnknown {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// write sends the result of modify to the URL of the last read, which is the resource that the condition refers to if the
// read was redirected.
func (t *update) write(ctx context.Context, read *http.Response, current []byte, cond condition) (*http.Response, error) {
	h := read.Header.Clone()
	if current == nil {
		h.Del("Content-Type") // it is the type of the error message
	}
	next, err := t.modify(current, h)
	if err != nil {
		return nil, err
	}
	var conns atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { conns.Add(1) }})
	resp, err := t.send(ctx, http.MethodPut, t.asked.URL.String(), cond, next, h.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if t.asked.Method != http.MethodPut {
		discard(resp)
		t.lost = true // some servers write, and then redirect to the result
		return nil, ErrRedirected
	}
	// net/http sends a write with a key again by itself, and only a resilienthttp.Transport says so.
	again := resilienthttp.InDoubt(resp, nil) || resilienthttp.Attempts(resp) == nil && conns.Load() > 1
	t.written, t.lost = next, isConflict(resp) && again
	return resp, nil
}

func (t *update) send(ctx context.Context, method, url string, cond condition, body []byte, contentType string) (*http.Response, error) {
	var content io.Reader
	if method == http.MethodPut {
		content = bytes.NewReader(body)
	}
	// Response.Request may be what Base has made of the request: with another URL, or with the signature of this one in its query.
	var asked atomic.Pointer[http.Request]
	ctx = resilienthttp.WithTrace(ctx, &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { asked.Store(c.Request) }})
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	for name, values := range t.Header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if method == http.MethodGet {
		// The entity tag of a compressed or a cached representation may differ from the one
		// that the server compares.
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Cache-Control", "no-cache")
	} else {
		req.Header.Set(cond.name, cond.value)
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
	}
	resp, err := t.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.Request == nil { // a RoundTripper need not set it, and http.Client does not
		resp.Request = req
	}
	t.asked = cmp.Or(asked.Load(), resp.Request) // another client has no hooks
	return resp, nil
}

// read reads the whole resource and closes the body. It returns nil if the resource does not
// exist.
func (t *update) read(resp *http.Response) ([]byte, error) {
	defer discard(resp)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, nil
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNonAuthoritativeInfo:
		return nil, fmt.Errorf("%w: status is %d (want 200, 203 or 404)", ErrUnreadable, resp.StatusCode)
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fmt.Errorf("%w: Content-Encoding is %q (want identity)", ErrUnreadable, coding)
	}
	limit := cmp.Or(t.MaxBytes, defaultMaxBytes)
	current, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("conditional: read body: %w", err)
	}
	if int64(len(current)) > limit {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrUnreadable, limit)
	}
	return current, nil
}

// isWritten reports whether current proves that the last write was executed.
func (t *update) isWritten(current []byte) bool {
	return t.Equal != nil && current != nil && t.Equal(t.written, current)
}

// sameOrigin reports whether the read was not redirected to another origin. The write must not
// send Updater.Header, which may have credentials, there.
func sameOrigin(requested string, final *url.URL) bool {
	u, err := url.Parse(requested)
	return err == nil && hostmatch.SameOrigin(u, final)
}

func isSuccess(resp *http.Response) bool { return resp.StatusCode/100 == 2 }

// isConflict reports whether the server did not write because of the state of the resource:
// the condition was false (412), another write was in progress (409, for example Amazon S3),
// or a backend did not receive the condition (428, RFC 6585).
func isConflict(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusPreconditionRequired:
		return true
	}
	return false
}

// discard reads the rest of a small body, so that its connection can be reused, and closes
// the body.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

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
