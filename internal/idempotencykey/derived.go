package idempotencykey

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Derived returns a key of 40 characters that is a hash of the texts and the tail. All
// providers accept that length (Square's limit is 45). ("ab", "c") and ("a", "bc") have
// different keys. The result for the same input must never change, because providers store
// it.
func Derived(tail []byte, texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	h.Write(tail)
	return hex.EncodeToString(h.Sum(nil)[:20])
}
