package outcome

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

var (
	cameTexts = map[Came]string{
		Invalid: "malformed request, or an invalid result of `Base`", InnerLimit: "rate limit of a Transport in `Base`",
		Intermediary: "a proxy or a token endpoint rejects the client, or the error has `Permanent() bool`",
		Own:          "own error of `Base`, which has asked for no connection",
		NoToken:      "the token endpoint has no token now", Stranger: "unknown host, untrusted certificate, HTTP response to https",
		Calm: "HTTP/2: ENHANCE_YOUR_CALM", OwnBody: "the request body of the caller fails", NetworkTimeout: "timeout of the network",
		Broken:         "any other error: refused, reset, closed, not HTTP",
		AttemptTimeout: "`AttemptTimeout`, or 15 minutes without a response", CallDeadline: "the deadline of the call",
		Overtaken: "an attempt at another endpoint had its response first", Superseded: "another attempt had its response first",
		Canceled: "the caller cancels",
	}
	signTexts = map[Signs]string{
		AsksToWait: "asks to wait", Exhausted: "exhausted quota", AsksToWait | Exhausted: "asks to wait, or exhausted quota",
		MayBeAtWork: "the server may be at work at another attempt", Elsewhere: "another connection is left",
		Expects: "the client has added `Expect`",
		Late:    "it had longer than responses take now", Answered: "the scope has answered before",
	}
	verdictTexts = []string{"", "success", "permanent", "transient", "throttled"}
	workTexts    = []string{"in doubt", "not sent", "none", "known"}
	serverTexts  = []string{"–", "works", "fails", "rejects"}
	limitTexts   = []string{"–", "served", "rejected"}
	countTexts   = []string{"–", "success", "client error", "server error", "network error", "timeout", "throttled"}
)

// came names what a row is for: "200–399", "502–504" or a kind of error.
func (r row) came() string {
	first, last := cameTexts[r.first], cameTexts[r.last]
	switch {
	case r.first.Response() && r.first == r.last:
		return fmt.Sprint(r.first)
	case r.first.Response():
		return fmt.Sprintf("%d–%d", r.first, r.last)
	case r.first == r.last:
		return first
	}
	var each []string
	for c := r.first; c < r.last; c++ {
		each = append(each, cameTexts[c])
	}
	return strings.Join(append(each, last), "; ")
}

// The table of docs/retries.md is this one.
func TestTable_page(t *testing.T) {
	var page strings.Builder
	page.WriteString("| what came back | if | verdict | work | server | limit | State |\n|---|---|---|---|---|---|---|\n")
	for _, r := range table {
		require.True(t, r.needs == 0 || signTexts[r.needs] != "", "a name for the signs %b", r.needs)
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s | %s | %s |\n", r.came(), signTexts[r.needs], verdictTexts[r.Verdict],
			workTexts[r.Work], serverTexts[r.Server], limitTexts[r.Limit], countTexts[r.Count])
	}
	doctable.Table(t, "../../docs/retries.md", "outcomes", page.String())
}

// each calls f with each thing that can come back, and each set of signs.
func each(f func(came Came, signs Signs, o Outcome)) {
	for came := Invalid; came <= 999; came++ {
		if came > Canceled && !came.Response() {
			continue
		}
		for signs := range Expects << 1 {
			if came.Response() && signs&Unsent != 0 {
				continue
			}
			f(came, signs, Of(came, signs))
		}
	}
}

