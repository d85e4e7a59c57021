package chaos

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// Plan has the faults of a run, and their numbers.
type Plan struct {
	Database string

	// Kills is the number of times that a service gets SIGKILL. Stops is the number of times
	// that one is suspended for longer than its lease. Crashes is the number of times that the
	// whole PostgreSQL server is killed. Strikes is the number of times for each of Faults.
	Kills, Stops, Crashes, Strikes int
	Faults                         []Fault

	// Seed determines the times and kinds of faults.
	Seed uint64
}

// Flags defines the flags of a plan. The values of p are the defaults.
func (p *Plan) Flags(flags *flag.FlagSet) {
	flags.IntVar(&p.Kills, "kills", p.Kills, "number of times that a process of the service is killed")
	flags.IntVar(&p.Stops, "stops", p.Stops, "number of times that one is suspended for longer than its lease")
	flags.IntVar(&p.Crashes, "crashes", p.Crashes, "number of times that PostgreSQL is killed and restarted")
	flags.IntVar(&p.Strikes, "strikes", p.Strikes, "number of times of each of the faults")
	flags.Func("faults", "further faults: "+faultNames(), func(list string) (err error) {
		p.Faults, err = faultsNamed(Words(list))
		return err
	})
	flags.Uint64Var(&p.Seed, "seed", 1, "seed of the faults; the order of requests is random")
}

// Words splits a list at commas and spaces.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Validate returns an error if the plan is invalid.
func (p *Plan) Validate() error {
	switch {
	case min(p.Kills, p.Stops, p.Crashes, p.Strikes) < 0:
		return errors.New("numbers of faults must not be negative")
	case p.Database != SQLite && p.Database != Postgres:
		return fmt.Errorf("unknown database %q", p.Database)
	}
	return nil
}

// AffectedDatabases returns the databases for which at least one of the faults exists, or SQLite if
// there are no faults.
func (p *Plan) AffectedDatabases() string {
	var databases []string
	for _, database := range []string{SQLite, Postgres} {
		is := func(f Fault) bool { return slices.Contains(f.Databases(), database) }
		if slices.ContainsFunc(p.Faults, is) || len(p.Faults) == 0 && database == SQLite {
			databases = append(databases, database)
		}
	}
	return strings.Join(databases, ",")
}

// List returns the faults of the plan, each as often as it strikes.
func (p *Plan) List() []Fault {
	var list []Fault
	add := func(f Fault, n int) {
		if slices.Contains(f.Databases(), p.Database) {
			list = append(list, slices.Repeat([]Fault{f}, n)...)
		}
	}
	add(kill{}, p.Kills)
	add(stop{}, p.Stops)
	add(crash{}, p.Crashes)
	for _, f := range p.Faults {
		add(f, p.Strikes)
	}
	return list
}

// has reports whether a fault is in the plan.
func (p *Plan) has(f Fault) bool {
	return slices.Contains(p.Faults, f) && slices.Contains(f.Databases(), p.Database)
}
