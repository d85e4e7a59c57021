package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// scenario is how much is charged, how, and what happens meanwhile.
type scenario struct {
	charges, workers int
	database, mode   string

	// kills, stops and strikes are how often each happens, strikes for each fault.
	kills, stops, strikes int
	faults                []fault
	processes             int
	seed                  uint64
	page                  string    // the address of the state page; "": there is none
	log                   io.Writer // of the processes; nil: nobody reads it
}

// The databases.
const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// The modes.
const (
	joined   = "joined"
	detached = "detached"
)

func (s *scenario) validate() error {
	switch {
	case s.charges < 1 || s.workers < 1 || s.processes < 1:
		return errors.New("there must be charges, workers and processes")
	case s.kills < 0 || s.stops < 0 || s.strikes < 0:
		return errors.New("nothing can happen less than never")
	case s.database != sqlite && s.database != postgres:
		return fmt.Errorf("there is no database %q", s.database)
	case s.mode != joined && s.mode != detached:
		return fmt.Errorf("there is no mode %q", s.mode)
	}
	return nil
}

// plan is what happens, one after the other.
func (s *scenario) plan() []fault {
	plan := slices.Repeat([]fault{kill{}}, s.kills)
	plan = append(plan, slices.Repeat([]fault{stop{}}, s.stops)...)
	for _, f := range s.faults {
		if slices.Contains(f.befalls(), s.database) {
			plan = append(plan, slices.Repeat([]fault{f}, s.strikes)...)
		}
	}
	return plan
}

// has reports whether a fault is part of it.
func (s *scenario) has(f fault) bool {
	return slices.Contains(s.faults, f) && slices.Contains(f.befalls(), s.database)
}

// order is the i-th.
func (s *scenario) order(i int) order {
	return order{Reference: fmt.Sprintf("comp1:invoice:%06d", i), Amount: int64(100 + i)}
}