// §4.18a: the laws of the table, for each thing that can come back with each set of signs.
func TestTable_laws(t *testing.T) {
	laws := []struct {
		name string
		hold func(came Came, signs Signs, o Outcome) bool
	}{
		{"each has a verdict", func(_ Came, _ Signs, o Outcome) bool { return o.Verdict != 0 }},
		{"only an unsent request is not sent", func(_ Came, signs Signs, o Outcome) bool { return o.Work != NotSent || signs&Unsent != 0 }},
		{"a request that was sent twice is in doubt, unless the second one succeeds", func(came Came, signs Signs, o Outcome) bool {
			return signs&Resent == 0 || o.Work == InDoubt || came/100 == 2
		}},
		{"a success tells of both requests", func(came Came, _ Signs, o Outcome) bool { return came/100 != 2 || o.Work == Known }},
		{"an unsent request waits as for a server with too much work, or longer", func(came Came, signs Signs, o Outcome) bool {
			return signs&Unsent == 0 || o.Trouble == max(Of(came, signs&^Unsent).Trouble, Overload)
		}},
		{"HTTP/2 that executes nothing says nothing about the server, and a response does", func(came Came, signs Signs, o Outcome) bool {
			return signs&SaysNotExecuted == 0 || signs&Unsent != 0 || came < 500 && came.Response() || (o.Server == Silent) == !came.Response()
		}},
		{"a wait proves nothing of the work", func(came Came, signs Signs, o Outcome) bool {
			return came != 503 && came != 408 || o.Work == InDoubt || signs&SaysNotExecuted != 0
		}},
		{"a 5xx proves nothing of the work", func(came Came, signs Signs, o Outcome) bool {
			return came < 500 || o.Work == InDoubt || signs&SaysNotExecuted != 0
		}},
		{"a response that says that nothing was executed is believed", func(came Came, signs Signs, o Outcome) bool {
			return came < 400 || signs&SaysNotExecuted == 0 || signs&Resent != 0 || o.Work == NotExecuted
		}},
		{"a limit that rejects has served nothing", func(_ Came, _ Signs, o Outcome) bool { return o.Limit != Rejected || o.Verdict != Success }},
		{"a server that rejects enforces a limit", func(_ Came, _ Signs, o Outcome) bool { return o.Server != Rejects || o.Limit == Rejected }},
		{"what is served comes from a server that works", func(_ Came, _ Signs, o Outcome) bool { return o.Limit != Served || o.Server == Works }},
		{"a success is counted as one", func(_ Came, _ Signs, o Outcome) bool {
			return (o.Verdict == Success) == (o.Count == CountSuccess)
		}},
		{"no retry follows the end of a call", func(came Came, signs Signs, o Outcome) bool {
			return !came.Over() || o.Verdict == Permanent || signs&SaysRetry != 0
		}},
		{"the caller's cancellation says nothing", func(came Came, _ Signs, o Outcome) bool {
			return came != Canceled && came != Superseded || o.Server == Silent && o.Count == CountNone
		}},
		{"the caller's deadline says something only after a fair time", func(came Came, signs Signs, o Outcome) bool {
			return came != CallDeadline || o.Server == Silent || signs&Late != 0
		}},
	}
	each(func(came Came, signs Signs, o Outcome) {
		for _, law := range laws {
			if !law.hold(came, signs, o) {
				t.Fatalf("%s: %d with signs %b is %+v", law.name, came, signs, o)
			}
		}
	})
}

// Each row can be reached: no row before it takes all that it is for.
func TestTable_rowsAreReached(t *testing.T) {
	for _, r := range table {
		signs := r.needs & -r.needs // one of them is enough
		require.Equal(t, r.Outcome, Of(r.first, signs), "%s %s", r.came(), signTexts[r.needs])
		require.Equal(t, r.Outcome, Of(r.last, signs), "%s %s", r.came(), signTexts[r.needs])
	}
}

