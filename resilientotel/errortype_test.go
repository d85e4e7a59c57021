package resilientotel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// derived returns a Base that, like net/http, waits on a context of its own.
func derived() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// T11: the attempt's span, the call's span, otelhttp's metric, the call's metric and the reason
// of the retry have the same error.type, from one vocabulary.
func TestErrorType_sameEverywhere(t *testing.T) {
	for _, row := range []struct {
		name   string
		base   http.RoundTripper
		policy resilienthttp.Policy
		cancel time.Duration
		want   string
	}{
		{name: "status 503: the status", base: script(answer{status: 503}), want: "503"},
		{name: "status 404: the status", base: script(answer{status: 404}), want: "404"},
		{name: "connection refused", base: script(answer{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}), want: "connection_refused"},
		{name: "connection reset", base: script(answer{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}), want: "connection_reset"},
		{name: "unknown host", base: script(answer{err: &net.DNSError{Err: "no such host", IsNotFound: true}}), want: "dns"},
		{name: "end of file", base: script(answer{err: io.ErrUnexpectedEOF}), want: "eof"},
		{name: "unknown type", base: script(answer{err: errors.New("s3cr3t")}), want: "_OTHER"},
		{name: "attempt timeout", base: script(answer{after: time.Hour}), policy: resilienthttp.Policy{AttemptTimeout: time.Second}, want: "timeout"},
		{name: "attempt timeout with a derived context", base: derived(), policy: resilienthttp.Policy{AttemptTimeout: time.Second}, want: "timeout"},
		{name: "canceled", base: script(answer{after: time.Hour}), cancel: time.Second, want: "canceled"},
		{name: "canceled, and the base returns another error", base: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, errors.New("s3cr3t")
		}), cancel: time.Second, want: "canceled"},
	} {
		bubble.Run(t, row.name+": "+row.want, func(t *testing.T) {
			r := record()
			row.policy.Backoff, row.policy.MaxAttempts = resilienthttp.Constant(time.Second), 2
			rt := r.Wrap(&resilienthttp.Transport{Base: row.base, Policy: row.policy, Breaker: never()})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.cancel > 0 {
				time.AfterFunc(row.cancel, cancel)
			}
			_ = called(t, rt, get(t, ctx, url))
			for _, s := range r.spans.Ended() {
				require.Equal(t, row.want, valueOf(s, "error.type"), "the span %s", s.Name())
				require.Equal(t, "Error", s.Status().Code.String())
			}
			found := map[string]bool{}
			for series := range r.metrics(t) {
				name, rest, _ := strings.Cut(strings.TrimPrefix(series, "#"), "{")
				switch name {
				case "http.client.request.duration", "http.client.request.body.size", metricCallDuration:
					require.Equal(t, row.want, errorTypeIn(rest), name)
					found[name] = true
				case metricRetries:
					require.Contains(t, rest, "resilienthttp.retry.reason="+row.want+" ")
				}
			}
			require.Len(t, found, 3)
			require.NotContains(t, r.everything(t), "s3cr3t")
		})
	}
}

// T11: errors of a response's body are in the same vocabulary. They change the span only.
func TestErrorType_ofTheBody(t *testing.T) {
	for _, row := range []struct {
		name string
		body io.ReadCloser
		want string
	}{
		{"read error: its type", io.NopCloser(io.MultiReader(strings.NewReader("x"), failingReader{&net.OpError{Op: "read", Err: syscall.ECONNRESET}})), "connection_reset"},
		{"unknown error: other", io.NopCloser(failingReader{errors.New("s3cr3t")}), "_OTHER"},
		{"no progress: read timeout", hangingBody{}, "read_timeout"},
		{"end: no error", io.NopCloser(strings.NewReader("x")), ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r := record()
			rt := r.Wrap(&resilienthttp.Transport{
				Policy: resilienthttp.Policy{ReadTimeout: time.Second},
				Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					resp := respond(req, 200)
					resp.Body, resp.ContentLength = row.body, -1
					if _, ok := row.body.(hangingBody); ok {
						resp.Body = hangingBody{req.Context()}
					}
					return resp, nil
				}),
			})
			resp, err := rt.RoundTrip(get(t, t.Context(), url))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Equal(t, row.want != "", err != nil)
			require.NoError(t, resp.Body.Close())
			synctest.Wait() // the goroutine of a read timeout may end the attempt a moment after the read
			r.allEnded(t)
			require.Equal(t, row.want, valueOf(r.spans.Ended()[1], "error.type"))
			require.NotContains(t, r.everything(t), "s3cr3t")
			for series := range r.metrics(t) {
				require.NotContains(t, series, "error.type")
			}
		})
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// hangingBody returns an error when its request is canceled.
type hangingBody struct{ ctx context.Context } //nolint:containedctx // of the request

func (b hangingBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, errors.New("s3cr3t")
}

func (hangingBody) Close() error { return nil }

