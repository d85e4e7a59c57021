package vendors

import (
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// Slack is for slack.com and what is below it, hooks.slack.com among others. It honours no
// keys. Each method of the Web API is a scope, slack.com/chat.postMessage, since each has
// limits of its own; those of several workspaces are kept apart by their tokens, as
// everywhere. Most of Slack's errors come with status 200, and are yours to read.
//
// Source, read 2026-11-20: https://docs.slack.dev/apis/web-api/rate-limits.
func Slack(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"slack.com", "*.slack.com"},
		scope: func(r *http.Request) string {
			method, ok := strings.CutPrefix(r.URL.Path, "/api/")
			if !ok || method == "" || strings.Contains(method, "/") {
				return r.URL.Host // other paths hold secrets
			}
			return r.URL.Host + "/" + method
		},
	}.transport(hosts)
}
