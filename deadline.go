package resilienthttp

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

const (
	defaultDeadlineHeader = "X-Request-Deadline"
	timeoutHeader         = "X-Request-Timeout-Ms"
	retryOwnerHeader      = "X-Retry-Owner"
	retryOwnerCaller      = "caller"

	// deadlineFormat is RFC 3339 with milliseconds, in UTC.
	deadlineFormat = "2006-01-02T15:04:05.000Z"
)

// DeadlineHeader sends the deadline of a call to the server, for [DeadlineHandler] or a server
// that knows the field. The zero value sends X-Request-Deadline if the call has a deadline, from
// its context or from http.Client.Timeout. The field has a time in UTC (RFC 3339 with
// milliseconds): the earlier of the call's deadline and the attempt's timeout, minus Margin.
// X-Request-Timeout-Ms has the remaining milliseconds. A receiver prefers it, because clocks
// differ. See docs/deadlines.md.
type DeadlineHeader struct {
	// Name is the name of the field. "" means X-Request-Deadline.
	Name string

	// Margin is subtracted from the time that is sent, for the network. If less than 1 ms is
	// left, the call ends with ErrDeadline. Zero or a negative duration means none.
	Margin time.Duration

	// Disabled means that no deadline is sent. Retry ownership is not affected.
	Disabled bool
}

func (d DeadlineHeader) withDefaults() DeadlineHeader {
	d.Name = deadlineField(d.Name)
	d.Margin = max(d.Margin, 0)
	return d
}

// deadlineField returns the canonical name of the deadline's field. "" means the default.
func deadlineField(name string) string {
	return textproto.CanonicalMIMEHeaderKey(cmp.Or(name, defaultDeadlineHeader))
}

// minLeft is the shortest time that is sent.
const minLeft = time.Millisecond

// header returns a copy of h with the deadline, or false if less than minLeft would be left.
func (d *DeadlineHeader) header(h http.Header, deadline, now time.Time) (http.Header, bool) {
	left := max(deadline.Sub(now), 0) - d.Margin // max, since Sub saturates
	if left < minLeft {
		return nil, false
	}
	h = h.Clone()
	h[d.Name] = []string{now.Add(left).UTC().Format(deadlineFormat)}
	h[timeoutHeader] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	return h, true
}

// DeadlineHandler is the server's side of [DeadlineHeader] and Transport.OwnsRetries. It calls
// Next with a context that has the caller's deadline and retry ownership. A Transport that is
// called with this context sends the remaining time. It makes single attempts if the caller sent
// X-Retry-Owner: caller. If the deadline has passed, the response is 504, and Next is not called.
// A malformed deadline is ignored. If Next writes nothing after its context has ended, net/http
// responds with 200.
//
// A DeadlineHandler is safe for concurrent use. Its fields must not change after the first
// request. See docs/deadlines.md.
type DeadlineHandler struct {
	// Next is the handler of the requests. If it is nil, each response is 500.
	Next http.Handler

	// Header is the name of the deadline's field. "" means X-Request-Deadline.
	Header string

	// Max is the longest time that the handler accepts from a caller. Zero or a negative duration
	// means no limit. A request without a deadline gets none.
	Max time.Duration

	// TrustPriority makes the handler accept the caller's X-Request-Priority. Set it only behind a
	// trusted edge, because any client can send the field.
	TrustPriority bool
}

var _ http.Handler = DeadlineHandler{}

// ServeHTTP implements http.Handler.
func (d DeadlineHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.Next == nil {
		w.Header().Set("X-Should-Retry", "false")
		http.Error(w, "resilienthttp: DeadlineHandler.Next is nil", http.StatusInternalServerError)
		return
	}
	ctx := r.Context()
	if d.TrustPriority {
		ctx = receivePriority(ctx, r.Header)
	}
	if strings.EqualFold(strings.TrimSpace(r.Header.Get(retryOwnerHeader)), retryOwnerCaller) {
		ctx = withOptions(ctx, func(o *callOptions) { o.single, o.owned = true, true })
	}
	if left, ok := d.received(r.Header, time.Now()); ok {
		if left <= 0 {
			http.Error(w, "the caller's deadline has passed", http.StatusGatewayTimeout)
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	if ctx != r.Context() {
		original := r
		r = r.WithContext(ctx)
		defer func() { original.MultipartForm = r.MultipartForm }() // the server removes its files at the end
	}
	d.Next.ServeHTTP(w, r)
}

func (d DeadlineHandler) received(h http.Header, now time.Time) (left time.Duration, ok bool) {
	left, ok = parseTimeout(h.Get(timeoutHeader))
	if !ok {
		left, ok = parseDeadline(h.Get(deadlineField(d.Header)), now)
	}
	if ok && d.Max > 0 {
		left = min(left, d.Max)
	}
	return left, ok
}

// parseTimeout parses whole milliseconds. A negative number is a deadline that has passed. A
// number that is too large is clamped.
func parseTimeout(value string) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || value[0] == '+' {
		return 0, false
	}
	const maxMillis = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, -1), maxMillis)) * time.Millisecond, true
}

func parseDeadline(value string, now time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(value))
	if err != nil {
		return 0, false
	}
	return at.Sub(now), true // Sub saturates
}
