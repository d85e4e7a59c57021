package resilienthttp_test

import (
	"context"
	"errors"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

const (
	deadlineField = "X-Request-Deadline"
	timeoutField  = "X-Request-Timeout-Ms"
	ownerField    = "X-Retry-Owner"
	deadlineForm  = "2006-01-02T15:04:05.000Z"
)

// §4.12, §4.19: if the next attempt would have too little time for a deadline header, the call
// returns its result at once.
func TestDeadline_noTimeForHeader(t *testing.T) {
	for _, row := range []struct {
		name  string
		wait  time.Duration // of a deadline of 2 s
		off   bool
		calls int
	}{
		{"within the Margin", 1960 * time.Millisecond, false, 1},
		{"before it", 1940 * time.Millisecond, false, 2},
		{"no deadline header", 1960 * time.Millisecond, true, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(503), status(200))
			tr := &resilienthttp.Transport{
				Base: base, Policy: resilienthttp.Policy{Backoff: resilienthttp.Constant(row.wait)},
				DeadlineHeader: resilienthttp.DeadlineHeader{Margin: 50 * time.Millisecond, Disabled: row.off},
			}
			attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, 2*time.Second)))
			require.Len(t, attempts, row.calls)
			require.Equal(t, row.calls == 1, errors.Is(attempts[0].StopReason, resilienthttp.ErrDeadline))
		})
	}
}

