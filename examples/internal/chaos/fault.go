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

// Fault is something that goes wrong.
type Fault interface {
	// Name is the word for it, as in -faults.
	Name() string

	// Befalls are the databases that it can befall.
	Befalls() []string

	// Strike lets it happen, and returns when it is over. Several may be at it at
	// once.
	Strike(ctx context.Context, at *Site, random *rand.Rand) error
}

// faults are those of -faults. Besides there are always kill and stop.
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
			return nil, fmt.Errorf("there is no fault %q: those are %s", name, faultNames())
		}
		named = append(named, faults[i])
	}
	return named, nil
}