// §4.18a: what a response proves of the work, by its status and header alone.
func TestOfResponse(t *testing.T) {
	for _, row := range []struct {
		status int
		header string
		want   Work
	}{
		{200, "", Known},
		{200, "Request-Executed: ?0", Known},
		{101, "", InDoubt},
		{404, "", Known},
		{408, "", InDoubt},
		{408, "Retry-After: 5", InDoubt},
		{421, "", NotExecuted},
		{425, "", NotExecuted},
		{429, "", NotExecuted},
		{403, "", Known},
		{403, "Retry-After: 5", NotExecuted},
		{403, "X-Ratelimit-Limit: 9\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 9", NotExecuted},
		{499, "", InDoubt},
		{500, "Request-Executed: ?0", NotExecuted},
		{502, "X-Envoy-Overloaded: true", NotExecuted},
		{503, "", InDoubt},
		{503, "Retry-After: 5", InDoubt},
		{503, "Retry-After: 5\nRequest-Executed: ?0", NotExecuted},
		{503, "Request-Executed:  ?0 ", NotExecuted},
		{503, "Request-Executed: ?1", InDoubt},
		{503, "Request-Executed: ?0\nRequest-Executed: ?0", InDoubt},
		{503, "Request-Executed: ?0, ?1", InDoubt},
		{503, "X-Envoy-Ratelimited: true", NotExecuted},
		{503, "X-Envoy-Overloaded: false", InDoubt},
		{0, "", InDoubt},
		{1000, "", InDoubt},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(row.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h.Add(name, value)
			}
		}
		assert.Equal(t, workTexts[row.want], workTexts[OfResponse(row.status, h).Work], "%d %s", row.status, row.header)
	}
}

// §4.18a: what an error of net/http proves. The texts are pinned against net/http in package neterr.
func TestOfError(t *testing.T) {
	for _, row := range []struct {
		err     error
		came    Came
		refused bool
	}{
		{errors.New("http2: Transport received GOAWAY from server ErrCode:INTERNAL_ERROR"), Broken, true},
		{errors.New("http2: Transport received GOAWAY from server ErrCode:ENHANCE_YOUR_CALM"), Calm, true},
		{errors.New("http2: Transport received Server's graceful shutdown GOAWAY"), Broken, true},
		{errors.New("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=\"\""), Broken, false},
		{errors.New("http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] after Request.Body was written"), Broken, true},
		{errors.New("http2: Transport: cannot retry err [stream error: stream ID 3; REFUSED_STREAM; received from peer] after Request.Body was written"), Broken, true},
		{errors.New("http2: Transport: cannot retry err [stream error: stream ID 3; PROTOCOL_ERROR; received from peer] after Request.Body was written"), Broken, false},
		{fmt.Errorf("a quote: %q", "http2: Transport received GOAWAY from server ErrCode:X"), Broken, false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Broken, false},
		{io.EOF, Broken, false},
		{&net.DNSError{IsNotFound: true}, Stranger, false},
		{&net.DNSError{IsTimeout: true}, NetworkTimeout, false},
		{http.ErrSchemeMismatch, Stranger, false},
	} {
		came, signs := OfError(row.err)
		assert.Equal(t, row.came, came, "%v", row.err)
		assert.Equal(t, row.refused, signs&SaysNotExecuted != 0, "%v", row.err)
	}
}

// A caller's verdict changes what State and the circuit count, and nothing of the work.
func TestOutcome_Overrule(t *testing.T) {
	fine := Of(503, 0).Overrule(Success)
	assert.Equal(t, Outcome{Success, InDoubt, Works, NoLimit, CountSuccess, Overload, false}, fine)
	limited := Of(429, 0).Overrule(Success)
	assert.Equal(t, Rejects, limited.Server)
	absent := Of(404, 0).Overrule(Transient)
	assert.Equal(t, Outcome{Transient, Known, Works, Served, CountClientError, Passing, false}, absent)
	failed := Of(200, 0).Overrule(Transient)
	assert.Equal(t, Outcome{Transient, Known, Works, Served, CountServerError, Passing, false}, failed)
}

func FuzzOfResponse(f *testing.F) {
	f.Add(503, "?0", "5", "true")
	f.Fuzz(func(t *testing.T, status int, executed, retryAfter, overloaded string) {
		o := OfResponse(status, http.Header{"Request-Executed": {executed}, "Retry-After": {retryAfter}, "X-Envoy-Overloaded": {overloaded}})
		require.NotZero(t, o.Verdict)
		require.NotEqual(t, NotSent, o.Work)
	})
}

func BenchmarkOf(b *testing.B) {
	for _, came := range []Came{200, 503, Broken, Canceled} {
		b.Run(fmt.Sprint(came), func(b *testing.B) {
			for b.Loop() {
				Of(came, 0)
			}
		})
	}
}
