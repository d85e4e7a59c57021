package resilienthttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	defaultMaxAttempts    = 4
	defaultAttemptTimeout = 30 * time.Second
	defaultMaxRetryAfter  = time.Minute

	// mostAttempts bounds Policy.MaxAttempts: each attempt leaves a record, and
	// who needs more repetitions than this needs a durable queue.
	mostAttempts = 100
)

// Policy says how often, how long and how far apart one call is attempted. The
// zero value holds the defaults. A Policy is a plain value; the Transport that
// got it reads it at its first call and not again.
type Policy struct {
	// MaxAttempts is the number of attempts that a call may make, the first
	// included, hedges not. 0 means 4; a negative number means never to retry;
	// more than 100 means 100.
	MaxAttempts int

	// AttemptTimeout bounds one attempt, from its sending until the response
	// headers are there; the time that gates and backoff take is not part of it,
	// nor is the reading of the body. The call's own deadline cuts it short. 0
	// means 30 s; a negative duration means no timeout.
	AttemptTimeout time.Duration

	// ReadTimeout is the longest silence while a response body is read: the time
	// that one Read may block. A reader that takes its time between reads is not
	// counted. It does not apply to 101 Switching Protocols. 0 or a negative
	// duration means none.
	ReadTimeout time.Duration

	// MaxRetryAfter is the longest wait asked by the server (Retry-After and its
	// kin, or the reset of an exhausted quota) that is slept. When the server
	// asks for more, the call stops at once with the response it has, whose last
	// Attempt bears the wait and ErrRetryAfter. 0 means 60 s; a negative duration
	// means no limit.
	MaxRetryAfter time.Duration

	// Backoff gives the wait before a retry; what the server asked for is added
	// to it. It must be safe for concurrent use.
	//
	// nil means FullJitter(100ms, 10s), save for one case: a server that answered
	// before turns the call away, by a 503 or 529 that does not say how long to
	// wait, and the Budget's share for the calls of late does not cover the retry.
	// All clients of that server come back now, and no budget counts them
	// together. Then it is FullJitter(3s, 10s), or a tenth of the time left before
	// the call's deadline in place of the 3s, where that is less.
	Backoff Backoff

	// Classify overrides the classification of an attempt. It may look at the
	// status and the headers, and must not read the body or keep the Attempt.
	// Returning VerdictDefault leaves the decision to the table; nil does so
	// always. It changes what is repeated, not what the circuit breaker counts.
	// It must be safe for concurrent use.
	Classify func(*Attempt) Verdict
}

// resolved is the policy with every default in its place, save that of Backoff,
// which depends on the failure.
func (p Policy) resolved() Policy {
	switch {
	case p.MaxAttempts == 0:
		p.MaxAttempts = defaultMaxAttempts
	case p.MaxAttempts < 0:
		p.MaxAttempts = 1
	case p.MaxAttempts > mostAttempts:
		p.MaxAttempts = mostAttempts
	}
	if p.AttemptTimeout == 0 {
		p.AttemptTimeout = defaultAttemptTimeout
	}
	if p.MaxRetryAfter == 0 {
		p.MaxRetryAfter = defaultMaxRetryAfter
	}
	return p
}

// WithPolicy returns a context whose calls follow p instead of
// Transport.Policy, all of it: fields left at zero mean the documented defaults,
// not the Transport's.
func WithPolicy(ctx context.Context, p Policy) context.Context {
	p = p.resolved()
	return withOptions(ctx, func(o *options) { o.policy = &p })
}

// SingleAttempt returns a context whose calls make one attempt each, without
// retry or hedge, because another layer owns the retries: a queue that delivers
// again, a workflow engine, a caller upstream. Keys, gates and deadlines stay in
// force. Three layers of three attempts are 27 calls at the bottom; one owner
// keeps them at three.
func SingleAttempt(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.single = true })
}

// Verdict is what one attempt's outcome means for the call.
type Verdict int

const (
	// VerdictDefault leaves the decision to the classification table.
	VerdictDefault Verdict = iota
	// VerdictSuccess ends the call with this response.
	VerdictSuccess
	// VerdictPermanent ends the call too: repeating would not change the outcome.
	VerdictPermanent
	// VerdictTransient means that the failure may pass: worth a retry.
	VerdictTransient
	// VerdictThrottled means that the server asks for less: worth a retry, later.
	VerdictThrottled
)

