package resilienthttp_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
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
			ctx := withDeadline(t, 2*time.Second)
			resp := roundTrip(t, tr, get(t).WithContext(ctx))
			readAll(t, resp)
			attempts := resilienthttp.Attempts(resp)
			require.Len(t, attempts, row.calls)
			if row.calls == 1 {
				require.Equal(t, 503, resp.StatusCode)
				require.ErrorIs(t, attempts[0].StopReason, resilienthttp.ErrDeadline)
			}
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
		{
			name: "a stale one is replaced", call: time.Second,
			header:   http.Header{deadlineField: {"1999-12-31T00:00:00Z", "more"}, timeoutField: {"99999"}},
			deadline: "2000-01-01T00:00:01.000Z", timeout: "1000",
		},
		{name: "a huge one", attempt: -1, call: math.MaxInt64, deadline: "2292-04-10T23:47:16.854Z", timeout: "9223372036854"},
	} {
		bubble.Run(t, "§4.19 "+row.name, func(t *testing.T) {
			var got http.Header
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				got = req.Header.Clone()
				return puppetAnswer(req, 200), nil
			}), 1)
			transport.Policy.AttemptTimeout = row.attempt
			transport.DeadlineHeader = row.config
			ctx := t.Context()
			if row.call > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.call)
				defer cancel()
			}
			req := newCall(ctx, t, http.MethodGet, "")
			if row.header != nil {
				req.Header = row.header
			}
			before := req.Header.Clone()
			tripped(t, transport, req)
			require.Equal(t, before, req.Header, "§4.2")
			field := deadlineField
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
			var got http.Header
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				got = req.Header.Clone()
				return puppetAnswer(req, 200), nil
			}), 1)
			transport.DeadlineHeader.Relative = row.relative
			ctx := withDeadline(t, 5*time.Second)
			req := newCall(ctx, t, http.MethodGet, "")
			req.Header = http.Header{ // a proxy's copy of what it received, also in lower case: net/http sends such names unchanged
				timeoutField: {"99999"}, strings.ToLower(timeoutField): {"99999"}, row.field: {"77"}, strings.ToLower(row.field): {"77"},
				strings.ToLower(deadlineField): {"1999-12-31T00:00:00Z"},
			}
			tripped(t, transport, req)
			require.Equal(t, http.Header{deadlineField: {"2000-01-01T00:00:05.000Z"}, row.field: {row.value}}, got)
		})
	}
	bubble.Run(t, "§4.19 http.Client.Timeout", func(t *testing.T) {
		var got http.Header
		client := &http.Client{Timeout: 5 * time.Second, Transport: bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			got = req.Header.Clone()
			return puppetAnswer(req, 200), nil
		}), 1)}
		resp, err := client.Do(newCall(t.Context(), t, http.MethodGet, ""))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "2000-01-01T00:00:05.000Z", got.Get(deadlineField))
		require.Equal(t, "5000", got.Get(timeoutField))
	})
	t.Run("§4.19 UTC, wherever the caller is", func(t *testing.T) {
		var got string
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			got = req.Header.Get(deadlineField)
			return puppetAnswer(req, 200), nil
		}), 1)
		deadline := time.Now().Add(10 * time.Second).In(time.FixedZone("far", 5*3600+1800))
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		at, err := time.Parse(deadlineForm, got)
		require.NoError(t, err)
		require.WithinDuration(t, deadline, at, 2*time.Millisecond)
		require.False(t, at.After(deadline))
	})
	bubble.Run(t, "§4.19 what is left shrinks from attempt to attempt", func(t *testing.T) {
		var got []string
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			got = append(got, req.Header.Get(timeoutField)+" "+strings.TrimPrefix(req.Header.Get(deadlineField), "2000-01-01T00:"))
			time.Sleep(time.Second)
			return puppetAnswer(req, 503), nil
		}), 4)
		transport.Policy.AttemptTimeout = 5 * time.Second
		transport.Policy.Backoff = func(int, time.Duration) time.Duration { return 2 * time.Second }
		ctx := withDeadline(t, 11*time.Second)
		attempts := tripped(t, transport, newCall(ctx, t, http.MethodPost, "body"))
		require.Equal(t, []string{"5000 00:05.000Z", "5000 00:08.000Z", "5000 00:11.000Z", "2000 00:11.000Z"}, got)
		require.Equal(t, resilienthttp.ErrMaxAttempts, attempts[3].StopReason)
	})
	bubble.Run(t, "§4.19 nothing left after the margin", func(t *testing.T) {
		for _, margin := range []time.Duration{time.Second, time.Second - time.Microsecond, math.MaxInt64} {
			sent := false
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				sent = true
				return puppetAnswer(req, 200), nil
			}), 3)
			transport.DeadlineHeader.Margin = margin
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			resp, err := transport.RoundTrip(newCall(ctx, t, http.MethodGet, ""))
			cancel()
			require.Nil(t, resp)
			require.ErrorIs(t, err, resilienthttp.ErrDeadline)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, sent)
		}
	})
	t.Run("a header that cannot be one", func(t *testing.T) {
		transport := bareTransport(puppetStatus(200), 1)
		transport.DeadlineHeader.Name = "no way"
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorContains(t, err, "DeadlineHeader.Name")
	})
	t.Run("a context with a deadline in the year 1", func(t *testing.T) {
		for _, at := range []time.Time{time.Unix(-1<<40, 0), {}} {
			transport := bareTransport(puppetStatus(200), 1)
			transport.Policy.AttemptTimeout = -1
			transport.DeadlineHeader.Margin = time.Second
			_, err := transport.RoundTrip(newCall(oddContext{t.Context(), at}, t, http.MethodGet, ""))
			require.ErrorIs(t, err, resilienthttp.ErrDeadline)
		}
	})
}

// oddContext has a deadline that does not end it.
type oddContext struct {
	context.Context
	at time.Time
}

func (o oddContext) Deadline() (time.Time, bool) { return o.at, true }
