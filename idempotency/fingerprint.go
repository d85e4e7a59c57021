package idempotency

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
)

// version is that of the rule below.
const version = "v1:"

// NewFingerprint makes the fingerprint of a consumer's message from its parts: a
// type, a tenant, a payload. It tells ("ab", "c") from ("a", "bc").
func NewFingerprint(parts ...[]byte) Fingerprint {
	h := sha256.New()
	h.Write(appendText(nil, "parts"))
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	return fingerprint(h.Sum(nil))
}

// RequestFingerprint makes the fingerprint of a request and its body, which has
// been read. It covers the method, the path as it was sent, the query, and the
// body with what says how to read it; not the host, nor the other header fields:
// what they say of who asks belongs into the ID's scope.
//
// The query is a set of pairs: neither the order of names nor that of the values
// under one name matters, but how often each pair is there does. A query that
// url.ParseQuery does not accept is compared as it is.
//
// The body is compared by bytes, save for two media types. JSON (application/json
// and +json) is compared by structure: the order of members, blanks and how
// strings are escaped do not matter, the order of elements does, and numbers are
// equal when their text is (1.0 is not 1). Multipart is compared part by part: the
// boundary, which clients make anew for each attempt, does not matter. A body of
// these types that is malformed, or that readers could take in different ways
// (members of the same name, a lone surrogate, bytes that are not UTF-8), is
// compared by bytes, and so is one with a Content-Encoding.
//
// The media type counts with its parameters, so the same text sent as text/plain
// is another request; a multipart's boundary does not, nor JSON's charset=utf-8,
// which says nothing.
func RequestFingerprint(r *http.Request, body []byte) Fingerprint {
	head := appendText(make([]byte, 0, 256), "request")
	head = appendText(head, cmp.Or(r.Method, http.MethodGet))
	head = appendText(head, cmp.Or(r.URL.EscapedPath(), r.URL.Opaque))
	head = appendQuery(head, r.URL.RawQuery)
	codings := r.Header["Content-Encoding"]
	head = appendTexts(head, codings)
	m := mediaOf(r.Header["Content-Type"])
	head = appendTexts(head, m.text)

	if len(codings) == 0 {
		switch m.form {
		case formJSON:
			if text, ok := canonicalJSON(body); ok {
				return sumOf(appendText(head, "json"), text)
			}
		case formMultipart:
			if sum, ok := sumOfParts(body, m.boundary); ok {
				return sumOf(appendText(head, "multipart"), sum)
			}
		case formBytes:
		}
	}
	return sumOf(appendText(head, "bytes"), body)
}

// sumOf hashes the two, of which the first tells where it ends.
func sumOf(head, body []byte) Fingerprint {
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return fingerprint(h.Sum(head[:0]))
}

func fingerprint(sum []byte) Fingerprint {
	var text [len(version) + 2*sha256.Size]byte
	return Fingerprint(hex.AppendEncode(append(text[:0], version...), sum))
}

// appendQuery appends the pairs of a query in an order of their own.
func appendQuery(b []byte, raw string) []byte {
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
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	b = appendText(b, "pairs")
	b = binary.AppendUvarint(b, uint64(2*len(pairs)))
	for _, p := range pairs {
		b = appendText(appendText(b, p.name), p.value)
	}
	return b
}

// appendText appends a string and how long it is, so that nothing that follows
// can be taken for a part of it.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTexts appends a list and how long it is.
func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}
