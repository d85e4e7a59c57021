package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// scenario is how much is charged, how, and what happens meanwhile.
type scenario struct {
	chaos.Plan

	charges, workers int
	mode             string
	processes        int
	page             string    // the address of the state page; "": there is none
	log              io.Writer // of the processes; nil: nobody reads it
}

// The modes.
const (
	joined   = "joined"
	detached = "detached"
)

func (s *scenario) validate() error {
	switch {
	case s.charges < 1 || s.workers < 1 || s.processes < 1:
		return errors.New("there must be charges, workers and processes")
	case s.mode != joined && s.mode != detached:
		return fmt.Errorf("there is no mode %q", s.mode)
	}
	return s.Validate()
}

// order is the i-th.
func (s *scenario) order(i int) bank.Order {
	return bank.Order{Reference: fmt.Sprintf("comp1:invoice:%06d", i), Amount: int64(100 + i)}
}
