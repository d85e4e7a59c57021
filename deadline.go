package resilienthttp

import (
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

// Deadline tells the next tier how long a call may still take, so that nobody
// works for a caller who has left. The sending half is part of a Transport; the
// receiving half is Handler. The zero value sends X-Request-Deadline whenever
// the call has a deadline: its context's, http.Client.Timeout's among them.
//
// The header holds an absolute time in UTC (RFC 3339 with milliseconds): for
// each attempt the earlier of the call's deadline and the attempt's own timeout,
// less Margin. Two machines' clocks disagree, so X-Request-Timeout-Ms goes
// beside it with the milliseconds that are left; a receiver that finds it counts
// from the arrival instead.
type Deadline struct {
	// Header is the field that carries the deadline. "" means X-Request-Deadline.
	// X-Request-Timeout-Ms has no other name.
	Header string

	// Margin is taken off what is sent, for the way there and back. An attempt
	// for which nothing would be left is not sent: the call ends with
	// ErrDeadline. A negative duration counts as 0, the default.
	Margin time.Duration

	// Max is for receiving: the longest that a caller may ask for. 0 or a
	// negative duration means no limit. A request without a deadline gets none.
	Max time.Duration

	// Off sends no deadline, and makes Handler look for none. Ownership of
	// retries and priority are not affected.
	Disabled bool
}

func (d Deadline) withDefaults() Deadline {
	if d.Header == "" {
		d.Header = defaultDeadlineHeader
	}
	d.Header = textproto.CanonicalMIMEHeaderKey(d.Header)
	d.Margin = max(d.Margin, 0)
	return d
}

// leastLeft is what the header tells at least.
const leastLeft = time.Millisecond

// header returns a copy of h with the deadline in it. It returns false when less
// than a millisecond would be left.
func (d *Deadline) header(h http.Header, deadline, now time.Time) (http.Header, bool) {
	left := max(deadline.Sub(now), 0) - d.Margin // max, since Sub saturates
	if left < leastLeft {
		return nil, false
	}
	h = h.Clone()
	h[d.Header] = []string{now.Add(left).UTC().Format(deadlineFormat)}
	h[timeoutHeader] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	return h, true
}

// Handler is the receiving half: it gives the request a context that ends at the
// caller's deadline, and remembers who owns the retries, so that a Transport
// which next calls out with the request's context passes on what is left and,
// where the caller said X-Retry-Owner: caller, makes single attempts. The caller's
// Priority goes along likewise.
//
// A deadline that has passed is answered with 504 before next sees the request.
// A malformed one is ignored. All these headers come from the caller: behind a public
// edge, a stranger who sends a deadline shortens only his own requests, and what a
// priority from a header is worth is for whoever sheds load to decide
// (admission.Shedder trusts none unless it is told to).
//
// Handler only sets the context. A handler that returns without writing anything
// because its context has ended has answered 200, as always with net/http.
func (d Deadline) Handler(next http.Handler) http.Handler {
	d = d.withDefaults()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := receivePriority(r.Context(), r.Header)
		if strings.EqualFold(strings.TrimSpace(r.Header.Get(retryOwnerHeader)), retryOwnerCaller) {
			ctx = withOptions(ctx, func(o *options) { o.single, o.owned = true, true })
		}
		if !d.Disabled {
			if left, ok := d.received(r.Header, time.Now()); ok {
				if left <= 0 {
					http.Error(w, "the caller's deadline has passed", http.StatusGatewayTimeout)
					return
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, left)
				defer cancel()
			}
		}
		if ctx != r.Context() {
			original := r
			r = r.WithContext(ctx)
			defer func() { original.MultipartForm = r.MultipartForm }() // the server removes its files, when all is over
		}
		next.ServeHTTP(w, r)
	})
}

// received is the time that a request's caller leaves, at most Max.
func (d *Deadline) received(h http.Header, now time.Time) (left time.Duration, ok bool) {
	left, ok = parseTimeout(headerValue(h, timeoutHeader))
	if !ok {
		left, ok = parseDeadline(headerValue(h, d.Header), now)
	}
	if ok && d.Max > 0 {
		left = min(left, d.Max)
	}
	return left, ok
}

// parseTimeout reads whole milliseconds. A negative number is a deadline that
// has passed; a huge one is clamped, however many digits it has.
func parseTimeout(value string) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || value[0] == '+' {
		return 0, false
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, -1), most)) * time.Millisecond, true
}

// parseDeadline reads a time of RFC 3339.
func parseDeadline(value string, now time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(value))
	if err != nil {
		return 0, false
	}
	return at.Sub(now), true // Sub saturates
}
