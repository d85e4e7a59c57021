package sqlitestore

import (
	"database/sql/driver"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// movedClock is how far the clock of all stores of this process is ahead. Only tests that do not run in parallel move it.
var movedClock atomic.Int64

// registerClock makes the clock of all stores movable: they read SQLite's by unixepoch('subsec') alone, and a function of the
// program's takes the place of SQLite's own of the same name.
func registerClock() {
	sqlite.MustRegisterScalarFunction("unixepoch", 1, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return float64(time.Now().Add(time.Duration(movedClock.Load())).UnixMilli()) / 1000, nil
	})
}