// §4.19: the deadline header of the first attempt. A bubble's clock starts on 2000-01-01 at 00:00
// UTC.
func TestDeadlineIsSent(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		name     string
		config   resilienthttp.DeadlineHeader
		attempt  time.Duration // AttemptTimeout
		call     time.Duration // of the context; 0: none
		header   http.Header   // the caller's
		deadline string        // "" for none
		timeout  string
	}{
		{name: "no deadline", deadline: "", timeout: ""},
		{name: "no deadline, although the attempt has a timeout", attempt: time.Second, deadline: "", timeout: ""},
		{name: "the call's", attempt: -1, call: 90 * time.Second, deadline: "2000-01-01T00:01:30.000Z", timeout: "90000"},
		{name: "the call's, if earlier", attempt: time.Minute, call: 10 * time.Second, deadline: "2000-01-01T00:00:10.000Z", timeout: "10000"},
		{name: "the attempt's, if earlier", attempt: time.Second, call: time.Minute, deadline: "2000-01-01T00:00:01.000Z", timeout: "1000"},
		{name: "the default attempt timeout is none", call: time.Hour, deadline: "2000-01-01T01:00:00.000Z", timeout: "3600000"},
		{name: "milliseconds, rounded down", attempt: -1, call: 1234*ms + 999999, deadline: "2000-01-01T00:00:01.234Z", timeout: "1234"},
		{name: "margin", config: resilienthttp.DeadlineHeader{Margin: 250 * ms}, call: time.Second, deadline: "2000-01-01T00:00:00.750Z", timeout: "750"},
		{name: "margin off the attempt's too", config: resilienthttp.DeadlineHeader{Margin: 250 * ms}, attempt: time.Second, call: time.Minute, deadline: "2000-01-01T00:00:00.750Z", timeout: "750"},
		{name: "negative margin is none", config: resilienthttp.DeadlineHeader{Margin: -time.Hour}, call: time.Second, deadline: "2000-01-01T00:00:01.000Z", timeout: "1000"},
		{name: "the least", attempt: -1, call: ms, deadline: "2000-01-01T00:00:00.001Z", timeout: "1"},
		{name: "off", config: resilienthttp.DeadlineHeader{Disabled: true}, call: time.Second},
		{name: "another header", config: resilienthttp.DeadlineHeader{Name: "x-deadline"}, call: time.Second, deadline: "2000-01-01T00:00:01.000Z", timeout: "1000"},
		{name: "a stale one is replaced", call: time.Second, header: http.Header{deadlineField: {"1999-12-31T00:00:00Z", "more"}, timeoutField: {"99999"}},
			deadline: "2000-01-01T00:00:01.000Z", timeout: "1000"},
		{name: "a huge one", attempt: -1, call: math.MaxInt64, deadline: "2292-04-10T23:47:16.854Z", timeout: "9223372036854"},
	} {
		bubble.Run(t, "§4.19 "+row.name, func(t *testing.T) {
			base := script(status(200))
			transport := bareTransport(base, 1)
			transport.Policy.AttemptTimeout = row.attempt
			transport.DeadlineHeader = row.config
			req := newCall(withDeadline(t, row.call), t, http.MethodGet, "")
			if row.header != nil {
				req.Header = row.header
			}
			before := req.Header.Clone()
			tripped(t, transport, req)
			require.Equal(t, before, req.Header, "§4.2")
			got, field := base.sent[0].Header, deadlineField
			if row.config.Name != "" {
				field = http.CanonicalHeaderKey(row.config.Name)
				require.NotContains(t, got, deadlineField)
			}
			if row.deadline == "" {
				require.NotContains(t, got, field)
				require.NotContains(t, got, timeoutField)
				return
			}
			require.Equal(t, []string{row.deadline}, got[field])
			require.Equal(t, []string{row.timeout}, got[timeoutField])
		})
	}
	for _, row := range []struct{ name, relative, field, value string }{
		{"Envoy's field", "x-envoy-expected-rq-timeout-ms", "X-Envoy-Expected-Rq-Timeout-Ms", "5000"},
		{"gRPC's field", "grpc-timeout", "Grpc-Timeout", "5000000u"},
		{"gRPC's field in another case", "GRPC-Timeout", "Grpc-Timeout", "5000000u"},
		{"a field of one's own: milliseconds", "x-time-left", "X-Time-Left", "5000"},
		{"the default, written out", "x-request-timeout-ms", timeoutField, "5000"},
	} {
		bubble.Run(t, "§4.19 "+row.name, func(t *testing.T) {
			base := script(status(200))
			transport := bareTransport(base, 1)
			transport.DeadlineHeader.Relative = row.relative
			req := newCall(withDeadline(t, 5*time.Second), t, http.MethodGet, "")
			req.Header = http.Header{ // a proxy's copy of what it received, also in lower case: net/http sends such names unchanged
				timeoutField: {"99999"}, strings.ToLower(timeoutField): {"99999"}, row.field: {"77"}, strings.ToLower(row.field): {"77"},
				strings.ToLower(deadlineField): {"1999-12-31T00:00:00Z"},
			}
			tripped(t, transport, req)
			require.Equal(t, http.Header{deadlineField: {"2000-01-01T00:00:05.000Z"}, row.field: {row.value}}, base.sent[0].Header)
		})
	}
	bubble.Run(t, "§4.19 http.Client.Timeout", func(t *testing.T) {
		base := script(status(200))
		resp := do(t, &http.Client{Timeout: 5 * time.Second, Transport: bareTransport(base, 1)}, newCall(t.Context(), t, http.MethodGet, ""))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "2000-01-01T00:00:05.000Z", base.sent[0].Header.Get(deadlineField))
		require.Equal(t, "5000", base.sent[0].Header.Get(timeoutField))
	})
	t.Run("§4.19 UTC, wherever the caller is", func(t *testing.T) {
		base := script(status(200))
		deadline := time.Now().Add(10 * time.Second).In(time.FixedZone("far", 5*3600+1800))
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		tripped(t, bareTransport(base, 1), newCall(ctx, t, http.MethodGet, ""))
		at, err := time.Parse(deadlineForm, base.sent[0].Header.Get(deadlineField))
		require.NoError(t, err)
		require.WithinDuration(t, deadline, at, 2*time.Millisecond)
		require.False(t, at.After(deadline))
	})
	bubble.Run(t, "§4.19 what is left shrinks from attempt to attempt", func(t *testing.T) {
		base := script(after(time.Second, status(503)))
		transport := bareTransport(base, 4)
		transport.Policy.AttemptTimeout = 5 * time.Second
		transport.Policy.Backoff = resilienthttp.Constant(2 * time.Second)
		attempts := tripped(t, transport, newCall(withDeadline(t, 11*time.Second), t, http.MethodPost, "body"))
		require.Equal(t, []string{"5000", "5000", "5000", "2000"}, base.keys(timeoutField))
		require.Equal(t, []string{"2000-01-01T00:00:05.000Z", "2000-01-01T00:00:08.000Z", "2000-01-01T00:00:11.000Z", "2000-01-01T00:00:11.000Z"}, base.keys(deadlineField))
		require.Equal(t, resilienthttp.ErrMaxAttempts, attempts[3].StopReason)
	})
	bubble.Run(t, "§4.19 nothing left after the margin", func(t *testing.T) {
		for _, margin := range []time.Duration{time.Second, time.Second - time.Microsecond, math.MaxInt64} {
			base := script(status(200))
			transport := bareTransport(base, 3)
			transport.DeadlineHeader.Margin = margin
			resp, err := transport.RoundTrip(newCall(withDeadline(t, time.Second), t, http.MethodGet, ""))
			require.Nil(t, resp)
			require.ErrorIs(t, err, resilienthttp.ErrDeadline)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, base.sent)
		}
	})
	t.Run("a header that cannot be one", func(t *testing.T) {
		transport := bareTransport(puppetStatus(200), 1)
		transport.DeadlineHeader.Name = "no way"
		require.ErrorContains(t, discard(transport, newCall(t.Context(), t, http.MethodGet, "")), "DeadlineHeader.Name")
	})
	t.Run("a context with a deadline in the year 1", func(t *testing.T) {
		transport := bareTransport(puppetStatus(200), 1)
		transport.Policy.AttemptTimeout = -1
		transport.DeadlineHeader.Margin = time.Second
		odd := oddContext{t.Context(), time.Unix(-1<<40, 0)}
		require.ErrorIs(t, discard(transport, newCall(odd, t, http.MethodGet, "")), resilienthttp.ErrDeadline)
	})
}

