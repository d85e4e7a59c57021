// Package hostmatch matches hosts against patterns, and compares origins. Its functions are pure and
// safe for concurrent use.
package hostmatch

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Match reports whether one of the patterns matches the host of u. A pattern is a host in
// lower case, with a port or for all ports. "*.example.com" matches all subdomains of
// example.com, but not example.com.
func Match(patterns []string, u *url.URL) bool {
	host, name := strings.ToLower(u.Host), strings.ToLower(u.Hostname())
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, host) || matches(pattern, name) })
}

func matches(pattern, host string) bool {
	domain, all := strings.CutPrefix(pattern, "*.")
	label, below := strings.CutSuffix(host, "."+domain)
	return pattern == host || all && below && label != ""
}

// Check returns an error if the pattern is invalid. Its text continues after the name of a
// field.
func Check(pattern string) error {
	host := strings.TrimPrefix(pattern, "*.")
	switch {
	case host == "":
		return errors.New("has an empty host")
	case host != strings.ToLower(host):
		return fmt.Errorf("has %q, must be in lower case", pattern)
	case strings.ContainsAny(host, "/*@?# \t"):
		return fmt.Errorf("has %q, must be a host such as example.com, example.com:8443 or *.example.com", pattern)
	}
	return nil
}

// SameOrigin compares scheme, host and port (RFC 6454 section 5). http has port 80, and https 443.
func SameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// Origin returns the origin of a URL as a text, which is the same for the same origin.
func Origin(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Hostname()) + ":" + port(u)
}

func port(u *url.URL) string {
	switch explicit := u.Port(); {
	case explicit != "":
		return explicit
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	case strings.EqualFold(u.Scheme, "http"):
		return "80"
	}
	return ""
}
