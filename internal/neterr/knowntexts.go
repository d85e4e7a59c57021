package neterr

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// known returns the part of text that is known to be safe, or "".
func known(text string) string {
	// net/http makes an error of the status text of a proxy's response to CONNECT.
	for code := http.StatusBadRequest; code <= http.StatusNetworkAuthenticationRequired; code++ {
		if text != "" && strings.EqualFold(http.StatusText(code), text) {
			return text
		}
	}
	all, _ := match(text)
	if all != "" && all != text {
		return all + hidden
	}
	return all
}

// match returns the known texts at the beginning of text, joined by ": ", and the first one.
func match(text string) (all, first string) {
	if found := pattern().FindStringSubmatch(text); found != nil {
		return found[0], found[1]
	}
	return "", ""
}

var pattern = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // never written to
	one := `(?:` + strings.Join(knownTexts[:], "|") + `)(?:\b|$)`
	return regexp.MustCompile(`^(` + one + `)(?:: ` + one + `)*`)
})

// hostname matches the name or the address of a host, with or without a port.
var hostname = regexp.MustCompile(`^[0-9A-Za-z.:_\[\]-]{1,260}$`)

// allowed returns text if it is a known method, network, system call or operation, or "".
func allowed(text string) string {
	if slices.Contains(allowedWords[:], text) {
		return text
	}
	return ""
}

var allowedWords = [...]string{ //nolint:gochecknoglobals // never written to
	"get", "head", "post", "put", "patch", "delete", "options", "trace", "connect", "parse",
	"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix",
	"dial", "read", "write", "close", "set", "readfrom", "sendfile", "splice", "getsockopt", "socket", "bind",
	"proxyconnect", "socks connect", "remote error", "local error",
}

// knownTexts are regular expressions for texts of the standard library, without the parts
// that quote a request or a response. What they match of those is a number, the name of a
// header field or a scheme.
var knownTexts = [...]string{ //nolint:gochecknoglobals // never written to
	// io, context, net
	`unexpected EOF`, `EOF`, `io: read/write on closed pipe`, `context canceled`, `context deadline exceeded`,
	`i/o timeout`, `operation was canceled`, `use of closed network connection`, `no such host`, `server misbehaving`,
	`no answer from DNS server`, `cannot unmarshal DNS message`, `invalid DNS response`, `no suitable address found`,
	`missing port in address`, `too many colons in address`, `invalid port`, `missing address`, `unknown network`,

	// net/http
	`unsupported protocol scheme(?: "[0-9A-Za-z+.-]{0,32}"$)?`,
	`net/http: invalid (?:header|trailer) field (?:name|value(?: for "[0-9A-Za-z_-]{1,64}"$)?)`,
	`net/http: invalid method`, `net/http: can't write control character in Request\.URL`,
	`net/http: cannot rewind body after connection loss`, `net/http: HTTP/1\.x transport connection broken`,
	`net/http: Transport failed to read from server`, `net/http: TLS handshake timeout`,
	`net/http: timeout awaiting response headers`, `net/http: request canceled(?: while waiting for connection)?`,
	`net/http: server response headers exceeded [0-9]{1,19} bytes; aborted`,
	`net/http: server replied with more than declared Content-Length; truncated`,
	`net/http: Transport\.(?:Dial|DialContext) hook returned \(nil, nil\)`,
	`net/http: Transport\.DialTLS or DialTLSContext returned \(nil, nil\)`,
	`net/http: extended connect not supported by peer`, `net/http: too many 1xx informational responses`,
	`http: nil Request\.(?:URL|Header)`, `http: no Host in request URL`, `http: invalid Host header`,
	`http: Request\.RequestURI can't be set in client requests`, `http: Request\.ContentLength=[0-9]{1,19} with nil Body`,
	`http: ContentLength=[0-9]{1,19} with Body length [0-9]{1,19}`, `http: server gave HTTP response to HTTPS client`,
	`http: server closed idle connection`, `http: idle connection timeout`, `http: CloseIdleConnections called`,
	`http: invalid Read on closed Body`, `http: read on closed response body`,
	`http: message cannot contain multiple Content-Length headers`,
	`read limit of [0-9]{1,19} bytes exhausted`, `readLoopPeekFailLocked`, `write error`,
	`malformed (?:HTTP (?:response|status code|version)|MIME header(?: initial line| line)?|chunked encoding|response from server)`,
	`(?:invalid empty|bad) Content-Length`, `(?:bad trailer|invalid Trailer) key`, `too many transfer encodings`,
	`unsupported transfer encoding`,

	// HTTP/2
	`http2: server sent GOAWAY and closed the connection(?:; LastStreamID=[0-9]{1,10}, ErrCode=` + http2Code + `)?`,
	`http2: Transport received GOAWAY from server ErrCode:` + http2Code,
	`http2: Transport received Server's graceful shutdown GOAWAY`, `http2: Transport: cannot retry err`,
	`http2: client (?:conn is closed|conn not usable|conn could not be established|connection lost)`,
	`http2: client connection force closed via ClientConn\.Close`,
	`http2: (?:aborting request body write|canceling request|stream closed|response body closed|frame too large)`,
	`http2: request body larger than specified content length`, `http2: response header list larger than advertised limit`,
	`http2: timeout awaiting response headers`, `http2: invalid (?:Connection|Upgrade|Transfer-Encoding) request header`,
	`http2`, `invalid (?:Connection|Upgrade|Transfer-Encoding) request header`,
	`invalid (?:request :path|Host header|:protocol header in non-CONNECT request)`,
	`request header list larger than peer's advertised limit`, `connection error: ` + http2Code,
	`stream error: stream ID [0-9]{1,10}; ` + http2Code + `(?:; (?:received from peer|protocol error))?`,

	// SOCKS
	`unexpected protocol version [0-9]{1,3}`, `no acceptable authentication methods`,
	`unsupported authentication method [0-9]{1,3}`, `invalid username/password(?: version)?`,
	`username/password authentication failed`, `unknown error ` + socksReply,

	// crypto/tls and crypto/x509
	`tls: failed to verify certificate`, `tls: first record does not look like a TLS handshake`, `tls: oversized record received`,
	`tls: server (?:selected unsupported protocol version|chose an unconfigured cipher suite)`,
	`x509: failed to load system roots and no roots provided`,
}

const (
	http2Code = `(?:NO_ERROR|PROTOCOL_ERROR|INTERNAL_ERROR|FLOW_CONTROL_ERROR|SETTINGS_TIMEOUT|STREAM_CLOSED|FRAME_SIZE_ERROR|` +
		`REFUSED_STREAM|CANCEL|COMPRESSION_ERROR|CONNECT_ERROR|ENHANCE_YOUR_CALM|INADEQUATE_SECURITY|HTTP_1_1_REQUIRED)`
	socksReply = `(?:general SOCKS server failure|connection not allowed by ruleset|network unreachable|host unreachable|` +
		`connection refused|TTL expired|command not supported|address type not supported|unknown code: [0-9]{1,3})`
)
