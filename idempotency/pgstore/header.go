package pgstore

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// encodeHeader encodes a header as a JSON object, which is readable in SQL. A value need
// not be UTF-8: each byte becomes the code point of its number. nil stays nil.
func encodeHeader(h http.Header) (*string, error) {
	if h == nil {
		return nil, nil
	}
	text, err := json.Marshal(mapHeader(h, widen))
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}

func decodeHeader(text string) (http.Header, error) {
	var h http.Header
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("pgstore: decode header: %w", err)
	}
	return mapHeader(h, narrow), nil
}

// mapHeader applies f to all names and values. It returns an ASCII header unchanged.
func mapHeader(h http.Header, f func(string) string) http.Header {
	if plain(h) {
		return h
	}
	mapped := make(http.Header, len(h))
	for name, values := range h {
		if values == nil {
			mapped[f(name)] = nil
			continue
		}
		vs := make([]string, len(values))
		for i, v := range values {
			vs[i] = f(v)
		}
		mapped[f(name)] = vs
	}
	return mapped
}

func plain(h http.Header) bool {
	ascii := func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 }
	for name, values := range h {
		if !ascii(name) || slices.ContainsFunc(values, func(v string) bool { return !ascii(v) }) {
			return false
		}
	}
	return true
}

func widen(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func narrow(s string) string {
	bytes := make([]byte, 0, len(s))
	for _, r := range s {
		bytes = append(bytes, byte(r))
	}
	return string(bytes)
}