// oddContext has a deadline that does not end it.
type oddContext struct {
	context.Context
	at time.Time
}

func (o oddContext) Deadline() (time.Time, bool) { return o.at, true }

// §4.19: the context of a handler.
func TestDeadlineIsReceived(t *testing.T) {
	in := func(d time.Duration) string { // of the start of a bubble
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(deadlineForm)
	}
	const none = time.Duration(-1)
	type handler = resilienthttp.DeadlineHandler
	for _, row := range []struct {
		name   string
		config handler
		header http.Header
		left   time.Duration // none: no deadline; 0: 504
	}{
		{"nothing", handler{}, http.Header{}, none},
		{"absolute", handler{}, http.Header{deadlineField: {in(3 * time.Second)}}, 3 * time.Second},
		{"absolute, another zone", handler{}, http.Header{deadlineField: {"2000-01-01T05:30:03.5+05:30"}}, 3500 * time.Millisecond},
		{"relative", handler{}, http.Header{timeoutField: {"1500"}}, 1500 * time.Millisecond},
		{"relative, blanks", handler{}, http.Header{timeoutField: {" 1500\t"}}, 1500 * time.Millisecond},
		{"the sender's clock is ahead", handler{}, http.Header{deadlineField: {in(time.Hour)}, timeoutField: {"1500"}}, 1500 * time.Millisecond},
		{"the sender's clock is behind", handler{}, http.Header{deadlineField: {in(-time.Hour)}, timeoutField: {"1500"}}, 1500 * time.Millisecond},
		{"relative malformed, absolute counts", handler{}, http.Header{deadlineField: {in(3 * time.Second)}, timeoutField: {"soon"}}, 3 * time.Second},
		{"expired, absolute", handler{}, http.Header{deadlineField: {in(-time.Millisecond)}}, 0},
		{"expired, this instant", handler{}, http.Header{deadlineField: {in(0)}}, 0},
		{"expired, in the year 0", handler{}, http.Header{deadlineField: {"0000-01-01T00:00:00Z"}}, 0},
		{"expired, relative", handler{}, http.Header{timeoutField: {"0"}}, 0},
		{"negative", handler{}, http.Header{timeoutField: {"-5"}}, 0},
		{"more negative than that", handler{}, http.Header{timeoutField: {"-" + strings.Repeat("9", 40)}}, 0},
		{"Max", handler{Max: time.Second}, http.Header{timeoutField: {"60000"}}, time.Second},
		{"Max, absolute", handler{Max: time.Second}, http.Header{deadlineField: {in(time.Hour)}}, time.Second},
		{"less than Max", handler{Max: time.Minute}, http.Header{timeoutField: {"500"}}, 500 * time.Millisecond},
		{"Max without a deadline: none", handler{Max: time.Second}, http.Header{}, none},
		{"Max does not extend a passed deadline", handler{Max: time.Second}, http.Header{timeoutField: {"-1"}}, 0},
		{"negative Max is none", handler{Max: -1}, http.Header{timeoutField: {"60000"}}, time.Minute},
		{"huge", handler{}, http.Header{timeoutField: {"9223372036854775807"}}, 9223372036854 * time.Millisecond},
		{"beyond an int64, with Max", handler{Max: time.Second}, http.Header{timeoutField: {strings.Repeat("9", 40)}}, time.Second},
		{"the year 9999, with Max", handler{Max: time.Second}, http.Header{deadlineField: {"9999-12-31T23:59:59Z"}}, time.Second},
		{"the first line counts", handler{}, http.Header{timeoutField: {"1000", "2000"}}, time.Second},
		{"another header", handler{Header: "x-deadline"}, http.Header{"X-Deadline": {in(time.Second)}, deadlineField: {in(time.Hour)}}, time.Second},
		{"a header that cannot be one", handler{Header: "no way"}, http.Header{deadlineField: {in(-time.Hour)}}, none},
		{"malformed, a word", handler{}, http.Header{timeoutField: {"soon"}, deadlineField: {"later"}}, none},
		{"malformed, empty", handler{}, http.Header{timeoutField: {""}, deadlineField: {""}}, none},
		{"malformed, no lines", handler{}, http.Header{timeoutField: {}, deadlineField: nil}, none},
		{"malformed, a fraction", handler{}, http.Header{timeoutField: {"1.5"}}, none},
		{"malformed, a sign", handler{}, http.Header{timeoutField: {"+5"}}, none},
		{"malformed, no zone", handler{}, http.Header{deadlineField: {"2000-01-01T00:00:03"}}, none},
		{"Envoy's field, by name", handler{Relative: []string{"x-envoy-expected-rq-timeout-ms"}}, http.Header{"X-Envoy-Expected-Rq-Timeout-Ms": {"1500"}, timeoutField: {"10"}, deadlineField: {in(time.Hour)}}, 1500 * time.Millisecond},
		{"gRPC's field, by name", handler{Relative: []string{"grpc-timeout"}}, http.Header{"Grpc-Timeout": {"1500m"}, timeoutField: {"10"}, deadlineField: {in(time.Hour)}}, 1500 * time.Millisecond},
		{"a field without its name: ignored", handler{}, http.Header{"Grpc-Timeout": {"1S"}, "X-Envoy-Expected-Rq-Timeout-Ms": {"1500"}}, none},
		{"of several the shortest counts", handler{Relative: []string{"X-Request-Timeout-Ms", "grpc-timeout", "x-left"}}, http.Header{timeoutField: {"3000"}, "Grpc-Timeout": {"1500m"}, "X-Left": {"2000"}}, 1500 * time.Millisecond},
		{"of several one has passed", handler{Relative: []string{"X-Request-Timeout-Ms", "grpc-timeout"}}, http.Header{timeoutField: {"3000"}, "Grpc-Timeout": {"0n"}}, 0},
		{"of several one is malformed: ignored", handler{Relative: []string{"grpc-timeout", "X-Request-Timeout-Ms"}}, http.Header{timeoutField: {"3000"}, "Grpc-Timeout": {"1s"}}, 3 * time.Second},
		{"all malformed, absolute counts", handler{Relative: []string{"grpc-timeout"}}, http.Header{timeoutField: {"10"}, "Grpc-Timeout": {"123456789S"}, deadlineField: {in(3 * time.Second)}}, 3 * time.Second},
		{"gRPC's field, with Max", handler{Relative: []string{"grpc-timeout"}, Max: time.Minute}, http.Header{"Grpc-Timeout": {"99999999H"}}, time.Minute},
		{"an empty list: none", handler{Relative: []string{}}, http.Header{timeoutField: {"1500"}}, none},
		{"a name that cannot be one: ignored", handler{Relative: []string{"no way", ""}}, http.Header{timeoutField: {"1500"}}, none},
	} {
		bubble.Run(t, "§4.19 "+row.name, func(t *testing.T) {
			served, left := false, none
			tested := row.config
			tested.Next = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served = true
				if deadline, ok := r.Context().Deadline(); ok {
					left = time.Until(deadline)
				}
			})
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.Header = row.header
			recorder := httptest.NewRecorder()
			tested.ServeHTTP(recorder, req)
			if row.left == 0 {
				require.False(t, served, "before any work")
				require.Equal(t, http.StatusGatewayTimeout, recorder.Code)
				return
			}
			require.True(t, served)
			require.Equal(t, row.left, left)
			require.Equal(t, http.StatusOK, recorder.Code)
		})
	}
	bubble.Run(t, "§4.19 the context ends at the deadline and with the handler", func(t *testing.T) {
		var ended func() error
		server := memhttp.NewServer(t, resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ended = r.Context().Err
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		})})
		call := func(path string) int {
			req := newRequest(t, http.MethodGet, server.URL+path, "")
			req.Header.Set(timeoutField, "2000")
			resp := do(t, &http.Client{Transport: server.Transport()}, req)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		}
		start := time.Now()
		require.Equal(t, 504, call("/wait"))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, context.DeadlineExceeded, ended())
		require.Equal(t, 200, call("/"))
		require.Equal(t, context.Canceled, ended(), "no timer remains")
	})
	bubble.Run(t, "§4.19 an earlier deadline of the server's own stays", func(t *testing.T) {
		var left time.Duration
		handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			deadline, _ := r.Context().Deadline()
			left = time.Until(deadline)
		})}
		req := httptest.NewRequestWithContext(withDeadline(t, time.Second), http.MethodGet, "/", nil)
		req.Header.Set(timeoutField, "60000")
		handler.ServeHTTP(httptest.NewRecorder(), req)
		require.Equal(t, time.Second, left)
	})
	t.Run("§4.19 without headers the request passes as it is", func(t *testing.T) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		var got *http.Request
		resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = r
		})}.ServeHTTP(httptest.NewRecorder(), req)
		require.Same(t, req, got)
	})
}

