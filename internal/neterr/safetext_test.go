package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// fetchError is an error type of a user's RoundTripper. Its text may contain a secret.
type fetchError struct {
	text  string
	cause error
}

func (f *fetchError) Error() string { return f.text }
func (f *fetchError) Unwrap() error { return f.cause }

// busyError has no fields, so it cannot contain a secret.
type busyError struct{}

func (busyError) Error() string { return "all workers are busy" }

// §4.7: SafeText shows known beginnings of texts, and of other errors the kind and the type only.
func TestSafeText(t *testing.T) {
	const secret = "s3cret"
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"nil: nothing", nil, ""},
		{"unknown text: its type", errors.New("GET https://a.test/" + secret), "*errors.errorString (not shown)"},
		{"unknown type: its type", &fetchError{text: secret}, "*neterr.fetchError (not shown)"},
		{"unknown type with a cause: both", &fetchError{secret, io.EOF}, "*neterr.fetchError: EOF"},
		{"fmt.Errorf: its cause", fmt.Errorf("https://a.test/%s: %w", secret, io.EOF), "EOF"},
		{"fmt.Errorf with two causes: both", fmt.Errorf("%w, %w: %s", io.EOF, syscall.ECONNRESET, secret), "EOF; connection reset by peer"},
		{"errors.Join: its parts", errors.Join(errors.New(secret), io.EOF), "*errors.errorString (not shown); EOF"},
		{"a type without fields: its text", busyError{}, "all workers are busy"},
		{"own text: unchanged", New("no more workers"), "no more workers"},
		{"own request error: unchanged", fmt.Errorf("%w: ContentLength 5 with nil Body", ErrMalformed), "invalid request: ContentLength 5 with nil Body"},
		{"around an own error: its text", fmt.Errorf("%s: %w", secret, fmt.Errorf("%w: nil Request", ErrMalformed)), "invalid request: nil Request"},
		{"reason and cause: both", With(New("reason"), &fetchError{text: secret}), "reason: *neterr.fetchError (not shown)"},
		{"url.Error: its cause", &url.Error{Op: "Get", URL: "http://a?" + secret, Err: io.EOF}, "EOF"},
		{"url.Error with a text for its operation: its cause", &url.Error{Op: secret, URL: secret, Err: io.EOF}, "EOF"},
		{"two url.Errors: both", errors.Join(&url.Error{Op: "Get", URL: secret, Err: io.EOF}, &url.Error{Op: "Put", URL: secret, Err: io.EOF}), "EOF; EOF"},
		{"dial: with the address", &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "dial 192.0.2.1:443: connection refused"},
		{"read: with the server's address", &net.OpError{Op: "read", Net: "tcp", Source: address, Addr: address, Err: io.EOF}, "read 192.0.2.1:443: EOF"},
		{"unknown host: its name", &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}, "lookup a.test: no such host"},
		{"DNS text: by its flags", &net.DNSError{Err: secret, Name: "a.test/?" + secret, IsTimeout: true}, "lookup: i/o timeout"},
		{"certificate: its text", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "*tls.CertificateVerificationError: x509: certificate signed by unknown authority"},
		{"alert: its text", &net.OpError{Op: "remote error", Err: foreignAlertError(40)}, "remote error: tls: alert(40)"},
		{"net/http quotes the server: up to there", errors.New(`malformed HTTP response "` + secret + `"`), "malformed HTTP response (not shown)"},
		{"net/http around it: both", fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", textproto.ProtocolError("malformed MIME header line: "+secret)), "malformed MIME header (not shown)"},
		{"net/http in one text: the first", errors.New(`net/http: HTTP/1.x transport connection broken: bad Content-Length "` + secret + `"`), "net/http: HTTP/1.x transport connection broken (not shown)"},
		{"HTTP/2's GOAWAY: its beginning", errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="` + secret + `"`), "http2: server sent GOAWAY (not shown)"},
		{"scheme: its beginning", errors.New(`unsupported protocol scheme "` + secret + `"`), "unsupported protocol scheme (not shown)"},
		{"HTTP/2 stream error: its code", streamError{Code: refusedStream, Cause: errors.New(secret)}, "HTTP/2 stream error 7"},
		{"proxy's status: its kind and type", errors.New("Proxy Authentication Required"), "proxy: *errors.errorString (not shown)"},
		{"proxy's own text: its type", errors.New(secret), "*errors.errorString (not shown)"},
		{"token endpoint: not shown", token(401, "invalid_client"), "no token from the token endpoint (its answer is not shown)"},
		{"very many: the first ones", errors.Join(slices.Repeat([]error{io.EOF}, 10_000)...), strings.Repeat("EOF; ", 51) + "E…"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, SafeText(row.err))
		})
	}
	t.Run("very long: cut", func(t *testing.T) {
		require.Equal(t, strings.Repeat("ä", 128)+"…", SafeText(New(strings.Repeat("ä", 1000))))
	})
	t.Run("lines: one", func(t *testing.T) {
		require.Equal(t, "a  b c d e", SafeText(New("a\r\nb\x00c\x7fd\te")))
	})
}

// errorsWith returns errors that contain a text, in each field of the types that clients get.
func errorsWith(text string) map[string]error {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	return map[string]error{
		"errors.New":         errors.New(text),
		"fmt.Errorf":         fmt.Errorf("%s: %w", text, io.EOF),
		"cause":              fmt.Errorf("layer: %w", errors.New(text)),
		"two causes":         fmt.Errorf("%w%s%w", errors.New(text), text, errors.New(text)),
		"own type":           &fetchError{text, &fetchError{text, io.EOF}},
		"joined":             errors.Join(io.EOF, errors.New(text)),
		"known words":        errors.New("EOF: " + text),
		"net/http's":         errors.New("net/http: HTTP/1.x transport connection broken: " + text),
		"server's":           errors.New("malformed HTTP response " + strconv.Quote(text)),
		"MIME header":        textproto.ProtocolError("malformed MIME header line: " + text),
		"MIME header's":      errors.New(text + ` malformed MIME header "` + text + `"`),
		"textproto":          &textproto.Error{Code: 500, Msg: text},
		"http.ProtocolError": &http.ProtocolError{ErrorString: text}, //nolint:staticcheck // net/http still returns it
		"token endpoint":     &RetrieveError{Response: &http.Response{Status: text}, Body: []byte(text), ErrorCode: text},
		"url.Error":          &url.Error{Op: "Get" + text, URL: text, Err: errors.New(text)},
		"url.EscapeError":    url.EscapeError(text),
		"invalid host":       url.InvalidHostError(text),
		"net.OpError":        &net.OpError{Op: "dial " + text, Net: "tcp " + text, Source: &net.UnixAddr{Name: text}, Addr: &net.UnixAddr{Name: text}, Err: errors.New(text)},
		"socks":              &net.OpError{Op: "socks connect", Err: errors.New("unknown error " + text)},
		"DNS":                &net.DNSError{Err: text, Name: "a.test/" + text, Server: text},
		"address":            dial(&net.AddrError{Err: text, Addr: "a/" + text}),
		"unparsed":           dial(&net.ParseError{Type: text, Text: text}),
		"network":            dial(net.UnknownNetworkError(text)),
		"invalid address":    dial(net.InvalidAddrError(text)),
		"path":               &fs.PathError{Op: text, Path: text, Err: fs.ErrNotExist},
		"system call":        os.NewSyscallError(text, syscall.ECONNRESET),
		"number":             &strconv.NumError{Func: text, Num: text, Err: strconv.ErrSyntax},
		"tls":                tls.RecordHeaderError{Msg: text},
		"verification":       &tls.CertificateVerificationError{Err: errors.New(text)},
		"roots":              x509.SystemRootsError{Err: errors.New(text)},
		"reason":             &ReasonedError{errors.New(text), errors.New(text)},
		"cause of a context": With(context.Canceled, errors.New(text)),
	}
}

// §4.7: SafeText returns one line of bounded length that contains no part of an error's
// unknown text.
func FuzzSafeText(f *testing.F) {
	for _, text := range []string{"", "EOF", `malformed HTTP response "x"`, "bad Content-Length: \x00", "debug=\"", "transfer encoding[malformed "} {
		f.Add(text)
	}
	for _, text := range slices.Concat(invalidTexts[:], bodyTexts[:], socksTexts[:], handshakeTexts[:], closedTexts[:], shownTexts[:]) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "\u2042quoted\u2042"
		for _, text := range []string{text + secret, secret + "\n" + text} {
			for place, err := range errorsWith(text) {
				for _, err := range []error{err, fmt.Errorf("%s: %w", text, err)} {
					got := SafeText(err)
					require.LessOrEqual(t, len(got), maxText+len("…"), place)
					require.NotContains(t, got, "quoted", place)
					require.NotContains(t, got, "\u2042", place)
					for _, r := range got {
						require.False(t, unicode.IsControl(r) && r < 0x80, "%s: %q", place, got)
					}
					_, _, _ = Malformed(err), NotSent(err), Permanent(err)
				}
			}
		}
		require.False(t, Malformed(errors.New("x"+text)), "only the beginning of a text counts")
	})
}
