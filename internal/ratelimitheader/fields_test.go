package ratelimitheader

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The fields of vendors, most of them from examples in their documentation.
func TestParse_vendors(t *testing.T) {
	run(t, []test{
		{"GitHub: core", header("Date", date, "X-GitHub-Media-Type", "github.v3; format=json",
			"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4966", "X-RateLimit-Used", "34",
			"X-RateLimit-Reset", "1705318200", "X-RateLimit-Resource", "core"), "[core] 4966/5000 in 1h0m0s at 2024-01-15T11:30:00Z"},
		{"GitHub: reset in the second of the response", header("Date", date, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0",
			"X-RateLimit-Reset", fmt.Sprint(epoch), "X-RateLimit-Resource", "core"), "[core] 0/60 in 1s at 2024-01-15T10:30:01Z"},
		{"GitHub: no Date: the client's clock", header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59",
			"X-RateLimit-Reset", "1705318230"), "59/60 in 30s at 2024-01-15T11:30:30Z"},
		{"GitHub: secondary limit: a bucket and no quota", header("Date", date, "Retry-After", "60", "X-RateLimit-Resource", "core"), "[core]"},
		{"GitLab: documented example", header("Date", "Tue, 05 Jan 2021 10:59:30 GMT", "RateLimit-Limit", "60",
			"RateLimit-Name", "throttle_authenticated_web", "RateLimit-Observed", "67", "RateLimit-Remaining", "0",
			"RateLimit-Reset", "1609844400", "RateLimit-ResetTime", "Tue, 05 Jan 2021 11:00:00 GMT", "Retry-After", "30"),
			"[throttle_authenticated_web] 0/60 in 30s at 2021-01-05T11:00:00Z"},
		{"GitLab: ResetTime alone", header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3",
			"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"), "3/60 in 1m0s at 2024-01-15T10:31:00Z"},
		{"GitLab: another ResetTime: Reset counts", header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3", "RateLimit-Reset", "1705314630",
			"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"), "3/60 in 30s at 2024-01-15T10:30:30Z"},
		{"GitLab: ResetTime where Reset is malformed", header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3", "RateLimit-Reset", "?",
			"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"), "3/60 in 1m0s at 2024-01-15T10:31:00Z"},
		{"X", header("date", date, "x-rate-limit-limit", "900", "x-rate-limit-remaining", "847",
			"x-rate-limit-reset", "1705315500"), "847/900 in 15m0s at 2024-01-15T10:45:00Z"},
		{"Okta, too many requests in flight: no quota", header("Date", date, "X-Rate-Limit-Limit", "0", "X-Rate-Limit-Remaining", "0",
			"X-Rate-Limit-Reset", "1705314601"), ""},
		{"OpenAI: documented example", header("Date", date, "x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000",
			"x-ratelimit-remaining-requests", "59", "x-ratelimit-remaining-tokens", "149984",
			"x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s"),
			"requests 59/60 in 1s, tokens 149984/150000 in 6m0s costed"},
		{"OpenAI: milliseconds, and hours", header("x-ratelimit-remaining-requests", "4999", "x-ratelimit-reset-requests", "12ms",
			"x-ratelimit-remaining-tokens", "7", "x-ratelimit-reset-tokens", "1h2m"),
			"requests 4999/? in 12ms, tokens 7/? in 1h2m0s costed"},
		{"OpenAI: one dimension without a reset is dropped", header("x-ratelimit-remaining-requests", "4999", "x-ratelimit-reset-requests", "12ms",
			"x-ratelimit-remaining-tokens", "0"), "requests 4999/? in 12ms exhausted"},
		{"Groq: fractions", header("x-ratelimit-limit-requests", "14400", "x-ratelimit-limit-tokens", "18000",
			"x-ratelimit-remaining-requests", "14370", "x-ratelimit-remaining-tokens", "17997",
			"x-ratelimit-reset-requests", "2m59.56s", "x-ratelimit-reset-tokens", "7.66s"),
			"requests 14370/14400 in 2m59.56s, tokens 17997/18000 in 7.66s costed"},
		{"Cerebras: by window, in float seconds", header("x-ratelimit-limit-requests-day", "1000000000", "x-ratelimit-limit-tokens-minute", "1000000000",
			"x-ratelimit-remaining-requests-day", "999997455", "x-ratelimit-remaining-tokens-minute", "999998298",
			"x-ratelimit-reset-requests-day", "33011.382867097855", "x-ratelimit-reset-tokens-minute", "11.382867097854614"),
			"requests-day 999997455/1000000000 in 9h10m11.382867097s, tokens-minute 999998298/1000000000 in 11.382867097s costed"},
		{"RapidAPI: a plan's quota beside the API's", header("x-ratelimit-requests-limit", "500", "x-ratelimit-requests-remaining", "499", "x-ratelimit-requests-reset", "2591999",
			"x-ratelimit-limit", "60", "x-ratelimit-remaining", "59", "x-ratelimit-reset", "30"),
			"59/60 in 30s, requests 499/500 in 719h59m59s"},
		{"OpenAI: name of the dimension before the part", header("Date", date, "x-ratelimit-minute-limit", "5", "x-ratelimit-minute-remaining", "4",
			"x-ratelimit-minute-reset", "1705314660", "x-ratelimit-day-limit", "100", "x-ratelimit-day-remaining", "99",
			"x-ratelimit-day-reset", "1705363200"),
			"day 99/100 in 13h30m0s at 2024-01-16T00:00:00Z, minute 4/5 in 1m0s at 2024-01-15T10:31:00Z"},
		{"Azure OpenAI: whole seconds", header("Date", date, "x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "9",
			"x-ratelimit-reset-requests", "6", "x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "0",
			"x-ratelimit-reset-tokens", "55"), "requests 9/10 in 6s, tokens 0/1000 in 55s costed"},
		{"Azure OpenAI: -1 and 0 are unknown", header("x-ratelimit-limit-tokens", "-1", "x-ratelimit-remaining-tokens", "-1",
			"x-ratelimit-reset-tokens", "0"), ""},
		{"Azure OpenAI: limit -1 beside a known rest", header("x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests", "79",
			"x-ratelimit-reset-requests", "1"), "requests 79/? in 1s"},
		{"Azure OpenAI: a unit overrules the usual name", header("Anthropic-Ratelimit-Requests-Limit", "9", "Ratelimit", `"Requests";r=1;t=3;qu="tokens"`),
			"requests 1/9 in 3s costed"},
		{"Azure OpenAI: both spellings of a dimension are one", header("x-ratelimit-remaining-tokens", "5", "x-rate-limit-remaining-tokens", "6",
			"x-ratelimit-reset-tokens", "1"), "tokens 5/? in 1s costed"},
		// The output tokens are at their limit: their reset is in the second of the response.
		{"Anthropic: four dimensions", header("Date", date,
			"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
			"anthropic-ratelimit-requests-reset", "2024-01-15T10:30:01Z",
			"anthropic-ratelimit-tokens-limit", "50000", "anthropic-ratelimit-tokens-remaining", "49000",
			"anthropic-ratelimit-tokens-reset", "2024-01-15T10:30:02Z",
			"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "0",
			"anthropic-ratelimit-input-tokens-reset", "2024-01-15T10:31:00Z",
			"anthropic-ratelimit-output-tokens-limit", "8000", "anthropic-ratelimit-output-tokens-remaining", "8000",
			"anthropic-ratelimit-output-tokens-reset", "2024-01-15T10:30:00Z"),
			"input-tokens 0/40000 in 1m0s at 2024-01-15T10:31:00Z costed, output-tokens 8000/8000 in 1s at 2024-01-15T10:30:01Z costed, requests 49/50 in 1s at 2024-01-15T10:30:01Z, tokens 49000/50000 in 2s at 2024-01-15T10:30:02Z costed"},
		{"Anthropic: unified fields tell no count", header("Date", date, "anthropic-ratelimit-unified-status", "allowed",
			"anthropic-ratelimit-unified-5h-reset", "1705318200", "anthropic-ratelimit-unified-5h-utilization", "0.2"), ""},
		{"Anthropic: priority tier is no gate", header("Date", date, "anthropic-priority-input-tokens-limit", "100",
			"anthropic-priority-input-tokens-remaining", "0", "anthropic-priority-input-tokens-reset", "2024-01-15T10:31:00Z"), ""},
		{"Discord: Reset-After wins over Reset", header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0",
			"X-RateLimit-Reset", "1705314602.871", "X-RateLimit-Reset-After", "1.371", "X-RateLimit-Bucket", "abcd1234"),
			"[abcd1234] 0/5 in 1.371s"},
		{"Discord: malformed Reset-After falls back", header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
			"X-RateLimit-Reset", "1705314602", "X-RateLimit-Reset-After", "-0.1"), "1/5 in 2s at 2024-01-15T10:30:02Z"},
		{"Discord: zero Reset-After wins too", header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
			"X-RateLimit-Reset", "1705314602", "X-RateLimit-Reset-After", "0.000"), "1/5 in 1s"},
		{"Discord: shared: the resource's limit, in the bucket", header("Date", date, "Retry-After", "1337", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9",
			"X-RateLimit-Reset", "1705314664.57", "X-RateLimit-Reset-After", "64.57", "X-RateLimit-Bucket", "abcd1234",
			"X-RateLimit-Scope", "shared"), "[abcd1234] 9/10 in 1m4.57s"},
		{"Discord: global, with a quota", header("Date", date, "X-RateLimit-Global", "True", "X-RateLimit-Bucket", "abcd1234",
			"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "0.5"), "global 0/50 in 500ms"},
		{"Discord: global by scope alone", header("X-RateLimit-Scope", "global", "X-RateLimit-Bucket", "abcd1234"), "global"},
		{"Discord: global, beside another scope", header("X-RateLimit-Global", "true", "X-RateLimit-Scope", "user", "X-RateLimit-Bucket", "abcd1234"), "global"},
		{"Discord: not global", header("X-RateLimit-Global", "false", "X-RateLimit-Bucket", "abcd1234"), "[abcd1234]"},
		{"Reddit: floats", header("X-Ratelimit-Used", "4", "X-Ratelimit-Remaining", "995.0", "X-Ratelimit-Reset", "542"), "995/999 in 9m2s"},
		{"Reddit: absurd sum of used and remaining", header("X-Ratelimit-Used", "9223372036854775807", "X-Ratelimit-Remaining", "9223372036854775807", "X-Ratelimit-Reset", "1"),
			"9223372036854775807/9223372036854775807 in 1s"},
		{"Zendesk: documented example: one quota in two spellings", header("Date", date, "x-rate-limit", "700", "ratelimit-limit", "700", "x-rate-limit-remaining", "699",
			"ratelimit-remaining", "699", "ratelimit-reset", "41",
			"zendesk-ratelimit-tickets-index", "total=100; remaining=99; resets=41"),
			"[tickets-index] 699/700 in 41s, tickets-index 99/100 in 41s"},
		{"Zendesk: an endpoint with malformed parts", header("Zendesk-RateLimit-Search", "total=; remaining=-1; resets=soon; ; ="), "[search]"},
		{"Zendesk: half in each spelling", header("X-Rate-Limit", "700", "X-Rate-Limit-Remaining", "0", "ratelimit-reset", "41"), "0/700 in 41s"},
		{"a vendor that is not in the table", header("Acme-RateLimit-Limit", "100", "Acme-RateLimit-Remaining", "7", "Acme-RateLimit-Reset", "9"), "acme 7/100 in 9s"},
		{"the same, of tokens", header("Acme-Rate-Limit-Tokens-Remaining", "7", "Acme-Rate-Limit-Tokens-Reset", "9"), "acme-tokens 7/? in 9s costed"},
		{"the same, beside a gateway's quota", header("Acme-RateLimit-Remaining", "7", "Acme-RateLimit-Reset", "9",
			"X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "3"), "5/? in 3s, acme 7/? in 9s"},
		{"a vendor with a limit in its name", header("Unlimited-Rate-Limit-Remaining", "7", "Unlimited-Rate-Limit-Reset", "9"), "unlimited 7/? in 9s"},
		{"Amazon: only a rate, which says nothing of what is left", header("X-Amzn-RateLimit-Limit", "0.0167"), ""},
		{"a limit of something else", header("X-Upload-Limit-Remaining", "7", "X-Upload-Limit-Reset", "9", "X-Limit-Remaining", "7"), ""},
		{"Shopify: used and limit", header("X-Shopify-Shop-Api-Call-Limit", "32/40"), "8/40 in 16s"},
		{"Shopify: one used", header("X-Shopify-Shop-Api-Call-Limit", "1/40"), "39/40 in 500ms"},
		{"Shopify: overfull", header("X-Shopify-Shop-Api-Call-Limit", "41/40"), "0/40 in 20.5s"},
		{"Shopify: nothing used", header("X-Shopify-Shop-Api-Call-Limit", "0/40"), "40/40 in 1s"},
		{"Shopify: no slash", header("X-Shopify-Shop-Api-Call-Limit", "32"), ""},
		{"Shopify: no limit", header("X-Shopify-Shop-Api-Call-Limit", "32/"), ""},
		{"Shopify: no usage", header("X-Shopify-Shop-Api-Call-Limit", "/40"), ""},
		{"Shopify: limit zero", header("X-Shopify-Shop-Api-Call-Limit", "0/0"), ""},
		{"Shopify: negative", header("X-Shopify-Shop-Api-Call-Limit", "-1/40"), ""},
		{"Shopify: absurd usage", header("X-Shopify-Shop-Api-Call-Limit", "99999999999999999999/40"), "0/40 in 8760h0m0s"},
		{"Shopify: beside another quota", header("X-Shopify-Shop-Api-Call-Limit", "32/40", "RateLimit-Remaining", "7", "RateLimit-Reset", "5"),
			"8/40 in 16s, ratelimit 7/? in 5s"},
		{"HubSpot: an interval, and a day without a reset", header("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "97", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000",
			"X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "249000"), "97/100 per 10s in 10s"},
		{"HubSpot: the day is used up", header("X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "0"), "exhausted"},
		{"HubSpot: 0 a day: no quota", header("X-HubSpot-RateLimit-Daily", "0", "X-HubSpot-RateLimit-Daily-Remaining", "0"), ""},
		{"HubSpot: no interval", header("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "97"), ""},
		{"X: the app's and the user's, of 24 hours", header("Date", date, "x-rate-limit-limit", "300", "x-rate-limit-remaining", "299", "x-rate-limit-reset", "1705318200",
			"x-app-limit-24hour-limit", "10000", "x-app-limit-24hour-remaining", "9999", "x-app-limit-24hour-reset", "1705318200",
			"x-user-limit-24hour-limit", "100", "x-user-limit-24hour-remaining", "0", "x-user-limit-24hour-reset", "1705318200"),
			"299/300 in 1h0m0s at 2024-01-15T11:30:00Z, app-24hour 9999/10000 in 1h0m0s at 2024-01-15T11:30:00Z, user-24hour 0/100 in 1h0m0s at 2024-01-15T11:30:00Z"},
		{"Atlassian: a reset without seconds", header("Date", date, "X-RateLimit-Limit", "350", "X-RateLimit-Remaining", "349", "X-RateLimit-Reset", "2024-01-15T11:30Z"),
			"349/350 in 1h0m0s at 2024-01-15T11:30:00Z"},
		{"Atlassian: points", header("Beta-RateLimit", `"global-app-quota";r=1000;t=600`, "Beta-RateLimit-Policy", `"global-app-quota";q=65000;w=3600`),
			"global-app-quota 1000/65000 per 1h0m0s in 10m0s costed"},
		{"Cloudflare: the single names differ", header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"burst";q=100;w=60`), "default 50/100 per 1m0s in 30s"},
		{"Cloudflare: two names that differ", header("RateLimit", `"a";r=50;t=30, "b";r=5;t=3`, "RateLimit-Policy", `"c";q=100;w=60`), "a 50/? in 30s, b 5/? in 3s"},
	})
}

// The fields of the IETF: the current draft, its open change (a for r, w for t in RateLimit, and c, the cost of the request), and
// the old drafts.
func TestParse_drafts(t *testing.T) {
	run(t, []test{
		{"draft: one policy", header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=30`), "p 50/100 per 1m0s in 30s"},
		{"draft: a malformed member leaves the others of its line", header("RateLimit", `"daily";r=3;t=3600, 5 6;r=1;t=1, (a b);r=1;t=1, @1;r=1;t=1, "burst`),
			"daily 3/? in 1h0m0s"},
		{"draft: commas, semicolons and escapes inside a name", header("RateLimit-Policy", `"a,b;c\"d\\e";q=9;w=1`, "RateLimit", `"a,b;c\"d\\e";r=1;t=2`),
			`a,b;c"d\e 1/9 per 1s in 2s`},
		{"draft: a token for a name", header("RateLimit-Policy", `default;q=9;w=1`, "RateLimit", `default;r=1;t=2`), "default 1/9 per 1s in 2s"},
		{"draft: unknown parameters of every type, blanks, another order", header("RateLimit", `"p"; acme-x=tok; t=30; f; g=?0; d=@1659578233; s=%"f%c3%bc"; u="x;r=1"; b=:aGk=:; n=-1.5;  r=50`,
			"RateLimit-Policy", `"p";acme;w=60;comment="fixed window";q=100`), "p 50/100 per 1m0s in 30s"},
		{"draft: the last of a repeated parameter counts", header("RateLimit", `"p";r=1;t=5;r=2`), "p 2/? in 5s"},
		{"draft: no t: nothing to wait for", header("RateLimit", `"default";r=999`), ""},
		{"draft: t is zero, rounded down", header("RateLimit", `"default";r=9;t=0`), "default 9/? in 1s"},
		{"draft: t is negative", header("RateLimit", `"default";r=9;t=-5`), ""},
		{"draft: no r", header("RateLimit", `"default";t=5`), ""},
		{"draft: r is negative", header("RateLimit", `"default";r=-1;t=5`), ""},
		{"draft: no name", header("RateLimit", `;r=1;t=5`), ""},
		{"draft: commas without a member", header("RateLimit", `,"p";r=1;t=5,`), "p 1/? in 5s"},
		{"draft: blank before the semicolon", header("RateLimit", `"p" ;r=1;t=5`), ""},
		{"draft: policy alone", header("RateLimit-Policy", `"p";q=100;w=60`), ""},
		{"draft: huge values", header("RateLimit", `"p";r=99999999999999999999;t=99999999999999999999`, "RateLimit-Policy", `"p";q=99999999999999999999;w=99999999999999999999`, "Date", date),
			"p 9223372036854775807/9223372036854775807 per 8760h0m0s in 8760h0m0s at 2025-01-14T10:30:00Z"},
		{"draft: policy of window zero", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p";q=5;w=0`), "p 1/5 in 3s"},
		{"draft: malformed policies", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p";q=5;w`, "RateLimit-Policy", `"p";q=`), "p 1/5 in 3s"},
		{"draft: policy without a quota or a window is none", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p", "p";q=7;w=9, ?1`), "p 1/7 per 9s in 3s"},
		{"draft: quota units", header("RateLimit", `"a";r=1;t=1, "b";r=2;t=1, "c";r=3;t=1, "tokens";r=4;t=1, "d tokens";r=5;t=1, "endpoint";r=6;t=1`,
			"RateLimit-Policy", `"a";q=9;qu="content-bytes", "b";q=9;qu="requests", "c";q=9;qu="concurrent-requests", "tokens";q=9;qu="request"`),
			"a 1/9 in 1s costed, b 2/9 in 1s, c 3/9 in 1s costed, tokens 4/9 in 1s, d tokens 5/? in 1s costed, endpoint 6/? in 1s"},
		{"draft: two partition keys: both name the bucket", header("RateLimit", `"a";r=3;t=60;pk=:YQ==:, "b";r=4;t=60;pk=:Yg==:`),
			"[YQ==,Yg==] a 3/? in 1m0s, b 4/? in 1m0s"},
		{"draft: one policy twice: the last", header("RateLimit", `"a";r=3;t=60, "a";r=2;t=61`), "a 2/? in 1m1s"},
		{"draft: partition key too long for a bucket", header("RateLimit", `"a";r=3;t=60;pk=:`+strings.Repeat("a", MaxName+1)+`:`), "a 3/? in 1m0s"},
		{"draft: the bucket by name comes before the partition key", header("RateLimit", `"a";r=3;t=60;pk=:YQ==:`, "X-RateLimit-Resource", "core"),
			"[core] a 3/? in 1m0s"},
		{"draft: the longest name, and one that is too long", header("RateLimit", `"`+strings.Repeat("a", MaxName)+`";r=3;t=60, "`+strings.Repeat("a", MaxName)+`c";r=2;t=60`),
			strings.Repeat("a", MaxName) + " 3/? in 1m0s"},
		{"draft: line too long", header("RateLimit", `"p";r=1;t=2;x="`+strings.Repeat("a", maxLine)+`"`, "RateLimit-Policy", `"p";q=1;x="`+strings.Repeat("a", maxLine)+`"`),
			""},
		{"draft: old fields beside it say the same", header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=30`, "Date", date,
			"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631"), "p 50/100 per 1m0s in 30s"},
		{"draft: old fields beside it complete the limit", header("RateLimit", `"p";r=50;t=30`, "Date", date,
			"X-RateLimit-Limit", "100, 100;w=60", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631"),
			"p 50/100 per 1m0s in 30s"},
		{"open change: one policy", header("RateLimit-Policy", `"burst";q=100;w=60`, "RateLimit", `"burst";a=80;w=45`), "burst 80/100 per 1m0s in 45s"},
		{"open change: several policies and a partition key", header("RateLimit-Policy", `"burst";q=100;w=60, "daily";q=1000;w=86400`,
			"RateLimit", `"burst";a=0;w=40;pk=:YQ==:, "daily";a=3;w=3600;pk=:YQ==:`),
			"[YQ==] burst 0/100 per 1m0s in 40s, daily 3/1000 per 24h0m0s in 1h0m0s"},
		{"open change: one policy in each draft's letters", header("RateLimit", `"old";r=9;t=4, "new";a=8;w=5`), "old 9/? in 4s, new 8/? in 5s"},
		{"open change: letters of both: t is the reset, and w the window", header("RateLimit", `"p";a=9;t=4;w=60`), "p 9/? per 1m0s in 4s"},
		{"open change: the window of a policy is no reset", header("RateLimit", `"p";a=9`, "RateLimit-Policy", `"p";q=100;w=60`), ""},
		{"open change: w is zero: nothing to wait for", header("RateLimit", `"p";a=9;w=0`), ""},
		{"open change: a cost of several units: requests in flight cannot be counted", header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";a=80;w=45;c=5`),
			"p 80/100 per 1m0s in 45s costed"},
		{"open change: a cost of one", header("RateLimit", `"p";a=80;w=45;c=1`), "p 80/? in 45s"},
		{"-07: dictionary", header("RateLimit", "limit=100, remaining=50, reset=30"), "50/100 in 30s"},
		{"-07: the policy of the limit, among several", header("RateLimit", "limit=1000, remaining=50, reset=5", "RateLimit-Policy", `10;w=1, 50;w=60, 1000;w=3600;comment="x", 5000;w=86400`),
			"50/1000 per 1h0m0s in 5s"},
		{"-07: no policy of the limit, among several", header("RateLimit", "limit=99, remaining=50, reset=5", "RateLimit-Policy", "10;w=1, 50;w=60"),
			"50/99 in 5s"},
		{"-07: a limit lowered below the only policy", header("RateLimit", "limit=20, remaining=9, reset=50", "RateLimit-Policy", "100;w=60"),
			"9/20 per 1m0s in 50s"},
		{"-07: the limit from the only policy", header("RateLimit", "remaining=9, reset=50", "RateLimit-Policy", "100;w=60"), "9/100 per 1m0s in 50s"},
		{"-07: parameters, flags and unknown keys", header("RateLimit", "limit=100;x=1, remaining=50;y, reset=30, acme, acme2;p=1"), "50/100 in 30s"},
		{"-07: remaining is optional", header("RateLimit", "limit=10, reset=1"), ""},
		{"-07: no reset", header("RateLimit", "limit=10, remaining=1"), ""},
		{"-07: other keys", header("RateLimit", "limits=10, left=1, until=1"), ""},
		{"three fields", header("RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "30"), "50/100 in 30s"},
		{"three fields, a policy in the limit", header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50", "RateLimit-Reset", "30"),
			"50/100 per 1m0s in 30s"},
		{"three fields and a policy", header("RateLimit-Limit", "10", "RateLimit-Remaining", "1", "RateLimit-Reset", "7", "RateLimit-Policy", `10;w=10;burst=1000, 1000;w=3600`),
			"1/10 per 10s in 7s"},
		{"three fields complete the dictionary", header("RateLimit", "limit=10, reset=7", "RateLimit-Remaining", "1"), "1/10 in 7s"},
		{"the three fields come before the dictionary", header("RateLimit", "limit=10, remaining=2, reset=7", "RateLimit-Limit", "9", "RateLimit-Remaining", "1", "RateLimit-Reset", "5"),
			"1/9 in 5s"},
		{"Envoy: policies in X-RateLimit-Limit", header("x-ratelimit-limit", `10, 10;w=1;name="foo", 1000;w=60`, "x-ratelimit-remaining", "9", "x-ratelimit-reset", "1"),
			"9/10 per 1s in 1s"},
		{"WHOOP: window spelt out", header("X-RateLimit-Limit", "100, 100;window=60, 10000;window=86400", "X-RateLimit-Remaining", "98", "X-RateLimit-Reset", "3"),
			"98/100 per 1m0s in 3s"},
		{"Docker Hub: no reset", header("ratelimit-limit", "100;w=21600", "ratelimit-remaining", "76;w=21600"), ""},
		{"express-rate-limit: old and standard fields of one quota", header("Date", date, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631",
			"RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "30", "RateLimit-Policy", "100;w=60"),
			"50/100 per 1m0s in 31s at 2024-01-15T10:30:31Z"},
		{"a gateway's quota beside the service's", header("Date", date, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1705318200",
			"RateLimit-Limit", "10", "RateLimit-Remaining", "9", "RateLimit-Reset", "1"),
			"4999/5000 in 1h0m0s at 2024-01-15T11:30:00Z, ratelimit 9/10 in 1s"},
		{"Kong: windows without resets, beside the standard fields", header("X-RateLimit-Limit-Minute", "10", "X-RateLimit-Remaining-Minute", "9",
			"RateLimit-Limit", "10", "RateLimit-Remaining", "9", "RateLimit-Reset", "47"), "9/10 in 47s"},
	})
}

// §4.17b: each case of the table of fields is reached: a field that begins as the case says is read, and cut behind it. A word of the
// vendor's name was once taken for the limit.
func TestMeaningOf_reachesEachCase(t *testing.T) {
	file, err := goparser.ParseFile(token.NewFileSet(), "fields.go", nil, goparser.SkipObjectResolution)
	require.NoError(t, err)
	var heads []string
	ast.Inspect(file, func(n ast.Node) bool {
		table, ok := n.(*ast.SwitchStmt)
		if !ok || fmt.Sprint(table.Tag) != "head" {
			return true
		}
		for _, statement := range table.Body.List {
			for _, value := range statement.(*ast.CaseClause).List {
				head, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				require.NoError(t, err)
				heads = append(heads, head)
			}
		}
		return true
	})
	require.Greater(t, len(heads), 9)
	for _, head := range heads {
		for _, suffix := range []string{"", "-Limit", "-Remaining", "-Daily-Remaining"} {
			cut, rest := cutLimit(head + suffix)
			require.Equal(t, head, cut, suffix)
			require.Equal(t, strings.TrimPrefix(suffix, "-"), rest, head)
			require.True(t, mayLimit(head+suffix), head+suffix)
		}
	}
	for field, want := range map[string]meaning{
		"X-Ratelimit-Limit":                  {partLimit, custom},
		"X-Rate-Limit":                       {partLimit, custom},
		"X-Rate-Limit-Limit":                 {partLimit, custom},
		"X-Ratelimit-Reset-After":            {partReset, custom},
		"X-Ratelimit-Resource":               {part: partBucket},
		"X-Ratelimit-Bucket":                 {part: partBucketPerID},
		"X-Ratelimit-Global":                 {part: partGlobal},
		"X-Ratelimit-Scope":                  {part: partGlobal},
		"Ratelimit":                          {partMembers, standard},
		"Ratelimit-Policy":                   {partMembers, standard},
		"Ratelimit-Name":                     {part: partBucket},
		"Ratelimit-Remaining":                {partRemaining, standard},
		"Beta-Ratelimit":                     {part: partPoints},
		"Anthropic-Ratelimit-Requests-Limit": {partLimit, "Requests"},
		"X-App-Limit-24hour-Reset":           {partReset, "app-24hour"},
		"X-User-Limit-24hour-Limit":          {partLimit, "user-24hour"},
		"X-Hubspot-Ratelimit-Daily":          {partLimit, "daily"},
		"X-Hubspot-Ratelimit-Max":            {partLimit, custom},
		"Zendesk-Ratelimit-Tickets":          {partEndpoint, "Tickets"},
		"X-Shopify-Shop-Api-Call-Limit":      {partUsage, custom},
		"X-Amzn-Ratelimit-Limit":             {partLimit, "X-Amzn"},
		"X-Amzn-Trace-Id":                    {},
	} {
		require.Equal(t, want, meaningOf(field), field)
	}
}
