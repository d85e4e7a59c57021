package sqlitestore

import (
	"embed"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// migrations are applied in the order of their names, each once: see sqlitekit.Schema.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Schema is the SQL that Open and New execute where the tables have version from,
// and 0 where there are none, for those whose schema is in the hands of another
// tool, such as goose or atlas. Where it has been applied there is nothing left for
// Open to make. It is empty where there is nothing to do; where from is no version,
// the error is an ErrSchema.
//
// What a newer version of this package adds can be lived with by older ones, so
// that both may run at the same time, and the older may come back; ErrSchema is
// what they say where that is not so.
func Schema(from int) (string, error) { return schema().From(from) }

func schema() sqlitekit.Schema {
	return sqlitekit.ReadSchema("idempotency_schema", migrations, "migrations/*.sql")
}
