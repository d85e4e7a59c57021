package conditional

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Why an update was given up. Errors of the client, of the context and of change are
// returned as they are.
var (
	// ErrNoETag says that the server names no version of what it keeps: it sent no
	// strong entity tag, so a write could overwrite what others have written. A weak
	// one (W/) is none: different contents may share it.
	ErrNoETag = errors.New("conditional: there is no strong ETag")

	// ErrUnknown says that the answer to a write was lost, and that it cannot be seen
	// whether it was done: the resource has changed since, to something else than what was
	// written, or could not be read. Look at it before you update it again. See
	// Updater.Repeatable.
	ErrUnknown = errors.New("conditional: the answer to a write was lost, and nobody knows whether it was done")

	// ErrUnreadable says that what the server sent is not what it keeps: it is
	// compressed although that was not asked for, or longer than Updater.MaxBytes.
	ErrUnreadable = errors.New("conditional: what the server keeps cannot be read")

	// ErrRedirected says that nothing was written, for the read was redirected to another
	// origin, which Updater.Header is not for, or the write in a way that makes a GET of
	// it (301, 302, 303).
	ErrRedirected = errors.New("conditional: redirected")
)

// Change makes the new content of a resource from the current one. current is nil where
// there is no resource yet; return an error if it is not to be created. h are the
// headers of the answer that brought it; the new content is sent with the Content-Type
// in h, which Change may set. It is called once in each round, up to five times, and so
// must do nothing but that. An error ends the update, and is returned as it is.
type Change = func(current []byte, h http.Header) ([]byte, error)

// Update changes the resource at url: it reads it, and writes what change makes of it
// only if nobody has written meanwhile; else it begins anew after a short wait, up to
// five times. It is Update of an [Updater] that has c and its defaults.
//
// It returns the answer to the last write, with its body unread, whatever its status:
// 412 where somebody was quicker each time. Where a read is answered neither 2xx nor
// 404, which creates, it returns that. So 2xx means that what change has returned last
// was written. Where the answer to the write was lost and a read shows that it was done,
// that read's answer is returned. Close the body, as of any answer.
func Update(ctx context.Context, c *http.Client, url string, change Change) (*http.Response, error) {
	return (&Updater{Client: c}).Update(ctx, url, change)
}

// Updater is how resources are updated. It is safe for concurrent use as long as its
// fields are not changed, and may be copied.
type Updater struct {
	// Client sends the requests. It is needed. One on a resilienthttp.Transport repeats
	// reads and writes whose answers are lost; under any other a lost answer is an error,
	// of which nobody knows whether the write was done.
	Client *http.Client

	// Header goes with each request, the read and the write: Accept, say.
	Header http.Header

	// LastModified takes If-Unmodified-Since for a condition where there is no strong
	// ETag, if the resource was last modified a second or more before it was read:
	// what is younger may change once more within its second.
	LastModified bool

	// Repeatable says that change does no harm to its own result: it sets a city, and
	// does not add to a balance. Then an update whose answer was lost and whose
	// resource has changed since begins anew, in place of ErrUnknown.
	Repeatable bool

	// Same reports whether a server that was sent written shows it as current. nil means
	// equal bytes. Servers that lay out JSON anew, or add to it when a version was made,
	// need one, or the success whose answer was lost is ErrUnknown to them.
	Same func(written, current []byte) bool

	// Rounds is how often to read and write, at most. 0 means 5.
	Rounds int

	// Backoff is the wait before each further round. nil means
	// resilienthttp.FullJitter(50ms, 1s). A 409 that asks to wait is the Transport's
	// business, as it is elsewhere: what is too long for its policy ends the update.
	Backoff resilienthttp.Backoff

	// MaxBytes is the most that is read of a resource. 0 means 16 MiB.
	MaxBytes int64
}

const (
	defaultRounds   = 5
	defaultMaxBytes = 16 << 20
	firstWait       = 50 * time.Millisecond
	longestWait     = time.Second
)

// Update does what the function [Update] does.
func (u *Updater) Update(ctx context.Context, url string, change Change) (*http.Response, error) {
	if err := u.validate(change); err != nil {
		return nil, err
	}
	t := update{Updater: u, change: change, url: url}
	backoff := u.Backoff
	if backoff == nil {
		backoff = resilienthttp.FullJitter(firstWait, longestWait)
	}
	rounds := cmp.Or(u.Rounds, defaultRounds)
	var wait time.Duration
	for round := 1; ; round++ {
		t.last = round > rounds
		resp, err := t.round(ctx)
		if err != nil || resp.Request.Method == http.MethodGet || !conflict(resp) {
			return resp, err
		}
		// A wait that the server asked for is behind us, or it was too long for the policy.
		tooLong := !resilienthttp.NotBefore(resp, nil).IsZero()
		if (round == rounds || tooLong) && !t.lost {
			return resp, nil
		}
		discard(resp)
		wait = backoff(round, wait)
		if err := rest(ctx, wait); err != nil {
			return nil, t.doubted(err)
		}
	}
}