// The server removes the files of a form from its own request, of which the handler gets a copy.
func TestDeadlineKeepsTheFormOfTheServersRequest(t *testing.T) {
	form := &multipart.Form{}
	handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.MultipartForm = form // as ParseMultipartForm does
	})}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header.Set(timeoutField, "1000")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	require.Same(t, form, r.MultipartForm)
}

// §4.20: X-Retry-Owner as sent and as received.
func TestRetryOwner(t *testing.T) {
	for _, row := range []struct {
		name  string
		value []string // that the handler receives
		calls int      // attempts of a Transport with MaxAttempts 3
		tells string   // X-Retry-Owner for the next tier
	}{
		{"none", nil, 3, ""},
		{"caller", []string{"caller"}, 1, "caller"},
		{"case and blanks", []string{" Caller "}, 1, "caller"},
		{"another owner", []string{"server"}, 3, ""},
		{"empty", []string{""}, 3, ""},
	} {
		t.Run("§4.20 "+row.name, func(t *testing.T) {
			base := script(status(500))
			var stop error
			handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				attempts := tripped(t, bareTransport(base, 3), newCall(r.Context(), t, http.MethodGet, ""))
				stop = attempts[len(attempts)-1].StopReason
			})}
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			if row.value != nil {
				req.Header[ownerField] = row.value
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			require.Len(t, base.sent, row.calls)
			for _, sent := range base.sent {
				require.Equal(t, row.tells, sent.Header.Get(ownerField))
			}
			if row.calls == 1 {
				require.Equal(t, resilienthttp.ErrSingleAttempt, stop)
			}
		})
	}
	t.Run("§4.20 OwnsRetries is sent with each attempt, and retries", func(t *testing.T) {
		for _, header := range []http.Header{{}, nil} {
			base := script(status(500))
			transport := bareTransport(base, 3)
			transport.OwnsRetries = true
			req := newCall(t.Context(), t, http.MethodGet, "")
			req.Header = header
			tripped(t, transport, req)
			require.Equal(t, []string{"caller", "caller", "caller"}, base.keys(ownerField))
			require.Equal(t, header, req.Header, "§4.2")
			require.Empty(t, req.Header)
		}
	})
	t.Run("WithSingleAttempt sends no ownership", func(t *testing.T) {
		base := script(status(500))
		tripped(t, bareTransport(base, 3), newCall(resilienthttp.WithSingleAttempt(t.Context()), t, http.MethodGet, ""))
		require.Equal(t, []string{"<none>"}, base.keys(ownerField))
	})
}

