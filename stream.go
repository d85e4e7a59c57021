package resilienthttp

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/eventstream"
	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// pendingTime is the time after the first pending event after which the response is returned.
const pendingTime = 10 * time.Second

// Stream makes the first event of content the answer of a 200 with text/event-stream. The response is returned, with all
// that was held, when that event is there, when 64 KiB are held, or 10 s after the first pending event, whichever comes
// first. Until then a failure event, an end, a break or silence is a failed attempt like any other; afterwards nothing is
// repeated. AttemptTimeout ends at the return, and ReadTimeout begins there.
//
// A failure event has the effects of a status: VerdictThrottled those of a 429, VerdictTransient those of a 500, and
// VerdictPermanent those of a 400. Its response is the result if no retry follows. An end, a break and silence are
// errors, and in doubt. A body with a Content-Encoding that net/http does not decode is not held. See docs/streams.md.
type Stream struct {
	// FirstEvent is the maximum time from the response headers to the first event of content. After it the attempt
	// ends with ErrAttemptTimeout, and a call with endpoints may go to the next one. Zero or a negative duration
	// means no limit of its own: AttemptTimeout and the call's deadline hold. A call returns 10 s after the first event
	// that is pending, so more than that matters only for a server that sends no event at all.
	FirstEvent time.Duration

	// Classify returns the verdict of an event: its type ("" means message), and its data lines joined by line feeds,
	// which must not be kept. nil, VerdictDefault and VerdictSuccess mean content. VerdictPending means neither content
	// nor failure, as of a comment. It must be safe for concurrent use.
	Classify func(name string, data []byte) Verdict `json:"-"`
}

// The errors of a stream without an answer.
var (
	errStreamEnded  = neterr.New("event stream ended before its first event")
	errStreamBroke  = neterr.New("event stream broke before its first event")
	errStreamSilent = neterr.New("event stream had no event of content within FirstEvent")
)

// holds reports whether the response must not be returned before its first event.
func (a *attempt) holds(resp *http.Response) bool {
	content := resp != nil && resp.StatusCode == http.StatusOK
	if a.call.policy.Stream == nil || !content || a.request.Method == http.MethodHead {
		return false
	}
	encoding := field.Value(resp.Header, "Content-Encoding")
	return mediaType(resp.Header) == "text/event-stream" && (encoding == "" || strings.EqualFold(encoding, "identity"))
}

// hold reads the stream of a response until it is the answer, or the attempt has failed. Without an answer and without
// a failure event there is no response.
func (a *attempt) hold(resp *http.Response) (*http.Response, error) {
	h := &heldStream{rules: a.call.policy.Stream, body: &heldBody{ReadCloser: resp.Body}}
	a.begun = true
	a.call.mu.Lock()
	// The server has answered: its silence is no reason for a second attempt.
	a.timers.slow = 0
	a.call.mu.Unlock()
	answered := false
	defer func() { // also if Classify panics
		if !answered {
			a.release() // over HTTP/2, Close waits until the request body is read
			waitFor(inBackground(func() { _ = resp.Body.Close() }), readTime)
		}
	}()
	if err := h.read(a); err != nil {
		return nil, err
	}
	answered = true
	a.report.event = h.failure
	resp.Body = h.body
	return resp, nil
}

type heldStream struct {
	rules   *Stream
	body    *heldBody
	events  eventstream.Splitter
	pending bool            // a pending event was there
	failure outcome.Verdict // of the failure event; 0: none
}

func (h *heldStream) read(a *attempt) error {
	limit := h.rules.FirstEvent
	if limit <= 0 {
		limit = math.MaxInt64
	}
	timer, end := time.NewTimer(limit), time.Now().Add(limit)
	defer timer.Stop()
	for returns := false; ; { // whether the response is returned when the timer fires
		next := h.body.read(smallBody)
		select {
		case <-next.done:
		case <-timer.C:
			if !returns {
				a.endWith(ErrAttemptTimeout)
				return errStreamSilent
			}
			h.body.next = next
			return nil
		case <-(*attemptContext)(a).Done():
			return (*attemptContext)(a).Err()
		}
		if enough, err := h.judge(next); enough || err != nil {
			return err
		}
		if h.pending && !returns && time.Until(end) >= pendingTime {
			timer.Reset(pendingTime)
			returns = true
		}
	}
}

// judge looks at what a Read has brought. enough is true if the response is to be returned.
func (h *heldStream) judge(next *bodyRead) (enough bool, err error) {
	h.body.take(next)
	for e, rest, ok := h.events.Next(next.bytes); ok; e, rest, ok = h.events.Next(rest) {
		if h.decides(e) {
			return true, nil
		}
	}
	switch {
	case !next.returned, len(h.body.held) >= smallBody:
		// A body of the program that panics does so again when the caller reads it.
		return true, nil
	case next.err == nil:
		return false, nil
	case !errors.Is(next.err, io.EOF):
		return false, neterr.With(errStreamBroke, next.err)
	}
	if e, _ := h.events.End(); h.decides(e) { // without one it is empty
		return true, nil
	}
	return false, neterr.With(errStreamEnded, io.ErrUnexpectedEOF)
}

func (h *heldStream) decides(e eventstream.Event) bool {
	verdict := VerdictPending
	switch {
	case e.Data == nil:
	case h.rules.Classify == nil:
		return true
	default:
		verdict = h.rules.Classify(e.Name, e.Data)
	}
	switch verdict {
	case VerdictPending:
		// It proves that the server is at work, so from now on the caller waits at most pendingTime.
		h.pending = true
		return false
	case VerdictThrottled, VerdictTransient, VerdictPermanent:
		h.failure = outcome.Verdict(verdict)
	default:
	}
	return true
}

// statusOfEvent has the status that a failure event is like.
var statusOfEvent = [...]int{ //nolint:gochecknoglobals // never written to
	outcome.Throttled: http.StatusTooManyRequests, outcome.Transient: http.StatusInternalServerError, outcome.Permanent: http.StatusBadRequest,
}
