package neterr

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// show returns as much of a text as harmless matches, and "" if that is nothing.
func show(text string) string {
	if status(text) {
		return text
	}
	var shown strings.Builder
	for {
		match := harmless().FindString(text)
		if match == "" {
			break
		}
		shown.WriteString(match)
		if text = text[len(match):]; text == "" {
			return shown.String()
		}
		next := strings.TrimPrefix(text, ": ")
		if next == text || harmless().FindString(next) == "" {
			break
		}
		shown.WriteString(": ")
		text = next
	}
	if shown.Len() > 0 {
		shown.WriteString(hidden)
	}
	return shown.String()
}

// status reports whether text is that of a status, which net/http makes of a proxy's
// response to CONNECT.
func status(text string) bool {
	for code := http.StatusBadRequest; code <= http.StatusNetworkAuthenticationRequired; code++ {
		if text != "" && strings.EqualFold(http.StatusText(code), text) {
			return true
		}
	}
	return false
}

// hostname is the name or the address of a host, with or without a port.
var hostname = regexp.MustCompile(`^[0-9A-Za-z.:_\[\]-]{1,260}$`)

// harmless returns what matches the beginning of texts of net, net/http, its HTTP/2 and SOCKS, and
// crypto/tls, up to where they quote something. What they quote is a number, the name of
// a header field or a scheme.
var harmless = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // never written to
	return regexp.MustCompile(`^(?:` + strings.Join(harmlessTexts[:], "|") + `)(?:\b|$)`)
})

var harmlessTexts = [...]string{ //nolint:gochecknoglobals // never written to
	// io, os, context, net
	`unexpected EOF`,
	`EOF`,
	`io: read/write on closed pipe`,
	`context canceled`,
	`context deadline exceeded`,
	`i/o timeout`,
	`operation was canceled`,
	`use of closed network connection`,
	`no such host`,
	`server misbehaving`,
	`no answer from DNS server`,
	`cannot unmarshal DNS message`,
	`invalid DNS response`,
	`no suitable address found`,
	`missing port in address`,
	`too many colons in address`,
	`invalid port`,
	`missing address`,
	`unknown network`,

	// net/http
	`unsupported protocol scheme(?: "[0-9A-Za-z+.-]{0,32}"$)?`,
	`net/http: invalid (?:header|trailer) field (?:name|value(?: for "[0-9A-Za-z_-]{1,64}"$)?)`,
	`net/http: invalid method`,
	`net/http: can't write control character in Request\.URL`,
	`net/http: cannot rewind body after connection loss`,
	`net/http: HTTP/1\.x transport connection broken`,
	`net/http: Transport failed to read from server`,
	`net/http: TLS handshake timeout`,
	`net/http: timeout awaiting response headers`,
	`net/http: request canceled(?: while waiting for connection)?`,
	`net/http: server response headers exceeded [0-9]{1,19} bytes; aborted`,
	`net/http: server replied with more than declared Content-Length; truncated`,
	`net/http: Transport\.(?:Dial|DialContext) hook returned \(nil, nil\)`,
	`net/http: Transport\.DialTLS or DialTLSContext returned \(nil, nil\)`,
	`net/http: extended connect not supported by peer`,
	`net/http: too many 1xx informational responses`,
	`http: nil Request\.(?:URL|Header)`,
	`http: no Host in request URL`,
	`http: Request\.RequestURI can't be set in client requests`,
	`http: Request\.ContentLength=[0-9]{1,19} with nil Body`,
	`http: ContentLength=[0-9]{1,19} with Body length [0-9]{1,19}`,
	`http: server gave HTTP response to HTTPS client`,
	`http: server closed idle connection`,
	`http: idle connection timeout`,
	`http: CloseIdleConnections called`,
	`http: invalid Read on closed Body`,
	`http: read on closed response body`,
	`http: invalid Host header`,
	`http: message cannot contain multiple Content-Length headers`,
	`read limit of [0-9]{1,19} bytes exhausted`,
	`readLoopPeekFailLocked`,
	`write error`,
	`malformed (?:HTTP (?:response|status code|version)|MIME header(?: initial line| line)?|chunked encoding|response from server)`,
	`(?:invalid empty|bad) Content-Length`,
	`(?:bad trailer|invalid Trailer) key`,
	`too many transfer encodings`,
	`unsupported transfer encoding`,

	// HTTP/2
	`http2: server sent GOAWAY and closed the connection(?:; LastStreamID=[0-9]{1,10}, ErrCode=` + http2Code + `)?`,
	`http2: Transport received GOAWAY from server ErrCode:` + http2Code,
	`http2: Transport received Server's graceful shutdown GOAWAY`,
	`http2: Transport: cannot retry err`,
	`http2: client (?:conn is closed|conn not usable|conn could not be established|connection lost|connection force closed via ClientConn\.Close)`,
	`http2: (?:aborting request body write|canceling request|stream closed|response body closed|frame too large)`,
	`http2: request body larger than specified content length`,
	`http2: response header list larger than advertised limit`,
	`http2: timeout awaiting response headers`,
	`http2: invalid (?:Connection|Upgrade|Transfer-Encoding) request header`,
	`http2`,
	`invalid (?:Connection|Upgrade|Transfer-Encoding) request header`,
	`invalid (?:request :path|Host header|:protocol header in non-CONNECT request)`,
	`request header list larger than peer's advertised limit`,
	`connection error: ` + http2Code,
	`stream error: stream ID [0-9]{1,10}; ` + http2Code + `(?:; (?:received from peer|protocol error))?`,

	// SOCKS
	`unexpected protocol version [0-9]{1,3}`,
	`no acceptable authentication methods`,
	`unsupported authentication method [0-9]{1,3}`,
	`invalid username/password(?: version)?`,
	`username/password authentication failed`,
	`unknown error ` + socksReply,

	// crypto/tls and crypto/x509
	`tls: failed to verify certificate`,
	`tls: first record does not look like a TLS handshake`,
	`tls: oversized record received`,
	`tls: server (?:selected unsupported protocol version|chose an unconfigured cipher suite)`,
	`x509: failed to load system roots and no roots provided`,
}

const (
	http2Code = `(?:NO_ERROR|PROTOCOL_ERROR|INTERNAL_ERROR|FLOW_CONTROL_ERROR|SETTINGS_TIMEOUT|STREAM_CLOSED|FRAME_SIZE_ERROR|` +
		`REFUSED_STREAM|CANCEL|COMPRESSION_ERROR|CONNECT_ERROR|ENHANCE_YOUR_CALM|INADEQUATE_SECURITY|HTTP_1_1_REQUIRED)`
	socksReply = `(?:general SOCKS server failure|connection not allowed by ruleset|network unreachable|host unreachable|` +
		`connection refused|TTL expired|command not supported|address type not supported|unknown code: [0-9]{1,3})`
)