// tier is a service that calls the next tier for each request.
type tier struct {
	*faulttest.Server

	left []time.Duration // remaining times of the callers
}

// newTier returns a tier in memory, which takes a millisecond. The last tier, which has no next, fails.
func newTier(t *testing.T, host string, next *tier) *tier {
	t.Helper()
	s := &tier{Server: &faulttest.Server{InMemory: true, Host: host}}
	var transport *resilienthttp.Transport
	if next != nil {
		s.Network, transport = next.Server, bareTransport(next.Transport(), 3)
	}
	s.Script = resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		s.left = append(s.left, time.Until(deadline))
		time.Sleep(time.Millisecond)
		status := http.StatusInternalServerError
		if next != nil {
			resp, err := transport.RoundTrip(newRequest(t, http.MethodPost, next.URL, "charge").WithContext(r.Context()))
			assert.NoError(t, err)
			readAll(t, resp)
			status = resp.StatusCode
		}
		w.WriteHeader(status)
	})}
	s.Start(t)
	return s
}

// §4.20: three tiers of three attempts make three calls at the bottom if the first owns the
// retries, and 27 without an owner. §4.19: each tier gets less time than its caller.
func TestThreeTiers(t *testing.T) {
	for _, row := range []struct {
		name   string
		owns   bool
		bottom int
		middle int
	}{
		{"§4.20 one owner", true, 3, 3},
		{"§4.20 no owner", false, 27, 9},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			bottom := newTier(t, "bottom.test", nil)
			middle := newTier(t, "middle.test", bottom)
			top := newTier(t, "top.test", middle)
			first := bareTransport(top.Transport(), 3)
			first.OwnsRetries = row.owns
			client := &http.Client{Transport: first, Timeout: 30 * time.Second}
			resp, err := client.Post(top.URL, "text/plain", strings.NewReader("charge"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 500, resp.StatusCode)
			top.AssertRequests(t, 3)
			middle.AssertRequests(t, row.middle)
			bottom.AssertRequests(t, row.bottom)
			for i, s := range []*tier{top, middle, bottom} {
				s.AssertDeadlines(t, time.Time{})
				require.Equal(t, 30*time.Second-time.Duration(i)*time.Millisecond, s.left[0], "§4.19: tier %d", i)
				for n := 1; n < len(s.left); n++ {
					require.Less(t, s.left[n], s.left[n-1], "§4.19: tier %d, call %d", i, n)
				}
			}
		})
	}
}

