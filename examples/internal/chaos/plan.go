package chaos

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// Plan is what goes wrong with a database, and how often.
type Plan struct {
	Database string

	// Kills is how often a service gets SIGKILL, Stops how often one is stopped for longer
	// than its lease, Crashes how often PostgreSQL's whole server is stopped at once, and
	// Strikes how often each of Faults strikes.
	Kills, Stops, Crashes, Strikes int
	Faults                         []Fault

	// Seed is of the moments and kinds.
	Seed uint64
}

// Flags are those of a plan, whose values are the defaults.
func (p *Plan) Flags(flags *flag.FlagSet) {
	flags.IntVar(&p.Kills, "kills", p.Kills, "how often a process of the service is killed")
	flags.IntVar(&p.Stops, "stops", p.Stops, "how often one is stopped for longer than its lease")
	flags.IntVar(&p.Crashes, "crashes", p.Crashes, "how often PostgreSQL is stopped at once, and started again")
	flags.IntVar(&p.Strikes, "strikes", p.Strikes, "how often each of the faults strikes")
	flags.Func("faults", "what else goes wrong: "+faultNames(), func(list string) (err error) {
		p.Faults, err = faultsNamed(Words(list))
		return err
	})
	flags.Uint64Var(&p.Seed, "seed", 1, "of the moments and kinds of faults; the order of requests stays random")
}

// Words are those of a list.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Validate says what is wrong with it.
func (p *Plan) Validate() error {
	switch {
	case min(p.Kills, p.Stops, p.Crashes, p.Strikes) < 0:
		return errors.New("nothing can happen less than never")
	case p.Database != SQLite && p.Database != Postgres:
		return fmt.Errorf("there is no database %q", p.Database)
	}
	return nil
}

// Befallen are the databases that at least one of the faults is for, and SQLite's if
// there are none.
func (p *Plan) Befallen() string {
	var databases []string
	for _, database := range []string{SQLite, Postgres} {
		is := func(f Fault) bool { return slices.Contains(f.Befalls(), database) }
		if slices.ContainsFunc(p.Faults, is) || len(p.Faults) == 0 && database == SQLite {
			databases = append(databases, database)
		}
	}
	return strings.Join(databases, ",")
}

// List is what happens, one after the other.
func (p *Plan) List() []Fault {
	var list []Fault
	add := func(f Fault, n int) {
		if slices.Contains(f.Befalls(), p.Database) {
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

// has reports whether a fault is part of it.
func (p *Plan) has(f Fault) bool {
	return slices.Contains(p.Faults, f) && slices.Contains(f.Befalls(), p.Database)
}