func TestErrorTypeAndOutcome(t *testing.T) {
	failed := func(e resilienthttp.Error) *resilienthttp.Call { return &resilienthttp.Call{Err: &e} }
	status := func(code int, verdict resilienthttp.Verdict) *resilienthttp.Call {
		resp := &http.Response{StatusCode: code}
		return &resilienthttp.Call{Response: resp, Attempts: []resilienthttp.Attempt{{Response: resp, Verdict: verdict}}}
	}
	for name, row := range map[string]struct {
		call               *resilienthttp.Call
		errorType, outcome string
	}{
		"breaker open: rejected":                    {failed(resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}), "breaker_open", "rejected"},
		"rate limit: rejected":                      {failed(resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}), "rate_limited", "rejected"},
		"permit after the deadline: rejected":       {failed(resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: resilienthttp.ErrRateLimited}), "rate_limited", "rejected"},
		"deadline: timeout":                         {failed(resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: context.DeadlineExceeded}), "timeout", "timeout"},
		"canceled: canceled":                        {failed(resilienthttp.Error{Err: context.Canceled}), "canceled", "canceled"},
		"breaker of a Transport in Base: failed":    {failed(resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, Err: &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}}), "breaker_open", "failed"},
		"rate limit of a Transport in Base: failed": {failed(resilienthttp.Error{Reason: resilienthttp.ErrRateLimited, Err: &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}}), "rate_limited", "failed"},
		"unknown error: failed":                     {failed(resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: errors.New("x")}), "_OTHER", "failed"},
		"connection refused: failed":                {failed(resilienthttp.Error{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}), "connection_refused", "failed"},
		"attempt timeout: failed":                   {failed(resilienthttp.Error{Reason: resilienthttp.ErrAttemptTimeout, Err: resilienthttp.ErrAttemptTimeout}), "timeout", "failed"},
		"another type of error: failed":             {&resilienthttp.Call{Err: errors.New("x")}, "_OTHER", "failed"},
		"status out of range: other":                {&resilienthttp.Call{Response: &http.Response{StatusCode: 1000}}, "_OTHER", "success"},
		"status 200: success":                       {status(200, resilienthttp.VerdictSuccess), "", "success"},
		"failure event of a stream: its verdict":    {status(200, resilienthttp.VerdictThrottled), "throttled", "failed"},
		"status 404: permanent error":               {status(404, resilienthttp.VerdictPermanent), "404", "permanent_error"},
		"status 503: failed":                        {status(503, resilienthttp.VerdictTransient), "503", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.errorType, errorTypeOf(row.call))
			require.Equal(t, row.outcome, outcomeOf(row.call))
		})
	}
}

func TestValues(t *testing.T) {
	require.Equal(t, "budget_exhausted", stopReason(resilienthttp.ErrBudgetExhausted))
	require.Equal(t, "_OTHER", stopReason(errors.New("x")))
	require.Equal(t, []string{"closed", "half_open", "open", "_OTHER"}, []string{
		stateName(resilienthttp.StateClosed), stateName(resilienthttp.StateHalfOpen), stateName(resilienthttp.StateOpen), stateName(math.MaxInt8),
	})
	require.Equal(t, []string{"GET", "QUERY", "_OTHER"}, []string{methodName(""), methodName("QUERY"), methodName("PROPFIND")})
	for given, want := range map[string]string{
		"https://api.test/a?b#c": "https://api.test", "https://api.test": "https://api.test", "http://a.test:80?x": "http://a.test:80",
		"http://[::1]:8/x": "http://[::1]:8", "mailto:user@example.com": "mailto:", "": ":", "unix:///run/x": "unix://",
	} {
		require.Equal(t, want, origin(given), given)
	}
}

// T15: an error of Base quotes a secret of the request, and neither spans nor metrics show it.
func FuzzSecrets(f *testing.F) {
	for _, before := range []string{"", "POST ", "EOF: ", "malformed HTTP response ", "a\nb"} {
		for place := range uint8(9) {
			for layer := range uint8(7) {
				f.Add(before, place, layer)
			}
		}
	}
	f.Fuzz(func(t *testing.T, before string, place, layer uint8) {
		const secret = "q7zx5j"
		if strings.Contains(before, secret) {
			t.Skip()
		}
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{
			Policy: resilienthttp.Policy{MaxAttempts: -1},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				password, _ := r.URL.User.Password()
				text := before + [...]string{
					r.URL.String(), r.URL.Path, r.URL.RawQuery, r.URL.Fragment, password, r.URL.RequestURI(),
					r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"), string(body),
				}[place%9]
				err := errors.New(text)
				switch layer % 7 {
				case 1:
					err = fmt.Errorf("%s: %w", text, io.EOF)
				case 2:
					err = &neturl.Error{Op: text, URL: text, Err: err}
				case 3:
					err = errors.Join(io.EOF, err)
				case 4:
					err = &net.OpError{Op: text, Net: text, Err: &net.DNSError{Err: text, Name: "/" + text, Server: text}}
				case 5:
					return &http.Response{
						StatusCode: http.StatusOK, Status: text, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
						Header: http.Header{"X-Token": {secret}}, Body: io.NopCloser(failingReader{err}),
					}, nil
				case 6:
					return respond(r, http.StatusUnauthorized, "X-Token", secret, "Www-Authenticate", secret), nil
				}
				return nil, err
			}),
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+secret+":"+secret+"@api.test/"+secret+"?"+secret+"="+secret+"#"+secret, strings.NewReader(secret))
		require.NoError(t, err)
		for _, name := range []string{"Authorization", "Cookie", "Idempotency-Key", "X-Own"} {
			req.Header.Set(name, secret)
		}
		if resp, err := rt.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		r.allEnded(t)
		text := r.everything(t)
		require.Contains(t, text, "api.test")
		require.NotContains(t, text, secret)
	})
}
