package idempotencykey

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Derived is a key that is made of texts, and of what else tells it from others: 40
// characters, which all that take keys accept (Square takes no more than 45). It tells
// ("ab", "c") from ("a", "bc"), and nobody reads a text from it. What it makes of the same
// never changes, for it is with the other side.
func Derived(tail []byte, texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	h.Write(tail)
	return hex.EncodeToString(h.Sum(nil)[:20])
}
