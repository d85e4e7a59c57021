package vendors

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// How long the answer of a language model may take, and how long it may be silent once it
// has begun.
const (
	modelAttempt = 10 * time.Minute
	modelSilence = time.Minute
)

// OpenAI is for api.openai.com and its regions. It honours no keys, so a POST is repeated
// only where the answer says that it was not done: 429, 408, 503 with Retry-After, or
// x-should-retry, which OpenAI sends. A 429 of billing (insufficient_quota and its like)
// is not tried again: no waiting brings that back. An attempt has 10 min, and a stream is
// given up after 60 s of silence.
//
// Source, read 2026-11-20, on what https://platform.openai.com/docs/guides/error-codes says:
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/openai-insufficient-quota.
func OpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:   []string{"api.openai.com", "*.api.openai.com"},
		verdict: openAIVerdict,
		attempt: modelAttempt, silence: modelSilence,
	}.transport(hosts)
}

func openAIVerdict(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	said := parsed[struct {
		Error struct {
			Type string `json:"type"`
			Code any    `json:"code"` // Azure's may be a number
		} `json:"error"`
	}](body).Error
	if said.Type == "insufficient_quota" {
		return resilienthttp.VerdictPermanent
	}
	switch said.Code {
	case "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
		"project_spend_limit_exceeded", "organization_usage_limit_exceeded":
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

// AzureOpenAI is for the hosts of Azure's resources: give it yours if they have names of
// your own. It is as [OpenAI], and each deployment of a resource is a scope, since each
// has a quota of its own.
//
// Sources, read 2026-11-20: https://learn.microsoft.com/azure/foundry-classic/openai/how-to/quota,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/azure-openai-429-token-rate-limit.
func AzureOpenAI(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:   []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"},
		verdict: openAIVerdict,
		scope:   azureScope,
		attempt: modelAttempt, silence: modelSilence,
	}.transport(hosts)
}

// azureScope is the resource and the deployment: /openai/deployments/NAME/chat/completions.
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