// String is the verdict's name in lower case, for logs.
func (v Verdict) String() string {
	switch v {
	case VerdictDefault:
		return "default"
	case VerdictSuccess:
		return "success"
	case VerdictPermanent:
		return "permanent"
	case VerdictTransient:
		return "transient"
	case VerdictThrottled:
		return "throttled"
	default:
		return "unknown"
	}
}

// retryable reports whether the verdict calls for another attempt.
func (v Verdict) retryable() bool { return v == VerdictTransient || v == VerdictThrottled }

// classify is the table: what a response means (RFC 9110 section 15, RFC 6585,
// RFC 8470), with what the server said beside its status.
func (a *answer) classify(status int, keyed bool) Verdict {
	if status < http.StatusBadRequest {
		return VerdictSuccess
	}
	verdict := classifyStatus(status, keyed)
	if status == http.StatusForbidden && (a.exhausted || a.asksToWait) {
		verdict = VerdictThrottled // GitHub answers 403 for its rate limits
	}
	if status == http.StatusServiceUnavailable && a.asksToWait {
		verdict = VerdictThrottled
	}
	// A server that says so in as many words knows best (Stripe-Should-Retry).
	switch {
	case a.shouldRetry == saidNo:
		return VerdictPermanent
	case a.shouldRetry == saidYes && !verdict.retryable():
		return VerdictTransient
	}
	return verdict
}

func classifyStatus(status int, keyed bool) Verdict {
	switch status {
	case http.StatusTooManyRequests,
		statusOverloaded:
		return VerdictThrottled
	case http.StatusRequestTimeout,
		http.StatusTooEarly:
		return VerdictTransient
	case http.StatusConflict:
		// With an idempotency key a conflict means that the first copy is still
		// at work there; without one it is an answer about the resource.
		if keyed {
			return VerdictTransient
		}
		return VerdictPermanent
	case http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported,
		http.StatusVariantAlsoNegotiates,
		http.StatusLoopDetected,
		http.StatusNotExtended,
		http.StatusNetworkAuthenticationRequired:
		return VerdictPermanent
	}
	if status >= 500 && status <= 599 {
		return VerdictTransient
	}
	return VerdictPermanent
}

// statusOverloaded is 529 "site is overloaded", as Anthropic and others send it.
const statusOverloaded = 529

// classifyError is the table's other half: which transport errors may pass. An
// error of unknown kind may.
func classifyError(err error) Verdict {
	if malformedRequest(err) || untrusted(err) || schemeMismatch(err) || refused(err) != nil || errors.Is(err, errBrokenBase) {
		return VerdictPermanent
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound && !dns.IsTemporary {
		// The name does not exist. Resolvers also say so while a zone is being
		// changed, but asking again within seconds gets the cached answer.
		return VerdictPermanent
	}
	return VerdictTransient
}

// schemeMismatch reports whether a server for http was asked for https. Only
// http.Client makes http.ErrSchemeMismatch of what http.Transport says.
func schemeMismatch(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}

// refused is the error of a Transport inside this one whose gate refused the
// request, and nil for others. Asking again would only meet the same gate.
func refused(err error) *Error {
	var inner *Error
	if errors.As(err, &inner) && (errors.Is(inner, ErrBreakerOpen) || errors.Is(inner, ErrRateLimited)) {
		return inner
	}
	return nil
}

// errBrokenBase is a Base that breaks http.RoundTripper's contract.
var errBrokenBase = errors.New("neither a response nor an error came from Base")

// errMalformed marks requests that this package itself finds malformed.
var errMalformed = errors.New("invalid request") // "malformed" is what describe hides, with net/http

// malformedRequest reports whether err says that the request itself is wrong:
// repeating it would fail in the same way.
func malformedRequest(err error) bool {
	// These two are found out while the request is being written.
	return unsendable(err) || begins(err, "http: ContentLength=", "http2: request body larger than specified content length", "invalid Trailer key ")
}

// unsendable reports whether err says that the request was refused before a
// byte of it was written. net/http has no types for these errors, only their
// texts, which have not changed in ten years and are pinned by a test against
// net/http.
func unsendable(err error) bool {
	return errors.Is(err, errMalformed) || begins(err,
		"unsupported protocol scheme ",
		"net/http: invalid header ",
		"net/http: invalid trailer ",
		"net/http: invalid method ",
		"http: no Host in request URL",
		"http: nil Request.URL",
		"http: nil Request.Header",
		"http: invalid Host header",
		"invalid Host header", // HTTP/2's
		"net/http: can't write control character in Request.URL",
		"http: Request.ContentLength=",
		"request header list larger than peer's advertised limit", // HTTP/2's
		"invalid Connection request header: ",                     // likewise, and what follows
		"invalid Upgrade request header: ",
		"invalid Transfer-Encoding request header: ",
		"invalid request :path ",
		"invalid :protocol header in non-CONNECT request",
	)
}

// begins reports whether one of the errors that err wraps, itself wrapping
// nothing, begins with one of the texts. Words further on prove nothing: errors
// quote URLs, and what servers have sent.
func begins(err error, texts ...string) bool {
	switch wrapper := any(err).(type) {
	case nil:
		return false
	case interface{ Unwrap() error }:
		return begins(wrapper.Unwrap(), texts...)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapper.Unwrap(), func(err error) bool { return begins(err, texts...) })
	}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(err.Error(), text) })
}

