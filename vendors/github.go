package vendors

import (
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// gitHubWait is the wait after a secondary limit that says nothing else.
const gitHubWait = time.Minute

// GitHub returns a Transport for api.github.com and uploads.github.com. For an Enterprise
// Server pass its host. The API does not honour keys.
//
// A 403 or 429 of a secondary rate limit is throttling, and nothing was executed. So a POST is repeated too. The call waits as
// long as the response asks, by Retry-After or by the reset of an exhausted quota, and otherwise a minute, as GitHub requires.
// The other calls of the same credential wait during that minute too, because each request into the limit may prolong it.
// Calls to another path test it. A call with an earlier deadline fails with ErrRateLimited and ErrDeadline, and is not sent.
//
// Sources, read 2026-11-20:
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api; read 2026-11-29:
// https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api ("wait for at least one
// minute", "stop making requests temporarily"); a response without Retry-After:
// https://github.com/hub4j/github-api/issues/1805, with a quota that is not exhausted:
// https://github.com/KnpLabs/php-github-api/pull/1072.
func GitHub(hosts ...string) *resilienthttp.Transport {
	return profile{hosts: []string{"api.github.com", "uploads.github.com"}, verdict: gitHubVerdict}.transport(hosts)
}

func gitHubVerdict(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	status := a.Response.StatusCode
	if status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return resilienthttp.VerdictDefault
	}
	message := parse[struct {
		Message string `json:"message"`
	}](body).Message
	if !strings.Contains(message, "secondary rate limit") && !strings.Contains(message, "abuse detection mechanism") {
		return resilienthttp.VerdictDefault
	}
	a.NotExecuted = true
	if a.RetryAfter <= 0 {
		a.RetryAfter = gitHubWait
	}
	return resilienthttp.VerdictThrottled
}
