package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// scenario is the load, the mode and the faults of a run.
type scenario struct {
	chaos.Plan

	charges, workers int
	mode             string
	processes        int
	page             string    // the address of the state page; "": there is none
	log              io.Writer // of the processes; nil: none
}

// The modes.
const (
	transactional    = "transactional"
	nonTransactional = "non-transactional"
)

func (s *scenario) validate() error {
	switch {
	case s.charges < 1 || s.workers < 1 || s.processes < 1:
		return errors.New("charges, workers and processes must be positive")
	case s.mode != transactional && s.mode != nonTransactional:
		return fmt.Errorf("unknown mode %q", s.mode)
	}
	return s.Validate()
}

// order returns the order with number i.
func (s *scenario) order(i int) bank.Order {
	return bank.Order{Reference: fmt.Sprintf("comp1:invoice:%06d", i), Amount: int64(100 + i)}
}
