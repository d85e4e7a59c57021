// Package outerclient recognizes a client that makes retries of its own around a Transport. Two
// layers of three attempts are nine requests, so one layer must own the retries.
//
// Some SDKs report their retries in a header field. Others are known to retry, but send no count.
// Of all other clients, [FailedCalls] recognizes a request that failed and is sent again.
package outerclient

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// The fields in which SDKs report their retries: of AWS ("attempt=1; max=3"), of SDKs that
// Stainless generates for OpenAI, Anthropic and others (a count), and of Google (for example
// "gccl-attempt-count/1").
const (
	awsAttempts      = "Amz-Sdk-Request"
	awsInvocation    = "Amz-Sdk-Invocation-Id"
	stainlessRetries = "X-Stainless-Retry-Count"
	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// OwnsRetries reports whether an outer SDK owns the retries of the request: it makes more than one
// attempt, or this attempt is not its first.
func OwnsRetries(h http.Header) bool {
	if value := field.Value(h, awsAttempts); value != "" && max(fieldNumber(value, "; ", "max="), fieldNumber(value, "; ", "attempt=")) > 1 {
		return true
	}
	if value := field.Value(h, stainlessRetries); value != "" && fieldNumber(value, " ", "") > 0 {
		return true
	}
	value := field.Value(h, googleClient)
	return value != "" && fieldNumber(value, " ", googleAttempt) > 1
}

// MayRetry reports whether the outer client is known to retry without a count of its retries:
// stripe-go, Vault's client, or azcore ("azsdk-go-azblob/v1.6.0").
func MayRetry(h http.Header) bool {
	return field.Value(h, "X-Stripe-Client-User-Agent") != "" || field.Value(h, "X-Vault-Request") != "" ||
		strings.Contains(field.Value(h, "User-Agent"), "azsdk-")
}

// InvocationID returns the ID that an outer SDK sends with all its attempts, or "".
func InvocationID(h http.Header) string {
	if id := field.Value(h, awsInvocation); id != "" {
		return id
	}
	client := field.Value(h, googleClient)
	if client == "" {
		return ""
	}
	return fieldValue(client, " ", googleInvocation)
}

// fieldValue returns the text after the prefix, in the first part of a value that has the prefix.
func fieldValue(value, separator, prefix string) string {
	for part := range strings.SplitSeq(value, separator) {
		if rest, ok := strings.CutPrefix(part, prefix); ok {
			return rest
		}
	}
	return ""
}

// fieldNumber returns fieldValue as a number, or 0.
func fieldNumber(value, separator, prefix string) int {
	n, err := strconv.Atoi(fieldValue(value, separator, prefix))
	if err != nil {
		return 0
	}
	return n
}