func (u *Updater) validate(change Change) error {
	switch {
	case u.Client == nil:
		return errors.New("conditional: Client is nil")
	case change == nil:
		return errors.New("conditional: change is nil")
	case u.Rounds < 0 || u.MaxBytes < 0:
		return fmt.Errorf("conditional: Rounds %d and MaxBytes %d must not be negative", u.Rounds, u.MaxBytes)
	}
	return nil
}

// update is one on its way.
type update struct {
	*Updater

	change Change
	url    string

	written []byte // by the last PUT
	lost    bool   // the answer to an attempt of it
	last    bool   // no more writes: it reads only to find out what became of one
}

// round is a read and a write. Its answer is a conflict where somebody was quicker.
func (t *update) round(ctx context.Context) (*http.Response, error) {
	resp, err := t.send(ctx, http.MethodGet, t.url, condition{}, nil, "")
	if err != nil {
		return nil, t.doubted(err)
	}
	if !ok(resp) && resp.StatusCode != http.StatusNotFound {
		if t.lost {
			discard(resp)
			return nil, t.doubted(fmt.Errorf("reading it again: status %d", resp.StatusCode))
		}
		return resp, nil
	}
	current, err := t.read(resp)
	if err != nil {
		return nil, t.doubted(err)
	}
	if !sameOrigin(t.url, resp.Request.URL) {
		return nil, t.doubted(ErrRedirected)
	}
	if t.lost {
		if current != nil && t.same(current) { // the conflict was with its own effect
			resp.Body = io.NopCloser(bytes.NewReader(current))
			return resp, nil
		}
		if !t.Repeatable || t.last {
			return nil, ErrUnknown
		}
	}
	only := creation()
	if current != nil {
		if only = conditionOf(resp.Header, t.LastModified); only.name == "" {
			return nil, ErrNoETag
		}
	}
	return t.write(ctx, resp, current, only)
}

// doubted is the error of an update that has an answer to a write missing.
func (t *update) doubted(err error) error {
	if !t.lost {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// write sends what change makes of current. It goes to the path where the read was
// answered, for the condition is of what is there.
func (t *update) write(ctx context.Context, read *http.Response, current []byte, only condition) (*http.Response, error) {
	h := read.Header.Clone()
	if current == nil {
		h.Del("Content-Type") // of the words that there is nothing
	}
	next, err := t.change(current, h)
	if err != nil {
		return nil, err
	}
	resp, err := t.send(ctx, http.MethodPut, read.Request.URL.String(), only, next, h.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if resp.Request.Method != http.MethodPut {
		discard(resp)
		return nil, ErrRedirected
	}
	t.written, t.lost = next, conflict(resp) && mayBeDone(resp)
	return resp, nil
}

func (t *update) send(ctx context.Context, method, url string, only condition, body []byte, contentType string) (*http.Response, error) {
	var content io.Reader
	if method == http.MethodPut {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	for name, values := range t.Header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if method == http.MethodGet {
		// The tag of a compressed copy, or of a cache's, is not that of what the server
		// would compare it with.
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Cache-Control", "no-cache")
	} else {
		req.Header.Set(only.name, only.value)
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
	}
	return t.Client.Do(req)
}

// read reads the resource whole, and closes it; nil is what there is not.
func (t *update) read(resp *http.Response) ([]byte, error) {
	defer discard(resp)
	if !ok(resp) {
		return nil, nil
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fmt.Errorf("%w: its encoding is %q", ErrUnreadable, coding)
	}
	most := cmp.Or(t.MaxBytes, defaultMaxBytes)
	current, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("conditional: reading: %w", err)
	}
	if int64(len(current)) > most {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrUnreadable, most)
	}
	return current, nil
}

func (t *update) same(current []byte) bool {
	if t.Same != nil {
		return t.Same(t.written, current)
	}
	return bytes.Equal(t.written, current)
}

// sameOrigin reports whether asked, which was a URL, leads where answered does, but for
// the path.
func sameOrigin(asked string, answered *url.URL) bool {
	a, err := url.Parse(asked)
	return err == nil && strings.EqualFold(a.Scheme, answered.Scheme) && strings.EqualFold(a.Host, answered.Host)
}

func ok(resp *http.Response) bool { return resp.StatusCode/100 == 2 }

// conflict reports whether a write was refused for the state of the resource: its
// condition did not hold (412), it met another one (409, Amazon S3 among others), or a
// server behind the one that saw the condition did not (428, RFC 6585).
func conflict(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusPreconditionRequired:
		return true
	}
	return false
}

// mayBeDone reports whether an attempt other than the one that was refused may have been
// done: it was sent, and not refused itself.
func mayBeDone(resp *http.Response) bool {
	attempts := resilienthttp.Attempts(resp)
	for i := range attempts {
		a := &attempts[i]
		switch {
		case a.Response != nil && a.Response.StatusCode/100 == 4: // that of resp, too
		case a.Response == nil && (&resilienthttp.Error{Attempts: attempts[i : i+1]}).NotSent():
		default:
			return true
		}
	}
	return false
}

// rest waits. What would pass the deadline is not begun.
func rest(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	return sleep.Context(ctx, d)
}

// discard reads what is left of a small body, so that its connection can be used again,
// and closes it.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}
