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
	// that one is suspended for longer than its lease. Strikes is the number of times for each
	// of Faults.
	Kills, Stops, Strikes int
	Faults                []string

	// Seed determines the times and kinds of faults.
	Seed uint64
}

// Flags defines the flags of a plan.
func (p *Plan) Flags(flags *flag.FlagSet) {
	flags.IntVar(&p.Kills, "kills", 50, "number of times that a process of the service is killed")
	flags.IntVar(&p.Stops, "stops", 5, "number of times that one is suspended for longer than its lease")
	flags.IntVar(&p.Strikes, "strikes", 5, "number of times of each of the faults")
	p.Faults = []string{"postmaster"}
	flags.Func("faults", "further faults: "+strings.Join(furtherFaults(), ", ")+" (default postmaster)", func(list string) (err error) {
		p.Faults, err = parseFaults(list)
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
	case min(p.Kills, p.Stops, p.Strikes) < 0:
		return errors.New("numbers of faults must not be negative")
	case p.Database != SQLite && p.Database != Postgres:
		return fmt.Errorf("unknown database %q", p.Database)
	}
	return nil
}

// strikes returns the number of strikes of a fault.
func (p *Plan) strikes(f fault) int {
	switch {
	case f.name == "kill":
		return p.Kills
	case f.name == "stop":
		return p.Stops
	case slices.Contains(p.Faults, f.name) && (f.only == "" || f.only == p.Database):
		return p.Strikes
	default:
		return 0
	}
}

// Counts returns the number of strikes of each fault that strikes.
func (p *Plan) Counts() map[string]int {
	counts := make(map[string]int)
	for _, f := range p.list() {
		counts[f.name]++
	}
	return counts
}

// list returns the faults of the plan, each as often as it strikes.
func (p *Plan) list() (list []fault) {
	for _, f := range faults {
		list = append(list, slices.Repeat([]fault{f}, p.strikes(f))...)
	}
	return list
}
