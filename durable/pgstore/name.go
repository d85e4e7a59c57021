package pgstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// name identifies an intent in the tables: half of a SHA-256, which is shorter than most IDs. A
// collision cannot be found.
type name = pgtype.UUID

// nameOf is, in SQL,
//
//	encode(substr(sha256(int4send(octet_length(scope)) || convert_to(scope, 'UTF8') ||
//		int4send(octet_length(operation)) || convert_to(operation, 'UTF8') || convert_to(key, 'UTF8')), 1, 16), 'hex')::uuid
//
// It is stored, and never changes.
func nameOf(id *idempotency.ID) name {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{id.Scope, id.Operation} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(append(text, id.Key...))
	return name{Bytes: [16]byte(sum[:16]), Valid: true}
}

func compareNames(a, b name) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) }
