package idempotency

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
)

// The versions of fingerprints. NewFingerprint makes version 1, and RequestFingerprint makes version 3. Records of
// requests may have versions 1 and 2, which compared JSON and multipart by structure. Version 1 ignored the order of
// the values of a query name.
const (
	version  = "v1:"
	version3 = "v3:"
)

// NewFingerprint returns the fingerprint of a message from its parts, such as a type, a
// tenant and a payload. ("ab", "c") and ("a", "bc") are different.
func NewFingerprint(parts ...[]byte) Fingerprint {
	h := sha256.New()
	h.Write(appendText(nil, "parts"))
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	return Fingerprint(version + hex.EncodeToString(h.Sum(nil)))
}

// RequestFingerprint returns the fingerprint of a request and its body, which has been
// read. It covers method, path, query, Content-Type, Content-Encoding and body, but
// neither the host nor other header fields. The order of query names does not matter, and
// that of the values of one name does.
//
// Bodies are compared byte by byte, and multipart without its boundary. For clients that
// write the same JSON in another way, a [Handler.Fingerprint] passes a body in one form.
//
// A record of an earlier version is compared as before, except one of JSON or multipart: there
// the key alone decides until it expires.
func RequestFingerprint(r *http.Request, body []byte) Fingerprint {
	m := mediaOf(r.Header["Content-Type"])
	sum := requestSum(r, &m, body, true)
	if m.structured && len(r.Header["Content-Encoding"]) == 0 {
		return Fingerprint(version3 + sum)
	}
	before := sum
	values, _ := url.ParseQuery(r.URL.RawQuery)
	for _, list := range values {
		if len(list) > 1 {
			before = requestSum(r, &m, body, false)
			break
		}
	}
	return Fingerprint(version3 + sum + ":" + before)
}

// requestSum returns the sum of version 3. Without the order of the values of each query name, it is that of version 1,
// except for JSON and multipart.
func requestSum(r *http.Request, m *media, body []byte, ordered bool) string {
	head := appendText(make([]byte, 0, 256), "request")
	head = appendText(head, cmp.Or(r.Method, http.MethodGet))
	head = appendText(head, cmp.Or(r.URL.EscapedPath(), r.URL.Opaque))
	head = appendQuery(head, r.URL.RawQuery, ordered)
	codings := r.Header["Content-Encoding"]
	head = appendTexts(head, codings)
	head = appendTexts(head, m.text)
	if len(codings) > 0 || m.boundary == "" {
		return sumOf(appendText(head, "bytes"), body)
	}
	h := sha256.New()
	h.Write(appendText(head, "multipart"))
	for part := range bytes.SplitSeq(body, []byte("--"+m.boundary)) {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sumOf hashes head, which encodes its own end, and body.
func sumOf(head, body []byte) string {
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return hex.EncodeToString(h.Sum(head[:0]))
}

// appendQuery appends the pairs of a query, sorted. ordered keeps the order of the values of a name.
func appendQuery(b []byte, raw string, ordered bool) []byte {
	if raw == "" {
		return appendTexts(appendText(b, "pairs"), nil)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return appendText(appendText(b, "query"), raw)
	}
	type pair struct{ name, value string }
	var pairs []pair
	for name, list := range values {
		for _, value := range list {
			pairs = append(pairs, pair{name, value})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if byName := cmp.Compare(a.name, b.name); byName != 0 || ordered {
			return byName
		}
		return cmp.Compare(a.value, b.value)
	})
	b = appendText(b, "pairs")
	b = binary.AppendUvarint(b, uint64(2*len(pairs)))
	for _, p := range pairs {
		b = appendText(appendText(b, p.name), p.value)
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
