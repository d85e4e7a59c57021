package fleet

import (
	"fmt"
	"strings"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
)

// Configured returns a Scenario.Configure that reads a configuration as package config does. It
// panics if the configuration is invalid, because scenarios are written in Go.
func Configured(json string) func(*resilienthttp.Transport) {
	if err := config.Read(strings.NewReader(json), &resilienthttp.Transport{}); err != nil {
		panic(fmt.Sprintf("fleet: configuration of a scenario: %v", err))
	}
	return func(t *resilienthttp.Transport) {
		if err := config.Read(strings.NewReader(json), t); err != nil {
			panic(fmt.Sprintf("fleet: configuration of a scenario: %v", err))
		}
	}
}

// With returns the scenario with one more configuration of this library, after its own.
func (s Scenario) With(configure func(*resilienthttp.Transport)) Scenario {
	own := s.Configure
	s.Configure = func(t *resilienthttp.Transport) {
		if own != nil {
			own(t)
		}
		configure(t)
	}
	return s
}
