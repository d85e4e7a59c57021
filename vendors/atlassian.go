package vendors

import (
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// Atlassian returns a Transport for the Cloud APIs of Jira, Confluence and others, at
// *.atlassian.net and api.atlassian.com. The APIs do not honour keys. Each site has its own
// limits, and so its own scope: a host, or the path /ex/PRODUCT/CLOUDID of api.atlassian.com. A
// 429 has Retry-After. If a quota of an hour is used up (RateLimit-Reason
// jira-quota-tenant-based), that wait is often longer than Policy.MaxRetryAfter, and the call is
// not retried.
//
// Sources, read 2026-11-22: https://developer.atlassian.com/cloud/jira/platform/rate-limiting,
// https://developer.atlassian.com/cloud/jira/platform/build-an-app-that-respects-rate-limits/,
// https://developer.atlassian.com/cloud/oauth/getting-started/making-calls-to-api/.
func Atlassian(hosts ...string) *resilienthttp.Transport {
	return profile{hosts: []string{"*.atlassian.net", "api.atlassian.com"}, scope: atlassianScope}.transport(hosts)
}

// atlassianScope returns the host, and the site of /ex/jira/CLOUDID/rest/api/3/issue.
func atlassianScope(r *http.Request) string {
	parts := strings.SplitN(r.URL.Path, "/", 5)
	if len(parts) < 4 || parts[1] != "ex" || parts[2] == "" || parts[3] == "" {
		return r.URL.Host
	}
	return r.URL.Host + "/" + parts[2] + "/" + parts[3]
}
