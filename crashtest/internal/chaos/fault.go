package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The databases.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// fault is a kind of fault.
type fault struct {
	name string
	only string // the database for which it exists; "": both

	// strike injects the fault and returns after its end. Several calls may run concurrently.
	strike func(ctx context.Context, at *Stack, random *rand.Rand) error
}

// faults are all kinds. kill and stop have flags of their own, the others are the values of -faults.
var faults = []fault{
	{"kill", "", kill},
	{"stop", "", stop},
	{"wire", "", breakWires},
	{"backends", Postgres, endBackends},
	{"postmaster", Postgres, restartPostmaster},
	{"pgbouncer", Postgres, restartBouncer},
}

// furtherFaults returns the names for -faults.
func furtherFaults() (names []string) {
	for _, f := range faults[2:] {
		names = append(names, f.name)
	}
	return names
}

func parseFaults(list string) ([]string, error) {
	names := Words(list)
	for _, name := range names {
		if !slices.Contains(furtherFaults(), name) {
			return nil, fmt.Errorf("unknown fault %q (want %s)", name, strings.Join(furtherFaults(), ", "))
		}
	}
	return names, nil
}
