// Package hostmatch tells which hosts a rule is for.
package hostmatch

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Match reports whether one of the patterns is for the host of u. A pattern is a host,
// in lower case, with a port or for all ports; "*.example.com" is all hosts below
// example.com, and not that itself.
func Match(patterns []string, u *url.URL) bool {
	host, name := strings.ToLower(u.Host), strings.ToLower(u.Hostname())
	for _, pattern := range patterns {
		if below, ok := strings.CutPrefix(pattern, "*."); ok {
			if under(host, below) || under(name, below) {
				return true
			}
		} else if pattern == host || pattern == name {
			return true
		}
	}
	return false
}

// under reports whether host is below domain.
func under(host, domain string) bool {
	label, ok := strings.CutSuffix(host, "."+domain)
	return ok && label != ""
}

// Check is what is wrong with a pattern, or nil: words that follow the name of the field.
func Check(pattern string) error {
	host := strings.TrimPrefix(pattern, "*.")
	switch {
	case host == "":
		return errors.New("has an empty host")
	case host != strings.ToLower(host):
		return fmt.Errorf("has %q, which is not in lower case", pattern)
	case strings.ContainsAny(host, "/*@?# \t"):
		return fmt.Errorf("has %q, which is no host: write example.com, example.com:8443 or *.example.com", pattern)
	}
	return nil
}
