package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// signer is a Base that signs requests and sends them by next. It fails as long as err is not nil.
type signer struct {
	next  http.RoundTripper
	err   error
	after bool // it fails after it has sent the request, as with a challenge that it does not know
	sign  func(*http.Request) *http.Request
}

func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.err != nil && s.after {
		resp, err := s.next.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, s.err
	}
	if s.err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, s.err
	}
	if s.sign != nil {
		req = s.sign(req)
	}
	return s.next.RoundTrip(req)
}

var errAfter = errors.New("digest: unknown algorithm")

// detached gives a request a context of its own, as a Base does that hides its connections.
func detached(req *http.Request) *http.Request { return req.WithContext(context.Background()) }

// observer is a signer with Unwrap.
type observer struct{ *signer }

func (o observer) Unwrap() http.RoundTripper { return o.next }

// notNowError is an error of which its author says that a later request may succeed.
type notNowError struct{}

func (notNowError) Error() string   { return "bulkhead is full" }
func (notNowError) Permanent() bool { return false }

// §4.9: an own error of a Base that has asked for no connection ends the call at once, and says nothing about the server. The work
// is in doubt, unless it is known that Base only observes net/http. A Base that hides its connections proves nothing.
func TestOwnErrorOfBase(t *testing.T) {
	noToken := errors.New("signer: no credentials in the chain")
	for _, row := range []struct {
		name    string
		err     error
		observe bool                              // Base has Unwrap
		warm    bool                              // a call has succeeded before
		sign    func(*http.Request) *http.Request // of the call before
		again   bool
		doubt   bool // of a POST
	}{
		{"a signer that has sent before: at once", noToken, false, true, nil, false, true},
		{"one that only observes: at once, and not sent", noToken, true, true, nil, false, false},
		{"one that observes, first call: at once", noToken, true, false, nil, false, true},
		{"an unknown Base, first call: repeated", noToken, false, false, nil, true, true},
		{"a Base that hides its connections: repeated", noToken, false, true, detached, true, true},
		{"an error of http.Client inside: at once", fmt.Errorf("signer: %w", noToken), false, true, nil, false, true},
		{"it may pass: repeated", notNowError{}, false, true, nil, true, true},
		{"a reset: repeated", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, false, true, nil, true, true},
		{"an error of the network without a kind: repeated", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, false, true, nil, true, false},
		{"after it has sent the request: repeated", errAfter, false, true, nil, true, true},
		{"EOF: repeated", io.EOF, false, true, nil, true, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			server := faulttest.NewInMemory(t, faulttest.OK("fine"))
			sign := &signer{next: server.Transport(), sign: row.sign}
			tr := &resilienthttp.Transport{Base: sign}
			if row.observe {
				tr.Base = observer{sign}
			}
			if row.warm {
				readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, server.URL, "")))
			}
			sign.err, sign.after = row.err, row.err == errAfter
			start := time.Now()
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, server.URL, "charge"))
			require.ErrorIs(t, err, row.err)
			require.Equal(t, row.again, len(asError(t, err).Attempts) > 1, "repeated")
			require.Equal(t, row.doubt, resilienthttp.InDoubt(nil, err), "InDoubt")
			require.Equal(t, !row.doubt, asError(t, err).NotSent(), "NotSent")
			if row.again {
				return
			}
			require.Zero(t, time.Since(start))
			require.EqualError(t, err, row.err.Error())
			require.Equal(t, resilienthttp.VerdictPermanent, asError(t, err).Attempts[0].Verdict)
			scope := tr.State().Scopes[0]
			require.Equal(t, 1, scope.Responses.NetworkErrors)
			for range 50 { // the server has not failed
				require.ErrorIs(t, discard(tr, newRequest(t, http.MethodPost, server.URL, "charge")), row.err)
			}
			require.Equal(t, resilienthttp.StateClosed, tr.State().Scopes[0].Breaker.State)
			sign.err = nil
			readAll(t, roundTrip(t, tr, newRequest(t, http.MethodPost, server.URL, "charge")))
		})
	}
}

// §4.18a: net/http's Transport calls no hook for a protocol that a program has registered, such as HTTP/3. So what other hosts have
// shown of the hooks proves nothing of it: the server may have done the work.
func TestOwnErrorOfBase_registeredProtocol(t *testing.T) {
	errStream := errors.New("stream lost")
	for _, row := range []struct {
		name string
		warm bool // a call over TCP has succeeded before
	}{
		{"the first call", false},
		{"after a call over TCP", true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			server := faulttest.NewInMemory(t, faulttest.OK("fine"))
			base := server.Transport()
			executed := 0
			base.RegisterProtocol("h3", roundTripper(func(req *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				executed++
				return nil, errStream
			}))
			tr := &resilienthttp.Transport{Base: base}
			if row.warm {
				readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, server.URL, "")))
			}
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "h3://api.test/charges", "charge"))
			require.ErrorIs(t, err, errStream)
			require.NotZero(t, executed)
			require.True(t, resilienthttp.InDoubt(nil, err), "InDoubt")
			require.False(t, asError(t, err).NotSent(), "NotSent")
		})
	}
}
