package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// fault is something that goes wrong.
type fault interface {
	// name is the word for it, as in -faults.
	name() string

	// befalls are the databases that it can befall.
	befalls() []string

	// strike lets it happen, and returns when it is over. Several may be at it at
	// once.
	strike(ctx context.Context, at *site, random *rand.Rand) error
}

// faults are those of -faults. Besides there are always kill and stop.
var faults = []fault{wireFault{}, backendsFault{}, postmasterFault{}, diskFault{}, bouncerFault{}}

func faultNames() []string {
	var names []string
	for _, f := range faults {
		names = append(names, f.name())
	}
	return names
}

func faultsNamed(names []string) ([]fault, error) {
	var named []fault
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no fault %q: those are %s", name, strings.Join(faultNames(), ", "))
		}
		named = append(named, faults[i])
	}
	return named, nil
}

// befallen are the databases that at least one of the faults is for, and SQLite's if
// there are none.
func befallen(faults []fault) []string {
	var databases []string
	for _, database := range []string{sqlite, postgres} {
		is := func(f fault) bool { return slices.Contains(f.befalls(), database) }
		if slices.ContainsFunc(faults, is) || len(faults) == 0 && database == sqlite {
			databases = append(databases, database)
		}
	}
	return databases
}
