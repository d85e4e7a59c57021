package resilientotel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// attemptTracers is the TracerProvider of otelhttp. Its spans have the attributes of attempts,
// and URLs without paths.
type attemptTracers struct {
	trace.TracerProvider

	client *client
}

func (t attemptTracers) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return attemptTracer{t.TracerProvider.Tracer(name, options...), t.client}
}

type attemptTracer struct {
	trace.Tracer

	client *client
}

func (t attemptTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	number, hedge := resilienthttp.AttemptNumber(ctx)
	s := &attemptSpan{client: t.client, call: t.client.callOf(ctx)}
	s.Context, s.Span = t.Tracer.Start(ctx, name, options...)
	resends := number - 1
	if s.call != nil {
		resends = s.call.copies.start(s) // hedges are counted too
	}
	if resends > 0 {
		s.Span.SetAttributes(semconv.HTTPRequestResendCount(resends))
	}
	if hedge {
		s.Span.SetAttributes(keyHedge.Bool(true))
	}
	return s, s
}

// attemptSpan is the span of an attempt as otelhttp sees it, and the attempt's context.
type attemptSpan struct {
	trace.Span
	context.Context //nolint:containedctx // attemptSpan implements context.Context

	client  *client
	call    *call // nil: the Transport was called without its wrapper
	body    io.ReadCloser
	failure atomic.Pointer[failure]

	// The following are protected by call.copies.mu.
	copiesBefore int // copies.copies at its start
	isCopy       bool
	response     *http.Response
	endTime      time.Time
}

type attemptKey struct{}

// Value implements context.Context.
func (s *attemptSpan) Value(key any) any {
	if key == (attemptKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// attemptOf returns the attempt of this client that the context belongs to, or nil.
func (c *client) attemptOf(ctx context.Context) *attemptSpan {
	if s, ok := ctx.Value(attemptKey{}).(*attemptSpan); ok && s.client == c {
		return s
	}
	return nil
}

// SetAttributes removes the path from URLs, and replaces the Go type of an error. otelhttp
// does not use the slice afterwards.
func (s *attemptSpan) SetAttributes(attributes ...attribute.KeyValue) {
	for i := range attributes {
		switch a := &attributes[i]; a.Key {
		case semconv.URLFullKey:
			*a = semconv.URLFull(origin(a.Value.AsString()))
		case semconv.ErrorTypeKey:
			failed := s.failure.Load()
			if failed == nil { // a status code
				continue
			}
			*a = semconv.ErrorTypeKey.String(failed.errorType)
			if failed.errorType == "" {
				attributes = slices.Delete(attributes, i, i+1)
			}
			s.Span.SetAttributes(attributes...)
			return
		}
	}
	s.Span.SetAttributes(attributes...)
}

// origin returns a URL without its path.
func origin(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		scheme, _, _ = strings.Cut(url, ":")
		return scheme + ":" // an opaque URL
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return url[:len(scheme)+len("://")+i]
	}
	return url
}

// SetStatus replaces the text of an error by one without secrets.
func (s *attemptSpan) SetStatus(code codes.Code, description string) {
	if description != "" {
		switch failed := s.failure.Load(); {
		case failed == nil:
			description = neterr.SafeText(errors.New(description))
		case failed.errorType == "":
			return
		default:
			description = failed.text
		}
	}
	s.Span.SetStatus(code, description)
}

// returned records that the base has returned.
func (s *attemptSpan) returned(resp *http.Response) {
	if s.call != nil {
		s.call.copies.returned(s, resp)
	}
}

// End ends the span. The span of a copy ends when the call has decided which copy has won.
func (s *attemptSpan) End(options ...trace.SpanEndOption) {
	if s.body != nil && s.failure.Load() == nil && is(context.Cause(s.Context), resilienthttp.ErrReadTimeout) {
		// The Transport closes the body before its Read returns.
		s.Span.SetAttributes(semconv.ErrorTypeKey.String(resilienthttp.ErrorType(resilienthttp.ErrReadTimeout)))
		s.Span.SetStatus(codes.Error, resilienthttp.ErrReadTimeout.Error())
	}
	if s.call == nil || s.call.copies.end(s) {
		s.Span.End(options...)
	}
}

// copies decides which attempts of one call are hedged, and which of those has won. Attempts
// that were in flight at the same time are copies of each other.
type copies struct {
	mu       sync.Mutex
	started  int            // attempts
	inFlight int            // attempts without response headers or an error
	copies   int            // attempts that started while another was in flight
	ended    []*attemptSpan // copies that ended before the call
	decided  bool
	winner   *http.Response
}

// start counts an attempt and returns the number of attempts before it.
func (c *copies) start(s *attemptSpan) (before int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.started
	c.started++
	s.isCopy = c.inFlight > 0
	if s.isCopy {
		c.copies++
	}
	s.copiesBefore = c.copies
	c.inFlight++
	return before
}

func (c *copies) returned(s *attemptSpan, resp *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	s.isCopy = s.isCopy || c.copies > s.copiesBefore
	s.response = resp
}

// end reports whether the span may end now.
func (c *copies) end(s *attemptSpan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !s.isCopy:
	case c.decided:
		s.Span.SetAttributes(keyHedgeOutcome.String(s.outcome(c.winner)))
	default:
		s.endTime = time.Now()
		c.ended = append(c.ended, s)
		return false
	}
	return true
}

// decide ends the copies that have waited for the response of the call.
func (c *copies) decide(winner *http.Response) {
	c.mu.Lock()
	ended := c.ended
	c.decided, c.winner, c.ended = true, winner, nil
	c.mu.Unlock()
	for _, s := range ended {
		s.Span.SetAttributes(keyHedgeOutcome.String(s.outcome(winner)))
		s.Span.End(trace.WithTimestamp(s.endTime))
	}
}

func (s *attemptSpan) outcome(winner *http.Response) string {
	if winner != nil && s.response == winner {
		return hedgeWon
	}
	return hedgeLost
}