// §4.20: only the outer Transport retries, in every way to reach the inner one.
func TestTransportInsideTransport(t *testing.T) {
	t.Run("§4.20 as Base: one key, and the inner ones add none", func(t *testing.T) {
		base := script(status(500))
		tripped(t, bareTransport(bareTransport(bareTransport(base, 5), 4), 3), newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, base.keys(), 3)
		require.Equal(t, base.keys()[0], base.keys()[2])
		require.Len(t, base.keys()[0], 36)
	})
	t.Run("§4.20 its policy is the outer call's", func(t *testing.T) {
		base := script(status(500))
		ctx := resilienthttp.WithPolicy(t.Context(), resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce})
		tripped(t, bareTransport(bareTransport(base, 5), 3), newCall(ctx, t, http.MethodPost, "body"))
		require.Len(t, base.sent, 2)
	})
	t.Run("§4.20 a policy set in between does not bring retries back", func(t *testing.T) {
		base := script(status(500))
		inner := bareTransport(base, 5)
		outer := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			ctx := resilienthttp.WithPolicy(req.Context(), resilienthttp.Policy{MaxAttempts: 7, Backoff: atOnce})
			return inner.RoundTrip(req.WithContext(ctx))
		}), 3)
		tripped(t, outer, newCall(t.Context(), t, http.MethodPut, "body"))
		require.Len(t, base.sent, 3)
	})
	bubble.Run(t, "§4.20 a token fetched with the attempt's context", func(t *testing.T) {
		base := script(after(time.Second, status(503)))
		tokens := bareTransport(base, 5)
		outer := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			resp, err := tokens.RoundTrip(newCall(req.Context(), t, http.MethodPost, "grant"))
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return response(req, resp.StatusCode, "body"), nil
		}), 3)
		outer.OwnsRetries, outer.Policy.AttemptTimeout = true, 4*time.Second
		tripped(t, outer, newCall(withDeadline(t, 5*time.Second), t, http.MethodGet, ""))
		require.Equal(t, []string{"4000", "4000", "3000"}, base.keys(timeoutField), "one fetch per attempt, with its remaining time")
		require.Equal(t, []string{"caller", "caller", "caller"}, base.keys(ownerField))
	})
	bubble.Run(t, "§4.20 hedges of the inner one neither", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Minute}, copyOf{})
		inner := hedging(base, 1, &resilienthttp.Hedge{Delay: time.Second})
		outer := bareTransport(inner, 1)
		outer.Policy.AttemptTimeout = -1
		tripped(t, outer, newCall(t.Context(), t, http.MethodGet, ""))
		require.Len(t, base.calls(), 1)
	})
}

