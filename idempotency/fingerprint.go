package idempotency

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// version is that of the rules below. A record with another one is of another request.
const version = "v1:"

// NewFingerprint returns the fingerprint of a message from its parts, such as a type, a
// tenant and a payload. ("ab", "c") and ("a", "bc") are different.
func NewFingerprint(parts ...[]byte) Fingerprint { return sumOf(appendText(nil, "parts"), parts...) }

// RequestFingerprint returns the fingerprint of a request and its body, which has been
// read. It covers method, path, query, Content-Type, Content-Encoding and body, but
// neither the host nor other header fields. The order of query names does not matter, and
// that of the values of one name does.
//
// Bodies are compared byte by byte, and multipart without its boundary. For clients that
// write the same JSON in another way, a [Handler.Fingerprint] passes a body in one form.
func RequestFingerprint(r *http.Request, body []byte) Fingerprint {
	m, codings := mediaOf(r.Header["Content-Type"]), r.Header["Content-Encoding"]
	head := appendText(make([]byte, 0, 256), "request")
	head = appendText(head, cmp.Or(r.Method, http.MethodGet))
	head = appendText(head, cmp.Or(r.URL.EscapedPath(), r.URL.Opaque))
	head = appendQuery(head, r.URL.RawQuery)
	head = appendTexts(head, codings)
	head = appendTexts(head, m.text)
	if len(codings) > 0 || m.boundary == "" {
		return sumOf(head, body)
	}
	return sumOfSplit(appendText(head, "parts"), body, []byte("--"+m.boundary))
}

// sumOf hashes head, which encodes its own end, and parts with their lengths.
func sumOf(head []byte, parts ...[]byte) Fingerprint {
	h := sha256.New()
	h.Write(head)
	for _, part := range parts {
		h.Write(binary.AppendUvarint(head[:0], uint64(len(part))))
		h.Write(part)
	}
	return Fingerprint(version + hex.EncodeToString(h.Sum(head[:0])))
}

// sumOfSplit is sumOf with the parts of a body between separators. It makes no list of them, because a hostile body has a
// third as many parts as bytes.
func sumOfSplit(head, body, separator []byte) Fingerprint {
	h := sha256.New()
	h.Write(head)
	for part := range bytes.SplitSeq(body, separator) {
		h.Write(binary.AppendUvarint(head[:0], uint64(len(part))))
		h.Write(part)
	}
	return Fingerprint(version + hex.EncodeToString(h.Sum(head[:0])))
}

// appendQuery appends the names of a query, sorted, with their values.
func appendQuery(b []byte, raw string) []byte {
	if raw == "" {
		return appendText(b, "")
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return appendText(appendText(b, "query"), raw)
	}
	b = binary.AppendUvarint(appendText(b, "pairs"), uint64(len(values)))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b = appendTexts(appendText(b, name), values[name])
	}
	return b
}

// appendText appends a string with its length.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTexts appends a list with its length.
func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}
