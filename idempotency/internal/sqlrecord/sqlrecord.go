// Package sqlrecord has what the SQL stores of package idempotency share: how they write a header into a column, and how they read a
// list of records in pages.
package sqlrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Pages returns the records of a scope, or of all scopes if scope is empty. read
// returns up to limit records that follow after in the order of scope, operation
// and key. It may return records of later scopes, which Pages skips.
func Pages(scope string, limit int, read func(after idempotency.ID, limit int) ([]idempotency.Record, error)) iter.Seq2[idempotency.Record, error] {
	return func(yield func(idempotency.Record, error) bool) {
		after := idempotency.ID{Scope: scope} // no key is empty
		for {
			page, err := read(after, limit)
			if err != nil {
				yield(idempotency.Record{}, err)
				return
			}
			for i := range page {
				if scope != "" && page[i].Scope != scope || !yield(page[i], nil) {
					return
				}
			}
			if len(page) < limit {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

// EncodeHeader encodes a header as a JSON object. The bytes of a value need not be
// UTF-8: each byte becomes the code point of the same number. A nil header is nil.
func EncodeHeader(h http.Header) ([]byte, error) {
	if h == nil {
		return nil, nil
	}
	return json.Marshal(mapHeader(h, bytesToRunes))
}

// DecodeHeader decodes the result of EncodeHeader.
func DecodeHeader(text []byte) (h http.Header, err error) {
	if text == nil {
		return nil, nil
	}
	if err = json.Unmarshal(text, &h); err == nil && h == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: decode a stored header: %w", err)
	}
	return mapHeader(h, runesToBytes), nil
}

// mapHeader applies f to all names and values.
func mapHeader(h http.Header, f func(string) string) http.Header {
	mapped := make(http.Header, len(h))
	for name, values := range h {
		name = f(name)
		mapped[name] = nil
		if values != nil {
			mapped[name] = make([]string, len(values))
		}
		for i, v := range values {
			mapped[name][i] = f(v)
		}
	}
	return mapped
}

func bytesToRunes(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func runesToBytes(s string) string {
	bytes := make([]byte, 0, len(s))
	for _, r := range s {
		bytes = append(bytes, byte(r))
	}
	return string(bytes)
}
