// Package usualbase has the choice of a Transport without a Base.
package usualbase

import "net/http"

// Replaced returns http.DefaultTransport if the program has replaced it by another type, or else
// nil. A Transport that is http.DefaultTransport cannot be its own Base.
func Replaced(self http.RoundTripper) http.RoundTripper {
	if _, ok := http.DefaultTransport.(*http.Transport); ok || http.DefaultTransport == self {
		return nil
	}
	return http.DefaultTransport
}
