package vendors

import (
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// Slack returns a Transport for slack.com and its subdomains, such as hooks.slack.com. The API
// does not honour keys. Each method of the Web API is a scope (slack.com/chat.postMessage),
// because each method has its own limits. Quotas are tracked per token, so workspaces do not
// share them. Most of Slack's errors have status 200 and are not retried.
//
// Source, read 2026-11-20: https://docs.slack.dev/apis/web-api/rate-limits.
func Slack(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"slack.com", "*.slack.com"},
		scope: func(r *http.Request) string {
			method, ok := strings.CutPrefix(r.URL.Path, "/api/")
			if !ok || method == "" || strings.Contains(method, "/") {
				return r.URL.Host // other paths contain secrets
			}
			return r.URL.Host + "/" + method
		},
	}.transport(hosts)
}
