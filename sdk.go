package resilienthttp

import (
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// The fields in which SDKs tell of their own retries, as net/http spells them: AWS's
// ("attempt=1; max=3"), that of SDKs which Stainless generates, OpenAI's and Anthropic's
// among them (a count of repeats), and Google's (words, gccl-attempt-count/1 among them).
const (
	awsAttempts   = "Amz-Sdk-Request"
	awsInvocation = "Amz-Sdk-Invocation-Id"

	stainlessRepeats = "X-Stainless-Retry-Count"

	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// retriedAbove reports whether an SDK above owns the retries of this request: it says
// that it makes more than one attempt, or that this is not the first. One whose retries
// are off sends the fields as well, and owns none.
func retriedAbove(h http.Header) bool {
	if told := headerValue(h, awsAttempts); told != "" && (sdkNumber(told, "; ", "max=") > 1 || sdkNumber(told, "; ", "attempt=") > 1) {
		return true
	}
	if told := headerValue(h, stainlessRepeats); told != "" && sdkNumber(told, " ", "") > 0 {
		return true
	}
	told := headerValue(h, googleClient)
	return told != "" && sdkNumber(told, " ", googleAttempt) > 1
}

// sdkWord is what follows name in the word of told that begins with it.
func sdkWord(told, separator, name string) string {
	for word := range strings.SplitSeq(told, separator) {
		if value, ok := strings.CutPrefix(word, name); ok {
			return value
		}
	}
	return ""
}

// sdkNumber is sdkWord as a number; 0 if it is none.
func sdkNumber(told, separator, name string) int {
	n, err := strconv.Atoi(sdkWord(told, separator, name))
	if err != nil {
		return 0
	}
	return n
}

// invocationKey is the key of a request that an SDK above sends under an identifier which
// stays the same over its retries, and "" for others: a random key would be new for each
// of them. It is as random as that identifier, which must be a random UUID.
func invocationKey(req *http.Request) string {
	id := headerValue(req.Header, awsInvocation)
	if id == "" {
		id = sdkWord(headerValue(req.Header, googleClient), " ", googleInvocation)
	}
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 {
		return ""
	}
	// What belongs to one invocation may be more than one request, to several regions say.
	text := id + " " + method(req) + " " + req.URL.String() + " " + strconv.FormatInt(req.ContentLength, 10)
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(text), 8).String()
}
