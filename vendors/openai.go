package vendors

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Language models need long timeouts: for the response header, and between two reads of a
// stream.
const (
	modelAttemptTimeout = 10 * time.Minute
	modelReadTimeout    = time.Minute
)

// OpenAI returns a Transport for api.openai.com and its regions. The API does not honour keys,
// so a POST is retried only if the response means that it was not executed: 429, 408, 503 with
// Retry-After, or x-should-retry, which OpenAI sends. A 429 of billing (insufficient_quota and
// similar codes) is not retried. AttemptTimeout is 10 min and ReadTimeout 60 s. Each model has
// quotas of its own: RateLimit.Key is the body's model. RateLimit.Cost estimates the tokens of a
// request: a quarter of its bytes, and max_tokens.
//
// Source, read 2026-11-20, for https://platform.openai.com/docs/guides/error-codes:
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/openai-insufficient-quota.
func OpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:          []string{"api.openai.com", "*.api.openai.com"},
		verdict:        openAIVerdict,
		quotaKey:       modelOf,
		cost:           tokensOf,
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
	}.transport(hosts)
}

func openAIVerdict(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	apiError := parse[struct {
		Error struct {
			Type string `json:"type"`
			Code any    `json:"code"` // Azure's may be a number
		} `json:"error"`
	}](body).Error
	if apiError.Type == "insufficient_quota" {
		return resilienthttp.VerdictPermanent
	}
	switch apiError.Code {
	case "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
		"project_spend_limit_exceeded", "organization_usage_limit_exceeded":
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

// AzureOpenAI returns a Transport for the hosts of Azure resources. If your resources have custom
// domains, pass them. The rules are those of [OpenAI]. Each deployment of a resource is a
// scope, because each deployment has its own quota.
//
// Sources, read 2026-11-20: https://learn.microsoft.com/azure/foundry-classic/openai/how-to/quota,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/azure-openai-429-token-rate-limit.
func AzureOpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:          []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"},
		verdict:        openAIVerdict,
		scope:          azureScope,
		cost:           tokensOf,
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
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
