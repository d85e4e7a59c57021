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

	"github.com/resilienthttp/resilienthttp/internal/field"
)

const (
	defaultDeadlineHeader = "X-Request-Deadline"
	retryOwnerHeader      = "X-Retry-Owner"
	retryOwnerCaller      = "caller"

	// deadlineFormat is RFC 3339 with milliseconds, in UTC.
	deadlineFormat = "2006-01-02T15:04:05.000Z"
)

// DeadlineHeader sends the deadline of a call to the server, for [DeadlineHandler] or a server
// that knows the field. The zero value sends X-Request-Deadline if the call has a deadline, from
// its context or from http.Client.Timeout. The field has a time in UTC (RFC 3339 with
// milliseconds): the earlier of the call's deadline and the attempt's timeout, minus Margin.
// X-Request-Timeout-Ms, or Relative, has the remaining time. A receiver prefers it, because clocks
// differ. See docs/deadlines.md.
type DeadlineHeader struct {
	// Name is the name of the field. "" means X-Request-Deadline.
	Name string

	// Relative is the name of the field with the remaining time, rounded down. "" means
	// X-Request-Timeout-Ms. "grpc-timeout" gets a number of at most eight digits and its unit. Any
	// other name, for example Envoy's "x-envoy-expected-rq-timeout-ms", gets milliseconds.
	Relative string

	// Margin is subtracted from the time that is sent, for the network. If less than 1 ms is
	// left, the call ends with ErrDeadline. Zero or a negative duration means none.
	Margin time.Duration

	// Disabled means that no deadline is sent. Retry ownership is not affected.
	Disabled bool
}

func (d DeadlineHeader) withDefaults() DeadlineHeader {
	d.Name = textproto.CanonicalMIMEHeaderKey(cmp.Or(d.Name, defaultDeadlineHeader))
	d.Relative = textproto.CanonicalMIMEHeaderKey(cmp.Or(d.Relative, timeoutHeader))
	d.Margin = max(d.Margin, 0)
	if d.Disabled {
		d.Margin = 0
	}
	return d
}

// precision is that of times in fields and texts: a shorter one is none.
const precision = time.Millisecond

// header returns a copy of h with the deadline, or false if less than the precision would be left.
func (d *DeadlineHeader) header(h http.Header, deadline, now time.Time) (http.Header, bool) {
	remaining := max(deadline.Sub(now), 0) - d.Margin // max, since Sub saturates
	if remaining < precision {
		return nil, false
	}
	h = h.Clone()
	for name := range h { // the caller's, and a proxy's copy of what it received: in any case, as net/http sends names unchanged
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case d.Name, d.Relative, timeoutHeader:
			delete(h, name)
		}
	}
	h[d.Name] = []string{now.Add(remaining).UTC().Format(deadlineFormat)}
	h[d.Relative] = []string{formatRelative(d.Relative, remaining)}
	return h, true
}

// DeadlineHandler is the server's side of [DeadlineHeader] and Transport.OwnsRetries. It calls
// Next with a context that has the caller's deadline and retry ownership. A Transport that is
// called with this context sends the remaining time. It makes single attempts if the caller sent
// X-Retry-Owner: caller. If the deadline has passed, the response is 504 with Request-Executed: ?0, and Next is not called.
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

	// Relative are the names of the fields with the remaining time, in the forms of
	// DeadlineHeader.Relative. Of several, the shortest time counts. nil means X-Request-Timeout-Ms
	// alone, and an empty list none. Any client can send a field: name those of Envoy or gRPC only
	// behind a trusted edge, and set Max.
	Relative []string

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
		w.Header().Set(field.ExecutedHeader, field.NotExecuted)
		http.Error(w, "resilienthttp: DeadlineHandler.Next is nil", http.StatusInternalServerError)
		return
	}
	ctx := r.Context()
	if values := r.Header[field.PriorityHeader]; d.TrustPriority && len(values) > 0 {
		ctx = WithPriority(ctx, Priority(field.ParsePriority(values[0])))
	}
	if strings.EqualFold(strings.TrimSpace(r.Header.Get(retryOwnerHeader)), retryOwnerCaller) {
		ctx = withOptions(ctx, func(o *callOptions) { o.single, o.owned = true, true })
	}
	if remaining, ok := d.received(r.Header, time.Now()); ok {
		if remaining <= 0 {
			w.Header().Set(field.ExecutedHeader, field.NotExecuted)
			http.Error(w, "the caller's deadline has passed", http.StatusGatewayTimeout)
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, remaining)
		defer cancel()
	}
	if ctx != r.Context() {
		original := r
		r = r.WithContext(ctx)
		defer func() { original.MultipartForm = r.MultipartForm }() // the server removes its files at the end
	}
	d.Next.ServeHTTP(w, r)
}

