package neterr

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// FromIntermediary reports whether err comes from a proxy, from a token endpoint, or from a
// Base that marks it with a method Permanent. Such an error says nothing about the server.
func FromIntermediary(err error) bool {
	return isPermanent(err) || rejectedByProxy(err) || findTokenError(err) != nil
}

// Permanent reports whether a retry would fail with the same error: the error's method
// Permanent returns true, a proxy rejects the client, or a token endpoint the credentials.
func Permanent(err error) bool {
	if isPermanent(err) || rejectedByProxy(err) {
		return true
	}
	token := findTokenError(err)
	if token == nil || slices.Contains([]string{"temporarily_unavailable", "server_error", "slow_down"}, token.code) {
		return false // the same credentials may get a token later
	}
	return token.code != "" || !temporary4xx(token.status) && token.status < http.StatusInternalServerError
}

func isPermanent(err error) bool {
	var marked interface{ Permanent() bool }
	return errors.As(err, &marked) && marked.Permanent()
}

// ConnectError is a proxy's response to CONNECT with a status other than 200.
type ConnectError struct{ Status int }

// ConnectAnswer is an http.Transport's OnProxyConnectResponse. It returns a ConnectError
// where net/http would return the proxy's own text.
func ConnectAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &ConnectError{resp.StatusCode}
}

func (e *ConnectError) Error() string {
	return strings.TrimSpace("the proxy answers CONNECT with " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
}

// rejectedByProxy reports whether a proxy rejects the client: its response to CONNECT is a
// 4xx that is not temporary. (With a 5xx the proxy could not reach the server.) Without a
// ConnectError, net/http keeps only the reason phrase, and the usual ones are known.
func rejectedByProxy(err error) bool {
	if e, ok := errors.AsType[*ConnectError](err); ok {
		return e.Status >= 400 && e.Status <= 499 && !temporary4xx(e.Status)
	}
	phrases := [...]string{"Bad Request", "Unauthorized", "Forbidden", "Method Not Allowed", "Proxy Authentication Required"}
	return anyOf(err, func(err error) bool {
		// SOCKS5 rejects credentials, a command or an address. The other replies of RFC 1928 are about the server.
		if op, ok := err.(*net.OpError); ok && strings.HasPrefix(op.Op, "socks") { //nolint:errorlint // anyOf unwraps
			return hasPrefix(op.Err, socksTexts)
		}
		return wrapped(err) == nil && slices.ContainsFunc(phrases[:], func(phrase string) bool { return strings.EqualFold(err.Error(), phrase) })
	})
}

// temporary4xx reports whether a later request may get another status.
func temporary4xx(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}

// tokenError is the part of a RetrieveError of golang.org/x/oauth2 that matters here: a
// token endpoint has responded without a token.
type tokenError struct {
	code   string // of RFC 6749, section 5.2, or ""
	status int    // of the response
}

// findTokenError returns the RetrieveError in err, or nil. This module does not require
// oauth2, so the type is recognized by its name and fields.
func findTokenError(err error) (found *tokenError) {
	anyOf(err, func(err error) bool {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct || v.Type().Name() != "RetrieveError" {
			return false
		}
		code, response := v.FieldByName("ErrorCode"), v.FieldByName("Response")
		if !response.IsValid() || response.Type() != reflect.TypeFor[*http.Response]() {
			return false
		}
		found = &tokenError{}
		if code.Kind() == reflect.String {
			found.code = code.String()
		}
		if !response.IsNil() {
			found.status = int(response.Elem().FieldByName("StatusCode").Int())
		}
		return true
	})
	return found
}
