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

// Fault is a kind of fault.
type Fault interface {
	// Name is its name for -faults.
	Name() string

	// Databases returns the databases for which the fault exists.
	Databases() []string

	// Strike injects the fault and returns after its end. Several calls may run
	// concurrently.
	Strike(ctx context.Context, at *Stack, random *rand.Rand) error
}

// faults are the values of -faults. kill and stop have flags of their own.
var faults = []Fault{wireFault{}, backendsFault{}, postmasterFault{}, diskFault{}, bouncerFault{}, readOnlyFault{}}

func faultNames() string {
	var names []string
	for _, f := range faults {
		names = append(names, f.Name())
	}
	return strings.Join(names, ", ")
}

func faultsNamed(names []string) ([]Fault, error) {
	var named []Fault
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown fault %q (want %s)", name, faultNames())
		}
		named = append(named, faults[i])
	}
	return named, nil
}