// received returns the time that is left to a request, at most Max.
func (d DeadlineHandler) received(h http.Header, now time.Time) (remaining time.Duration, ok bool) {
	if d.Relative == nil {
		remaining, ok = parseRelative(timeoutHeader, field.Value(h, timeoutHeader))
	}
	for _, name := range d.Relative {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if other, valid := parseRelative(name, field.Value(h, name)); valid && (!ok || other < remaining) {
			remaining, ok = other, true
		}
	}
	if !ok {
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(h.Get(cmp.Or(d.Header, defaultDeadlineHeader))))
		remaining, ok = at.Sub(now), err == nil // Sub saturates
	}
	if ok && d.Max > 0 {
		remaining = min(remaining, d.Max)
	}
	return remaining, ok
}

const (
	timeoutHeader     = "X-Request-Timeout-Ms"
	grpcTimeoutHeader = "Grpc-Timeout"

	grpcDigits = 8 // maximum of the number of grpc-timeout
)

// grpcUnits are the units of grpc-timeout, the finest first. See "Timeout" in
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
var grpcUnits = [...]struct { //nolint:gochecknoglobals // never written to
	letter byte
	length time.Duration
}{
	{'n', time.Nanosecond}, {'u', time.Microsecond}, {'m', time.Millisecond}, {'S', time.Second}, {'M', time.Minute}, {'H', time.Hour},
}

// parseRelative parses the value of a field that has the remaining time. The field's canonical name
// decides the form: grpc-timeout has a unit, and any other field has milliseconds. A time that is
// too large is clamped.
func parseRelative(name, value string) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if name == grpcTimeoutHeader {
		return parseGRPCTimeout(value)
	}
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || value[0] == '+' {
		return 0, false
	}
	return clamped(max(ms, -1), time.Millisecond), true // negative: the deadline has passed
}

func clamped(number int64, unit time.Duration) time.Duration {
	return time.Duration(min(number, math.MaxInt64/int64(unit))) * unit
}

// formatRelative returns the value of the field for the remaining time, rounded down, because the
// receiver must not work longer than its caller waits.
func formatRelative(name string, remaining time.Duration) string {
	if name != grpcTimeoutHeader {
		return strconv.FormatInt(remaining.Milliseconds(), 10)
	}
	for unit := 0; ; unit++ { // a Duration has fewer than 3,000,000 hours
		number := strconv.FormatInt(int64(remaining/grpcUnits[unit].length), 10)
		if len(number) <= grpcDigits {
			return number + string(grpcUnits[unit].letter)
		}
	}
}

// parseGRPCTimeout parses one to eight digits and a unit.
func parseGRPCTimeout(value string) (time.Duration, bool) {
	digits := len(value) - 1
	if digits < 1 || digits > grpcDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(value[:digits], 10, 63) // it accepts no sign
	if err != nil {
		return 0, false
	}
	for _, unit := range grpcUnits {
		if unit.letter == value[digits] {
			return clamped(int64(number), unit.length), true
		}
	}
	return 0, false
}
