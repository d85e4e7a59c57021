package config_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
)

// The program sets its defaults. The file of an operator changes some of them.
func Example() {
	transport := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: 5 * time.Second}}
	file := strings.NewReader(`{"Policy": {"MaxAttempts": 3}, "Budget": {"Ratio": 0.2}, "Hedge": {}}`)
	if err := config.Read(file, transport); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(transport.Policy.MaxAttempts, transport.Policy.AttemptTimeout, transport.Budget.Ratio, transport.Hedge != nil)
	// Output: 3 5s 0.2 true
}

// An error names all invalid fields, and the Transport is unchanged.
func ExampleRead_errors() {
	transport := &resilienthttp.Transport{}
	err := config.Read(strings.NewReader(`{"Policy": {"AttemptTimeout": 5}, "Hedge": true, "Retries": 3}`), transport)
	fmt.Println(err)
	// Output:
	// config: Policy.AttemptTimeout: got 5, want duration string such as "5s"
	// config: Hedge: got boolean, want object
	// config: Retries: unknown field
}