// With any header, the handler gets a deadline between now and Max, or none, or is not called.
func FuzzDeadlineHeader(f *testing.F) {
	now := time.Now()
	for _, deadline := range []string{
		"", now.Add(time.Hour).UTC().Format(deadlineForm), now.Add(-time.Hour).UTC().Format(deadlineForm), "9999-12-31T23:59:59.999Z",
		"0000-01-01T00:00:00Z", "2035-01-01T00:00:00+23:59", "2035-02-29T00:00:00Z", "1700000000", "Sat, 01 Jan 2000 00:00:20 GMT",
	} {
		for _, timeout := range []string{"", "1500", "0", "-1", "9223372036854775807", "99999999999999999999", "1e3", "+1", " 7 "} {
			f.Add(deadline, timeout, int64(time.Minute))
		}
	}
	f.Fuzz(func(t *testing.T, deadline, timeout string, most int64) {
		var at, now time.Time
		served, limited := false, false
		handler := resilienthttp.DeadlineHandler{Max: time.Duration(most), Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served, now = true, time.Now()
			at, limited = r.Context().Deadline()
		})}
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header = http.Header{deadlineField: {deadline}, timeoutField: {timeout}}
		recorder := httptest.NewRecorder()
		before := time.Now()
		handler.ServeHTTP(recorder, req)
		switch {
		case !served:
			require.Equal(t, http.StatusGatewayTimeout, recorder.Code)
			return
		case !limited:
			return
		}
		require.True(t, at.After(before), "the deadline is in the future")
		if most > 0 {
			require.False(t, at.After(now.Add(time.Duration(most))))
		}
		if ms, err := strconv.ParseUint(timeout, 10, 40); err == nil {
			require.LessOrEqual(t, at.Sub(now), time.Duration(ms)*time.Millisecond, "X-Request-Timeout-Ms is used")
		}
	})
}
