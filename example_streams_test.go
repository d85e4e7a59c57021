package resilienthttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/vendors"
)

// The profile of a language model, with a limit for its first event. The last line makes a completion that is in doubt
// an error of the caller again.
func ExampleStream_vendor() {
	transport := vendors.Anthropic()
	transport.Policy.Stream.FirstEvent = 20 * time.Second // then the next endpoint

	transport.Policy.Idempotent = nil

	fmt.Println(transport.Validate())
	// Output: <nil>
}

// A Stream for an API without a profile.
func ExampleStream() {
	policy := resilienthttp.Policy{
		Idempotent: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/completions") },
		Stream: &resilienthttp.Stream{Classify: func(name string, data []byte) resilienthttp.Verdict {
			switch name {
			case "ping":
				return resilienthttp.VerdictPending
			case "error":
				return resilienthttp.VerdictTransient
			}
			return resilienthttp.VerdictDefault // content
		}},
	}
	fmt.Println(policy.Stream.Classify("error", nil))
	// Output: transient
}
