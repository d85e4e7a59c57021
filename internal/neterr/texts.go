package neterr

// The beginnings of texts of net/http's errors that have no type of their own. SafeText shows
// what is listed here and hides the rest, which may quote the request or the response.
//
//nolint:gochecknoglobals // never written to
var (
	invalidTexts = [...]string{
		"unsupported protocol scheme ", "net/http: invalid header field name ", "net/http: invalid header field value ",
		"net/http: invalid trailer field name ", "net/http: invalid trailer field value ", "net/http: invalid method ",
		"net/http: can't write control character in Request.URL", "http: no Host in request URL", "http: nil Request.URL",
		"http: nil Request.Header", "http: invalid Host header", "http: Request.ContentLength=",
		// HTTP/2
		"invalid Host header", "request header list larger than peer's advertised limit", "invalid Connection request header: ",
		"invalid Upgrade request header: ", "invalid Transfer-Encoding request header: ", "invalid request :path ",
		"invalid :protocol header in non-CONNECT request",
	}
	bodyTexts  = [...]string{"http: ContentLength=", "http2: request body larger than specified content length", "invalid Trailer key "}
	socksTexts = [...]string{
		"no acceptable authentication methods", "unsupported authentication method ", "username/password authentication failed",
		"invalid username/password", "unexpected protocol version ", "unknown error connection not allowed by ruleset",
		"unknown error command not supported", "unknown error address type not supported",
	}
	handshakeTexts = [...]string{"net/http: TLS handshake timeout"}
	closedTexts    = [...]string{
		"http: server closed idle connection", "http2: client connection lost",
		"http2: server sent GOAWAY", "http2: Transport received Server's graceful shutdown GOAWAY",
	}

	// These are shown, and decide nothing.
	shownTexts = [...]string{
		"EOF", "unexpected EOF", "context canceled", "net/http: request canceled", "malformed HTTP response ", "malformed HTTP ",
		"malformed MIME header", "bad Content-Length ", "net/http: HTTP/1.x transport connection broken", "net/http: server response headers exceeded ",
		"unknown error general SOCKS server failure", "unknown error network unreachable", "unknown error host unreachable",
		"unknown error connection refused", "unknown error TTL expired", "http2: ", "tls: ", "x509: ",
	}
	operations = [...]string{"dial", "read", "write", "proxyconnect", "socks connect", "remote error", "local error"}
)
