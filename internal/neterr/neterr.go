// Package neterr says what an error of net/http, net or crypto/tls means for the
// request that met it: whether it was wrong by itself, whether it may have reached
// the server, whether asking again could end otherwise, and what may be told of it
// in a log. It is pure, and the one place that knows texts of net/http.
//
// Errors are told apart by errors.As and errors.Is. Where net/http offers no type,
// it is the beginning of the innermost error's text; these have not changed in ten
// years and are pinned by tests against net/http.
package neterr

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
)

// ErrMalformed marks requests that this module itself finds malformed.
var ErrMalformed = errors.New("invalid request") // "malformed" is what Describe hides, with net/http

// ErrMisconfigured marks what this module finds wrong with its own configuration, whatever
// the request is.
var ErrMisconfigured = errors.New("invalid configuration")

// Malformed reports whether err says that the request itself is wrong: repeating
// it would fail in the same way.
func Malformed(err error) bool { return unsendable(err) || foundWhileWriting(err) }

// unsendable is a request that was refused before a byte of it was written.
func unsendable(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrMisconfigured) || noAddress(err) || begins(err,
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

// foundWhileWriting is what net/http finds wrong after the first bytes have left.
func foundWhileWriting(err error) bool {
	return begins(err, "http: ContentLength=", "http2: request body larger than specified content length", "invalid Trailer key ")
}

// begins reports whether one of the errors that err wraps, itself wrapping
// nothing, begins with one of the texts. Words further on prove nothing: errors
// quote URLs, and what servers have sent.
func begins(err error, texts ...string) bool {
	return anyLeaf(err, func(leaf error) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(leaf.Error(), text) })
	})
}

// anyLeaf reports whether one of the errors that err wraps, itself wrapping
// nothing, is as asked.
func anyLeaf(err error, is func(error) bool) bool {
	return walk(err, func(err error) bool {
		switch any(err).(type) {
		case interface{ Unwrap() error }, interface{ Unwrap() []error }:
			return false
		}
		return is(err)
	})
}

// walk calls f for err and all that it wraps, until f returns true.
func walk(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch wrapper := any(err).(type) {
	case interface{ Unwrap() error }:
		return walk(wrapper.Unwrap(), f)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapper.Unwrap(), func(err error) bool { return walk(err, f) })
	}
	return false
}

// NeverLeft reports whether err proves that no byte of the request reached the
// server: it could not be sent, the name was not resolved, the connection not
// made, the TLS handshake not finished, or what comes before has failed.
func NotSent(err error) bool {
	return unsendable(err) || notDialled(err) || noHandshake(err) || SchemeMismatch(err) ||
		refusedByProxy(err) || tokenRefusal(err) != nil
}

// notDialled is a connection that was not made, to the server or to a proxy.
func notDialled(err error) bool {
	if _, dns := errors.AsType[*net.DNSError](err); dns || errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	if _, answer := errors.AsType[*ConnectError](err); answer {
		return true
	}
	return whileDialling(err)
}

// whileDialling reports whether err came before there was a connection.
func whileDialling(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect" || strings.HasPrefix(op.Op, "socks"))
}

// noAddress is a dialer that was given what is no address: a port above 65535, a network
// of no kind. It is found here, and nobody was asked.
func noAddress(err error) bool {
	if !whileDialling(err) {
		return false
	}
	if address, ok := errors.AsType[*net.AddrError](err); ok {
		return address.Err != "no suitable address found" // of those that DNS gave, for now
	}
	var (
		network net.UnknownNetworkError
		invalid net.InvalidAddrError
		parsed  *net.ParseError
	)
	return errors.As(err, &network) || errors.As(err, &invalid) || errors.As(err, &parsed)
}

// NoSuchHost reports whether the name does not exist. Resolvers also say so while
// a zone is being changed, but asking again within seconds gets the cached answer.
func UnknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound && !dns.IsTemporary
}

// SchemeMismatch reports whether a server for http was asked for https. Only
// http.Client makes http.ErrSchemeMismatch of what http.Transport says.
func SchemeMismatch(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return errors.Is(err, http.ErrSchemeMismatch) || ok && string(record.RecordHeader[:]) == "HTTP/"
}

// TimedOut reports whether err says that time ran out, whoever's it was.
func TimedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
