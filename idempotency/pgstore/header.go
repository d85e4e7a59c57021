package pgstore

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// encodeHeader writes a header as a JSON object, so that it can be read in the
// database. The bytes of a value need not be UTF-8: each becomes the code point of
// its number. nil stays nil.
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

func decodeHeader(text *string) (http.Header, error) {
	if text == nil {
		return nil, nil
	}
	var h http.Header
	if err := json.Unmarshal([]byte(*text), &h); err != nil {
		return nil, fmt.Errorf("pgstore: a stored header: %w", err)
	}
	return mapHeader(h, narrow), nil
}

// mapHeader applies f to all names and values. A header of ASCII, as nearly all
// are, is returned as it is.
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
	for name, values := range h {
		if !ascii(name) {
			return false
		}
		for _, v := range values {
			if !ascii(v) {
				return false
			}
		}
	}
	return true
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
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
