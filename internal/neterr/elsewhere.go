package neterr

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
)

// Elsewhere reports whether err is of somebody on the way to the server, who
// answered in its place: a proxy, a token endpoint, or a Base that says so
// of itself. It tells nothing about the server.
func FromIntermediary(err error) bool {
	return marked(err) || refusedByProxy(err) || tokenRefusal(err) != nil
}

// ForGood reports whether err says by itself that asking again would end in the
// same way: its Permanent method reports true, a proxy rejects the client, or a token
// endpoint the credentials.
func Permanent(err error) bool {
	if token := tokenRefusal(err); token != nil && !token.mayPass() {
		return true
	}
	return marked(err) || refusedByProxy(err)
}

// marked is an error with a method Permanent that reports true.
func marked(err error) bool {
	var permanent interface{ Permanent() bool }
	return errors.As(err, &permanent) && permanent.Permanent()
}

// ConnectError is the answer, other than 200, of a proxy to a CONNECT.
type ConnectError struct{ Status int }

// ConnectAnswer is an http.Transport's OnProxyConnectResponse that says in a type
// what net/http would say in the answer's own words.
func ConnectAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &ConnectError{resp.StatusCode}
}

func (e *ConnectError) Error() string {
	return strings.TrimSpace("the proxy answers CONNECT with " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
}

// refusedByProxy is a proxy that does not want us: its answer to CONNECT was a
// 4xx that does not pass. (One that answers with a 5xx could not reach the server.)
// Without a ConnectError, all that net/http leaves of the answer is its reason
// phrase, and only the usual ones are known. A SOCKS5 proxy has replies of its own.
func refusedByProxy(err error) bool {
	if answer, ok := errors.AsType[*ConnectError](err); ok {
		return answer.Status >= 400 && answer.Status <= 499 && !passing(answer.Status)
	}
	return rejectedBySOCKS(err) || anyLeaf(err, func(leaf error) bool {
		for _, status := range [...]int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		} {
			if strings.EqualFold(leaf.Error(), http.StatusText(status)) {
				return true
			}
		}
		return false
	})
}

// rejectedBySOCKS reports whether a SOCKS5 proxy rejects the client: the credentials, the
// command or the rules say no, or it does not speak SOCKS5. The other replies of RFC 1928
// (host unreachable, connection refused) are about the server behind the proxy.
//
// net/http has a type for what the exchange with the proxy ends in, but none for the
// reply, which is a text.
func rejectedBySOCKS(err error) bool {
	return walk(err, func(err error) bool {
		op, ok := err.(*net.OpError) //nolint:errorlint // walk unwraps
		return ok && strings.HasPrefix(op.Op, "socks") && begins(op.Err,
			"no acceptable authentication methods",
			"unsupported authentication method ",
			"username/password authentication failed",
			"invalid username/password",
			"unexpected protocol version ",
			"unknown error connection not allowed by ruleset",
			"unknown error command not supported",
			"unknown error address type not supported",
		)
	})
}

// passing reports whether a 4xx is about the moment and not about the request.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// tokenError is what golang.org/x/oauth2's RetrieveError says: a token endpoint
// has answered, and not with a token.
type tokenError struct {
	code   string // of RFC 6749 section 5.2; empty if the answer had none
	status int    // of the answer
}

// tokenRefusal is the token endpoint's answer in err, or nil. oauth2 is not among
// what this module requires, so its type is known by its fields.
func tokenRefusal(err error) *tokenError {
	var found *tokenError
	walk(err, func(err error) bool {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v.Type().Name() != "RetrieveError" {
			return false
		}
		code, response := v.FieldByName("ErrorCode"), v.FieldByName("Response")
		if !response.IsValid() || response.Type() != reflect.TypeFor[*http.Response]() {
			return false
		}
		found = &tokenError{}
		if code.IsValid() && code.Kind() == reflect.String {
			found.code = code.String()
		}
		if !response.IsNil() {
			found.status = int(response.Elem().FieldByName("StatusCode").Int())
		}
		return true
	})
	return found
}

// mayPass reports whether the same credentials could get a token a little later.
func (e *tokenError) mayPass() bool {
	switch e.code {
	case "":
	case "temporarily_unavailable", "server_error", "slow_down":
		return true
	default:
		return false
	}
	return passing(e.status) || e.status >= http.StatusInternalServerError
}
