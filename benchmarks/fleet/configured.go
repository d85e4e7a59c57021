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
