package neterr

import (
	"cmp"
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	maxOwnText = 512 // bytes of a Text
	cut        = "…" // stands for what is left out

	// minPart is the length of the shortest part of a request that is searched for. A shorter one may be a part of a word.
	minPart = 6
)

// Text returns the text of err, as a bare client shows it, without what quotes the request or a response: URLs keep their
// host, quotation marks have nothing between them, and each of parts is cut. The text may still quote what is not among the
// parts. So it is for the caller, and [SafeText] is for logs and spans. The text is one line.
func Text(err error, parts []string) string {
	if replaced, ok := err.(*ReasonedError); ok && replaced.Reason == http.ErrSchemeMismatch { //nolint:errorlint // the very error
		err = http.ErrSchemeMismatch // net/http shows this one alone
	}
	var text string
	switch {
	case err == nil:
		return ""
	case findTokenError(err) != nil:
		return SafeText(err) // its text is the whole response of the token endpoint
	default:
		text = err.Error()
	}
	text = urls.ReplaceAllStringFunc(strings.ToValidUTF8(text, ""), hostOnly)
	text = quotes.ReplaceAllStringFunc(text, unquoted)
	for _, part := range parts {
		text = strings.ReplaceAll(text, part, cut)
	}
	return line(text, maxOwnText)
}

var (
	urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*`)

	// quotes matches what is between quotation marks, as %q writes it. net/http quotes requests and responses so.
	quotes = regexp.MustCompile(`(?:` + schemeText + `)?"(?:[^"\\]|\\.)*"?`)

	scheme = regexp.MustCompile(`^"[A-Za-z][A-Za-z0-9+.-]{0,15}"$`)                     // a quoted scheme
	origin = regexp.MustCompile(`^"[A-Za-z][A-Za-z0-9+.-]*://[0-9A-Za-z.:_\[\]-]+…?"$`) // a quoted result of hostOnly
)

// schemeText is the beginning of net/http's error for a URL with another scheme. The scheme tells what is wrong, for
// example that the URL is "localhost:8080".
const schemeText = "unsupported protocol scheme "

func unquoted(text string) string {
	before, _, _ := strings.Cut(text, `"`)
	quoted := text[len(before):]
	if before != "" && scheme.MatchString(quoted) || origin.MatchString(quoted) {
		return text
	}
	return before + `"` + cut + `"`
}

func hostOnly(text string) string {
	address := strings.TrimRight(text, ".,:;)") // the text goes on
	scheme, _, _ := strings.Cut(address, "://")
	host := cut
	if u, err := url.Parse(address); err == nil && hostname.MatchString(u.Host) {
		host = u.Host
	}
	short := scheme + "://" + host
	if len(short) < len(address) && host != cut {
		short += cut
	}
	return short + text[len(address):]
}

// Parts returns the parts of a request that no text may show, for [LongestFirst]: path and query, user and password, and the
// values of the header.
func Parts(u *url.URL, header http.Header) []string {
	parts := make([]string, 0, 16+2*len(header))
	if u != nil {
		escaped := u.EscapedPath()
		password, _ := u.User.Password()
		parts = append(parts, u.Path, escaped, u.RawQuery, u.Fragment, u.EscapedFragment(), u.Opaque, u.User.String(), u.User.Username(), password)
		parts = append(parts, segments(escaped)...)
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			_, value, _ := strings.Cut(pair, "=")
			parts = append(parts, pair, value)
		}
	}
	for _, values := range header {
		for _, value := range values {
			_, credentials, _ := strings.Cut(value, " ") // after "Bearer"
			parts = append(parts, value, credentials)
		}
	}
	asked := http.Request{Header: header}
	for _, cookie := range asked.Cookies() {
		parts = append(parts, cookie.Value)
	}
	user, password, _ := asked.BasicAuth()
	parts = append(parts, user, password)
	for _, part := range parts {
		plain, _ := url.QueryUnescape(part) // what the program has written
		parts = append(parts, plain)
	}
	return parts
}

// segments returns the segments of a path that are an ID or a token. One without a digit may be a word of any text: "timeout".
func segments(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(segment string) bool { return !strings.ContainsAny(segment, "0123456789") })
}

// LongestFirst removes short and equal parts. The others are in the order in which they must be cut: a part may contain another.
func LongestFirst(parts []string) []string {
	for i, part := range parts {
		parts[i] = strings.ToValidUTF8(part, "") // as in a Text
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return len(part) < minPart })
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return slices.Compact(parts)
}

// Bare returns the error that a bare client has in place of err, which may have a reason of this module before it.
func Bare(err error) error {
	for {
		reasoned, ok := err.(*ReasonedError) //nolint:errorlint // the very error
		if !ok {
			return err
		}
		err = reasoned.Cause
	}
}

// Clue returns a text that clients search for, which compare the type or the value of a bare client's error too. They get
// an *Error instead, so only the text can tell them. Kubernetes ends a watch after an EOF (IsProbableEOF), and
// go-retryablehttp does not repeat a request to a server with an untrusted certificate.
func Clue(err error) string {
	switch bare := Bare(err); {
	case bare == io.EOF, bare == io.ErrUnexpectedEOF, bare != nil && bare.Error() == brokenText: //nolint:errorlint // as IsProbableEOF
		return "use of closed network connection"
	case has[*tls.CertificateVerificationError](bare):
		return "certificate is not trusted"
	}
	return ""
}

// Temporary reports what url.Error.Temporary reports with a bare client.
func Temporary(err error) bool {
	temporary, ok := Bare(err).(interface{ Temporary() bool })
	return ok && temporary.Temporary()
}