// untrusted reports whether TLS failed over a certificate, ours or the peer's.
func untrusted(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		roots        x509.SystemRootsError
	)
	if errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &invalid) || errors.As(err, &roots) {
		return true
	}
	switch alertOf(err) {
	case alertBadCertificate, alertUnsupportedCertificate, alertCertificateRevoked, alertCertificateExpired,
		alertCertificateUnknown, alertUnknownCA, alertAccessDenied, alertCertificateRequired:
		return true
	}
	return false
}

// alertOf is the TLS alert with which the peer ended the connection, or 0, which
// is close_notify and no error. QUIC has an exported type for it; over TCP
// crypto/tls wraps a type of its own, of the same numbers, in a "remote error".
func alertOf(err error) tls.AlertError {
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return alert
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		if number := reflect.ValueOf(op.Err); number.Kind() == reflect.Uint8 {
			return tls.AlertError(number.Uint())
		}
	}
	return 0
}

// The alerts of RFC 8446 section 6 that are about certificates, and those that
// only a handshake can bring.
const (
	alertHandshakeFailure       tls.AlertError = 40
	alertBadCertificate         tls.AlertError = 42
	alertUnsupportedCertificate tls.AlertError = 43
	alertCertificateRevoked     tls.AlertError = 44
	alertCertificateExpired     tls.AlertError = 45
	alertCertificateUnknown     tls.AlertError = 46
	alertUnknownCA              tls.AlertError = 48
	alertAccessDenied           tls.AlertError = 49
	alertProtocolVersion        tls.AlertError = 70
	alertInsufficientSecurity   tls.AlertError = 71
	alertUnrecognizedName       tls.AlertError = 112
	alertCertificateRequired    tls.AlertError = 116
	alertNoApplicationProtocol  tls.AlertError = 120
)

// neverLeft reports whether err proves that no byte of the request reached the
// server: the name was not resolved, the connection not made, or the TLS
// handshake not finished.
func neverLeft(err error) bool {
	var (
		op           *net.OpError
		dns          *net.DNSError
		record       tls.RecordHeaderError
		verification *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &dns), errors.As(err, &verification),
		schemeMismatch(err), unsendable(err):
		return true
	case refused(err) != nil && len(refused(err).Attempts) == 0:
		return true
	case errors.As(err, &record) && record.Conn != nil: // nil: a later record was broken, not the first
		return true
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || strings.HasPrefix(op.Op, "socks")):
		return true
	}
	switch alertOf(err) {
	case alertHandshakeFailure, alertProtocolVersion, alertInsufficientSecurity, alertUnrecognizedName, alertNoApplicationProtocol:
		return true
	}
	// Its type is not exported.
	return begins(err, "net/http: TLS handshake timeout")
}

// safeMethod is RFC 9110 section 9.2.1. Methods are case-sensitive; an unknown one
// is neither safe nor idempotent.
func safeMethod(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// idempotentMethod is RFC 9110 section 9.2.2.
func idempotentMethod(method string) bool {
	return safeMethod(method) || method == http.MethodPut || method == http.MethodDelete
}
