package vendors

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Language models need long timeouts: for the response header, and between two reads of a stream. Good reasoning turns
// are silent for 32 to 304 s.
const (
	modelAttemptTimeout = 10 * time.Minute
	modelReadTimeout    = 10 * time.Minute
)

// completions are the paths of OpenAI with work that may be done twice. /threads/ID/messages and the like are not among them.
var completions = []string{"completions", "responses", "embeddings"} //nolint:gochecknoglobals // never written to

// OpenAI returns a Transport for api.openai.com and its regions. The API does not honour keys. A completion (a POST to
// completions, responses or embeddings) may be done twice, so it is retried like a GET: a second one may be billed, and
// one with a conversation adds its input twice. t.Policy.Idempotent = nil turns it off. Any other POST is retried only
// if the response means that it was not executed: 429, or x-should-retry, which OpenAI sends.
//
// A 429 of billing (insufficient_quota and similar codes) is not retried. A stream is an answer when its first event of
// content is there: see resilienthttp.Stream. A chunk of a chat completion with the role alone is none. AttemptTimeout and ReadTimeout are 10 min. Each model has quotas of its
// own: RateLimit.Key is the body's model. RateLimit.Cost estimates the tokens of a request: a quarter of its bytes, and
// max_tokens.
//
// Sources, read 2026-11-25, for https://platform.openai.com/docs/guides/error-codes:
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/openai-insufficient-quota; events:
// https://developers.openai.com/api/reference/resources/responses/streaming-events.md; errors in them:
// https://github.com/anomalyco/opencode/issues/25730, https://github.com/Soju06/codex-lb/issues/1313; read 2026-11-29,
// errors among the chunks of a chat completion: https://github.com/aaif-goose/goose/pull/8027,
// https://github.com/diegosouzapw/OmniRoute/pull/8210.
func OpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:          []string{"api.openai.com", "*.api.openai.com"},
		verdict:        openAIVerdict,
		quotaKey:       modelOf,
		cost:           tokensOf,
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
		event: openAIEvent, harmless: completions,
	}.transport(hosts)
}

// openAIError is the error of a body or an event.
type openAIError struct {
	Type string `json:"type"`
	Code any    `json:"code"` // Azure's may be a number
}

// ofBilling reports whether the account has no money left. That is no limit of a rate.
func (e openAIError) ofBilling() bool {
	if e.Type == "insufficient_quota" {
		return true
	}
	switch e.Code {
	case "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
		"project_spend_limit_exceeded", "organization_usage_limit_exceeded":
		return true
	}
	return false
}

func openAIVerdict(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	if parse[struct {
		Error openAIError `json:"error"`
	}](body).Error.ofBilling() {
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

// openAIEvent classifies an event of a Response or a chat completion. The error is at one of three places. That of a
// chat completion has no type, and may stand in a chunk without choices.
func openAIEvent(name string, data []byte) resilienthttp.Verdict {
	event := parse[struct {
		openAIError

		Error    *openAIError `json:"error"`
		Response struct {
			Error openAIError `json:"error"`
		} `json:"response"`
		Choices choices `json:"choices"`
	}](data)
	switch name = cmp.Or(name, event.Type); {
	case name == "error" && event.Error == nil:
		return event.verdict()
	case name == "error", name == "" && event.Error != nil:
		return event.Error.verdict()
	case name == "response.failed":
		return event.Response.Error.verdict()
	case slices.Contains([]string{"ping", "response.created", "response.in_progress", "response.queued"}, name):
		return resilienthttp.VerdictPending
	case name == "" && event.Choices.pending():
		return resilienthttp.VerdictPending
	}
	return resilienthttp.VerdictDefault
}

// choices are those of a chunk; nil: it is no chunk.
type choices []choice

// pending reports whether the chunk has nothing of the answer. The first chunk has the role alone. Azure sends results of its
// content filter before the answer: for the prompt without a choice, and for the answer without a delta.
func (c choices) pending() bool { return c != nil && !slices.ContainsFunc(c, choice.hasContent) }

// choice is one of a chunk of a chat completion, or of a completion.
type choice struct {
	Delta  map[string]json.RawMessage `json:"delta"`
	Text   string                     `json:"text"`
	Finish string                     `json:"finish_reason"`
}

// hasContent reports whether the choice has a part of the answer, or ends it.
func (c choice) hasContent() bool {
	if c.Text != "" || c.Finish != "" {
		return true
	}
	for member, value := range c.Delta {
		empty := slices.Contains([]string{"null", `""`, "[]", "{}"}, string(value))
		if member != "role" && !empty { // content, refusal, tool_calls, reasoning_content and what is to come
			return true
		}
	}
	return false
}

// verdict is that of an error in an event. What is unknown is transient.
func (e openAIError) verdict() resilienthttp.Verdict {
	code, _ := e.Code.(string)
	switch {
	case e.ofBilling(), e.Type == "invalid_request_error", strings.HasPrefix(code, "invalid_"),
		slices.Contains([]string{"context_length_exceeded", "content_filter", "content_policy_violation", "cyber_policy"}, code):
		return resilienthttp.VerdictPermanent
	case slices.Contains([]string{"rate_limit_exceeded", "rate_limit_error", "server_is_overloaded", "slow_down", "overloaded_error"}, cmp.Or(code, e.Type)):
		return resilienthttp.VerdictThrottled
	}
	return resilienthttp.VerdictTransient
}

// AzureOpenAI returns a Transport for the hosts of Azure resources. If your resources have custom
// domains, pass them. The rules are those of [OpenAI]. Each deployment of a resource is a
// scope, because each deployment has its own quota. The chunk with the results of the prompt's filter
// (prompt_filter_results, without a choice) is no content.
//
// Sources, read 2026-11-20: https://learn.microsoft.com/azure/foundry-classic/openai/how-to/quota,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/azure-openai-429-token-rate-limit; read 2026-11-29:
// https://learn.microsoft.com/azure/foundry/openai/concepts/content-streaming,
// https://learn.microsoft.com/answers/questions/1533887/does-streaming-work-with-tool-calls-yet-on-azureop.
func AzureOpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:          []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"},
		verdict:        openAIVerdict,
		scope:          azureScope,
		cost:           tokensOf,
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
		event: openAIEvent, harmless: completions,
	}.transport(hosts)
}

// azureScope returns the host and the deployment of /openai/deployments/NAME/chat/completions.
func azureScope(r *http.Request) string {
	_, rest, ok := strings.Cut(r.URL.EscapedPath(), "/openai/deployments/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || name == "" {
		return r.URL.Host
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return r.URL.Host + "/" + name
}
