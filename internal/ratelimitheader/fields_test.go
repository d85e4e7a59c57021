package ratelimitheader

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestGitHub(t *testing.T) {
	run(t, []test{
		{
			name: "core",
			header: header("Date", date, "X-GitHub-Media-Type", "github.v3; format=json",
				"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4966", "X-RateLimit-Used", "34",
				"X-RateLimit-Reset", "1705318200", "X-RateLimit-Resource", "core"),
			want: State{Bucket: "core", Dimensions: []Dimension{{Limit: 5000, Remaining: 4966, Reset: time.Hour, Instant: at(time.Hour)}}},
		},
		{
			name: "reset in the second of the response",
			header: header("Date", date, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", fmt.Sprint(epoch), "X-RateLimit-Resource", "core"),
			want: State{Bucket: "core", Exhausted: true},
		},
		{
			name: "no Date: the client's clock",
			header: header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59",
				"X-RateLimit-Reset", "1705318230"),
			want: dimensions(Dimension{Limit: 60, Remaining: 59, Reset: 30 * time.Second, Instant: at(time.Hour + 30*time.Second)}),
		},
		{"secondary limit: a bucket and no quota", header("Date", date, "Retry-After", "60", "X-RateLimit-Resource", "core"),
			State{Bucket: "core"}},
	})
}

func TestGitLab(t *testing.T) {
	run(t, []test{
		{
			name: "documented example",
			header: header("Date", "Tue, 05 Jan 2021 10:59:30 GMT", "RateLimit-Limit", "60",
				"RateLimit-Name", "throttle_authenticated_web", "RateLimit-Observed", "67", "RateLimit-Remaining", "0",
				"RateLimit-Reset", "1609844400", "RateLimit-ResetTime", "Tue, 05 Jan 2021 11:00:00 GMT", "Retry-After", "30"),
			want: State{Bucket: "throttle_authenticated_web", Dimensions: []Dimension{{
				Limit: 60, Reset: 30 * time.Second, Instant: time.Unix(1609844400, 0).UTC(),
			}}},
		},
		{
			name: "ResetTime alone",
			header: header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3",
				"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"),
			want: dimensions(Dimension{Limit: 60, Remaining: 3, Reset: time.Minute, Instant: at(time.Minute)}),
		},
		{
			name: "another ResetTime: Reset counts",
			header: header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3", "RateLimit-Reset", "1705314630",
				"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"),
			want: dimensions(Dimension{Limit: 60, Remaining: 3, Reset: 30 * time.Second, Instant: at(30 * time.Second)}),
		},
		{
			name: "ResetTime where Reset is malformed",
			header: header("Date", date, "RateLimit-Limit", "60", "RateLimit-Remaining", "3", "RateLimit-Reset", "?",
				"RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT"),
			want: dimensions(Dimension{Limit: 60, Remaining: 3, Reset: time.Minute, Instant: at(time.Minute)}),
		},
	})
}

func TestXAndOkta(t *testing.T) {
	run(t, []test{
		{
			name: "X",
			header: header("date", date, "x-rate-limit-limit", "900", "x-rate-limit-remaining", "847",
				"x-rate-limit-reset", "1705315500"),
			want: dimensions(Dimension{Limit: 900, Remaining: 847, Reset: 15 * time.Minute, Instant: at(15 * time.Minute)}),
		},
		{
			name: "Okta, too many requests in flight: no quota",
			header: header("Date", date, "X-Rate-Limit-Limit", "0", "X-Rate-Limit-Remaining", "0",
				"X-Rate-Limit-Reset", "1705314601"),
		},
	})
}

func TestOpenAI(t *testing.T) {
	run(t, []test{
		{
			name: "documented example",
			header: header("Date", date, "x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000",
				"x-ratelimit-remaining-requests", "59", "x-ratelimit-remaining-tokens", "149984",
				"x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s"),
			want: dimensions(
				Dimension{Name: "requests", Limit: 60, Remaining: 59, Reset: time.Second},
				Dimension{Name: "tokens", Limit: 150000, Remaining: 149984, Reset: 6 * time.Minute, Costed: true},
			),
		},
		{
			name: "milliseconds, and hours",
			header: header("x-ratelimit-remaining-requests", "4999", "x-ratelimit-reset-requests", "12ms",
				"x-ratelimit-remaining-tokens", "7", "x-ratelimit-reset-tokens", "1h2m"),
			want: dimensions(
				Dimension{Name: "requests", Remaining: 4999, Reset: 12 * time.Millisecond},
				Dimension{Name: "tokens", Remaining: 7, Reset: 62 * time.Minute, Costed: true},
			),
		},
		{
			name: "one dimension without a reset is dropped",
			header: header("x-ratelimit-remaining-requests", "4999", "x-ratelimit-reset-requests", "12ms",
				"x-ratelimit-remaining-tokens", "0"),
			want: State{Exhausted: true, Dimensions: []Dimension{{Name: "requests", Remaining: 4999, Reset: 12 * time.Millisecond}}},
		},
		{
			name: "Groq: fractions",
			header: header("x-ratelimit-limit-requests", "14400", "x-ratelimit-limit-tokens", "18000",
				"x-ratelimit-remaining-requests", "14370", "x-ratelimit-remaining-tokens", "17997",
				"x-ratelimit-reset-requests", "2m59.56s", "x-ratelimit-reset-tokens", "7.66s"),
			want: dimensions(
				Dimension{Name: "requests", Limit: 14400, Remaining: 14370, Reset: 179560 * time.Millisecond},
				Dimension{Name: "tokens", Limit: 18000, Remaining: 17997, Reset: 7660 * time.Millisecond, Costed: true},
			),
		},
		{
			name: "Cerebras: by window, in float seconds",
			header: header("x-ratelimit-limit-requests-day", "1000000000", "x-ratelimit-limit-tokens-minute", "1000000000",
				"x-ratelimit-remaining-requests-day", "999997455", "x-ratelimit-remaining-tokens-minute", "999998298",
				"x-ratelimit-reset-requests-day", "33011.382867097855", "x-ratelimit-reset-tokens-minute", "11.382867097854614"),
			want: dimensions(
				Dimension{Name: "requests-day", Limit: 1e9, Remaining: 999997455, Reset: 33011382867097},
				Dimension{Name: "tokens-minute", Limit: 1e9, Remaining: 999998298, Reset: 11382867097, Costed: true},
			),
		},
		{
			name: "RapidAPI: a plan's quota beside the API's",
			header: header("x-ratelimit-requests-limit", "500", "x-ratelimit-requests-remaining", "499", "x-ratelimit-requests-reset", "2591999",
				"x-ratelimit-limit", "60", "x-ratelimit-remaining", "59", "x-ratelimit-reset", "30"),
			want: dimensions(
				Dimension{Limit: 60, Remaining: 59, Reset: 30 * time.Second},
				Dimension{Name: "requests", Limit: 500, Remaining: 499, Reset: 2591999 * time.Second},
			),
		},
		{
			name: "name of the dimension before the part",
			header: header("Date", date, "x-ratelimit-minute-limit", "5", "x-ratelimit-minute-remaining", "4",
				"x-ratelimit-minute-reset", "1705314660", "x-ratelimit-day-limit", "100", "x-ratelimit-day-remaining", "99",
				"x-ratelimit-day-reset", "1705363200"),
			want: dimensions(
				Dimension{Name: "day", Limit: 100, Remaining: 99, Reset: 13*time.Hour + 30*time.Minute, Instant: at(13*time.Hour + 30*time.Minute)},
				Dimension{Name: "minute", Limit: 5, Remaining: 4, Reset: time.Minute, Instant: at(time.Minute)},
			),
		},
	})
}

func TestAzureOpenAI(t *testing.T) {
	run(t, []test{
		{
			name: "whole seconds",
			header: header("Date", date, "x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "9",
				"x-ratelimit-reset-requests", "6", "x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "0",
				"x-ratelimit-reset-tokens", "55"),
			want: dimensions(
				Dimension{Name: "requests", Limit: 10, Remaining: 9, Reset: 6 * time.Second},
				Dimension{Name: "tokens", Limit: 1000, Reset: 55 * time.Second, Costed: true},
			),
		},
		{
			name: "-1 and 0 are unknown",
			header: header("x-ratelimit-limit-tokens", "-1", "x-ratelimit-remaining-tokens", "-1",
				"x-ratelimit-reset-tokens", "0"),
		},
		{
			name: "limit -1 beside a known rest",
			header: header("x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests", "79",
				"x-ratelimit-reset-requests", "1"),
			want: dimensions(Dimension{Name: "requests", Remaining: 79, Reset: time.Second}),
		},
		{"a unit overrules the usual name", header("Anthropic-Ratelimit-Requests-Limit", "9", "Ratelimit", `"Requests";r=1;t=3;qu="tokens"`),
			dimensions(Dimension{Name: "requests", Limit: 9, Remaining: 1, Reset: 3 * time.Second, Costed: true})},
		{
			name: "both spellings of a dimension are one",
			header: header("x-ratelimit-remaining-tokens", "5", "x-rate-limit-remaining-tokens", "6",
				"x-ratelimit-reset-tokens", "1"),
			want: dimensions(Dimension{Name: "tokens", Remaining: 5, Reset: time.Second, Costed: true}),
		},
	})
}

func TestAnthropic(t *testing.T) {
	run(t, []test{
		{
			name: "four dimensions",
			header: header("Date", date,
				"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
				"anthropic-ratelimit-requests-reset", "2024-01-15T10:30:01Z",
				"anthropic-ratelimit-tokens-limit", "50000", "anthropic-ratelimit-tokens-remaining", "49000",
				"anthropic-ratelimit-tokens-reset", "2024-01-15T10:30:02Z",
				"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "0",
				"anthropic-ratelimit-input-tokens-reset", "2024-01-15T10:31:00Z",
				"anthropic-ratelimit-output-tokens-limit", "8000", "anthropic-ratelimit-output-tokens-remaining", "8000",
				"anthropic-ratelimit-output-tokens-reset", "2024-01-15T10:30:00Z"),
			want: dimensions(
				Dimension{Name: "input-tokens", Limit: 40000, Reset: time.Minute, Instant: at(time.Minute), Costed: true},
				// The output tokens are at their limit: their reset is now, so the dimension is dropped.
				Dimension{Name: "requests", Limit: 50, Remaining: 49, Reset: time.Second, Instant: at(time.Second)},
				Dimension{Name: "tokens", Limit: 50000, Remaining: 49000, Reset: 2 * time.Second, Instant: at(2 * time.Second), Costed: true},
			),
		},
		{
			name: "unified fields tell no count",
			header: header("Date", date, "anthropic-ratelimit-unified-status", "allowed",
				"anthropic-ratelimit-unified-5h-reset", "1705318200", "anthropic-ratelimit-unified-5h-utilization", "0.2"),
		},
		{
			name: "priority tier is no gate",
			header: header("Date", date, "anthropic-priority-input-tokens-limit", "100",
				"anthropic-priority-input-tokens-remaining", "0", "anthropic-priority-input-tokens-reset", "2024-01-15T10:31:00Z"),
		},
	})
}

func TestDiscord(t *testing.T) {
	run(t, []test{
		{
			name: "Reset-After wins over Reset",
			header: header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", "1705314602.871", "X-RateLimit-Reset-After", "1.371", "X-RateLimit-Bucket", "abcd1234"),
			want: State{Bucket: "abcd1234", Dimensions: []Dimension{{Limit: 5, Reset: 1371 * time.Millisecond}}},
		},
		{
			name: "malformed Reset-After falls back",
			header: header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
				"X-RateLimit-Reset", "1705314602", "X-RateLimit-Reset-After", "-0.1"),
			want: dimensions(Dimension{Limit: 5, Remaining: 1, Reset: 2 * time.Second, Instant: at(2 * time.Second)}),
		},
		{
			name: "zero Reset-After wins too",
			header: header("Date", date, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
				"X-RateLimit-Reset", "1705314602", "X-RateLimit-Reset-After", "0.000"),
		},
		{
			name: "shared: the resource's limit, in the bucket",
			header: header("Date", date, "Retry-After", "1337", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9",
				"X-RateLimit-Reset", "1705314664.57", "X-RateLimit-Reset-After", "64.57", "X-RateLimit-Bucket", "abcd1234",
				"X-RateLimit-Scope", "shared"),
			want: State{Bucket: "abcd1234", Dimensions: []Dimension{{Limit: 10, Remaining: 9, Reset: 64570 * time.Millisecond}}},
		},
		{
			name: "global, with a quota",
			header: header("Date", date, "X-RateLimit-Global", "True", "X-RateLimit-Bucket", "abcd1234",
				"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "0.5"),
			want: State{Global: true, Dimensions: []Dimension{{Limit: 50, Reset: 500 * time.Millisecond}}},
		},
		{"global by scope alone", header("X-RateLimit-Scope", "global", "X-RateLimit-Bucket", "abcd1234"), State{Global: true}},
		{"not global", header("X-RateLimit-Global", "false", "X-RateLimit-Bucket", "abcd1234"), State{Bucket: "abcd1234"}},
	})
}

func TestReddit(t *testing.T) {
	run(t, []test{
		{"floats", header("X-Ratelimit-Used", "4", "X-Ratelimit-Remaining", "995.0", "X-Ratelimit-Reset", "542"),
			dimensions(Dimension{Limit: 999, Remaining: 995, Reset: 542 * time.Second})},
		{"absurd sum of used and remaining", header("X-Ratelimit-Used", "9223372036854775807", "X-Ratelimit-Remaining", "9223372036854775807", "X-Ratelimit-Reset", "1"),
			dimensions(Dimension{Limit: math.MaxInt64, Remaining: math.MaxInt64, Reset: time.Second})},
	})
}

func TestZendesk(t *testing.T) {
	run(t, []test{
		{
			name: "documented example: one quota in two spellings",
			header: header("Date", date, "x-rate-limit", "700", "ratelimit-limit", "700", "x-rate-limit-remaining", "699",
				"ratelimit-remaining", "699", "ratelimit-reset", "41",
				"zendesk-ratelimit-tickets-index", "total=100; remaining=99; resets=41"),
			want: State{Bucket: "tickets-index", Dimensions: []Dimension{
				{Limit: 700, Remaining: 699, Reset: 41 * time.Second},
				{Name: "tickets-index", Limit: 100, Remaining: 99, Reset: 41 * time.Second},
			}},
		},
		{"an endpoint with malformed parts", header("Zendesk-RateLimit-Search", "total=; remaining=-1; resets=soon; ; ="),
			State{Bucket: "search"}},
		{"half in each spelling", header("X-Rate-Limit", "700", "X-Rate-Limit-Remaining", "0", "ratelimit-reset", "41"),
			dimensions(Dimension{Limit: 700, Reset: 41 * time.Second})},
	})
}

func TestShopify(t *testing.T) {
	run(t, []test{
		{"used and limit", header("X-Shopify-Shop-Api-Call-Limit", "32/40"),
			dimensions(Dimension{Limit: 40, Remaining: 8, Reset: 16 * time.Second})},
		{"one used", header("X-Shopify-Shop-Api-Call-Limit", "1/40"),
			dimensions(Dimension{Limit: 40, Remaining: 39, Reset: 500 * time.Millisecond})},
		{"overfull", header("X-Shopify-Shop-Api-Call-Limit", "41/40"), dimensions(Dimension{Limit: 40, Reset: 20500 * time.Millisecond})},
		{"nothing used", header("X-Shopify-Shop-Api-Call-Limit", "0/40"), State{}},
		{"no slash", header("X-Shopify-Shop-Api-Call-Limit", "32"), State{}},
		{"no limit", header("X-Shopify-Shop-Api-Call-Limit", "32/"), State{}},
		{"no usage", header("X-Shopify-Shop-Api-Call-Limit", "/40"), State{}},
		{"limit zero", header("X-Shopify-Shop-Api-Call-Limit", "0/0"), State{}},
		{"negative", header("X-Shopify-Shop-Api-Call-Limit", "-1/40"), State{}},
		{"absurd usage", header("X-Shopify-Shop-Api-Call-Limit", "99999999999999999999/40"),
			dimensions(Dimension{Limit: 40, Reset: MaxReset})},
		{
			name:   "beside another quota",
			header: header("X-Shopify-Shop-Api-Call-Limit", "32/40", "RateLimit-Remaining", "7", "RateLimit-Reset", "5"),
			want: dimensions(
				Dimension{Limit: 40, Remaining: 8, Reset: 16 * time.Second},
				Dimension{Name: "ratelimit", Remaining: 7, Reset: 5 * time.Second},
			),
		},
	})
}

func TestHubSpot(t *testing.T) {
	run(t, []test{
		{
			name: "an interval, and a day without a reset",
			header: header("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "97", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000",
				"X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "249000"),
			want: dimensions(Dimension{Limit: 100, Remaining: 97, Reset: 10 * time.Second, Window: 10 * time.Second}),
		},
		{"the day is used up", header("X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "0"), State{Exhausted: true}},
		{"0 a day: no quota", header("X-HubSpot-RateLimit-Daily", "0", "X-HubSpot-RateLimit-Daily-Remaining", "0"), State{}},
		{"no interval", header("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "97"), State{}},
	})
}

func TestX_24hours(t *testing.T) {
	run(t, []test{{
		name: "the app's and the user's",
		header: header("Date", date, "x-rate-limit-limit", "300", "x-rate-limit-remaining", "299", "x-rate-limit-reset", "1705318200",
			"x-app-limit-24hour-limit", "10000", "x-app-limit-24hour-remaining", "9999", "x-app-limit-24hour-reset", "1705318200",
			"x-user-limit-24hour-limit", "100", "x-user-limit-24hour-remaining", "0", "x-user-limit-24hour-reset", "1705318200"),
		want: dimensions(
			Dimension{Limit: 300, Remaining: 299, Reset: time.Hour, Instant: at(time.Hour)},
			Dimension{Name: "app-24hour", Limit: 10000, Remaining: 9999, Reset: time.Hour, Instant: at(time.Hour)},
			Dimension{Name: "user-24hour", Limit: 100, Reset: time.Hour, Instant: at(time.Hour)},
		),
	}})
}

func TestAtlassian(t *testing.T) {
	run(t, []test{
		{"a reset without seconds", header("Date", date, "X-RateLimit-Limit", "350", "X-RateLimit-Remaining", "349", "X-RateLimit-Reset", "2024-01-15T11:30Z"),
			dimensions(Dimension{Limit: 350, Remaining: 349, Reset: time.Hour, Instant: at(time.Hour)})},
		{"points", header("Beta-RateLimit", `"global-app-quota";r=1000;t=600`, "Beta-RateLimit-Policy", `"global-app-quota";q=65000;w=3600`),
			dimensions(Dimension{Name: "global-app-quota", Limit: 65000, Remaining: 1000, Reset: 10 * time.Minute, Window: time.Hour, Costed: true})},
	})
}

func TestCloudflare(t *testing.T) {
	run(t, []test{
		{"the single names differ", header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"burst";q=100;w=60`),
			dimensions(Dimension{Name: "default", Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute})},
		{
			name:   "two names that differ",
			header: header("RateLimit", `"a";r=50;t=30, "b";r=5;t=3`, "RateLimit-Policy", `"c";q=100;w=60`),
			want: dimensions(
				Dimension{Name: "a", Remaining: 50, Reset: 30 * time.Second},
				Dimension{Name: "b", Remaining: 5, Reset: 3 * time.Second},
			),
		},
	})
}

func TestIETFCurrentDraft(t *testing.T) {
	run(t, []test{
		{"one policy", header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=30`),
			dimensions(Dimension{Name: "p", Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute})},
		{"a malformed member leaves the others of its line", header("RateLimit", `"daily";r=3;t=3600, 5 6;r=1;t=1, (a b);r=1;t=1, @1;r=1;t=1, "burst`),
			dimensions(Dimension{Name: "daily", Remaining: 3, Reset: time.Hour})},
		{"commas, semicolons and escapes inside a name", header("RateLimit-Policy", `"a,b;c\"d\\e";q=9;w=1`, "RateLimit", `"a,b;c\"d\\e";r=1;t=2`),
			dimensions(Dimension{Name: `a,b;c"d\e`, Limit: 9, Remaining: 1, Reset: 2 * time.Second, Window: time.Second})},
		{"a token for a name", header("RateLimit-Policy", `default;q=9;w=1`, "RateLimit", `default;r=1;t=2`),
			dimensions(Dimension{Name: "default", Limit: 9, Remaining: 1, Reset: 2 * time.Second, Window: time.Second})},
		{
			name: "unknown parameters of every type, blanks, another order",
			header: header("RateLimit", `"p"; acme-x=tok; t=30; f; g=?0; d=@1659578233; s=%"f%c3%bc"; u="x;r=1"; b=:aGk=:; n=-1.5;  r=50`,
				"RateLimit-Policy", `"p";acme;w=60;comment="fixed window";q=100`),
			want: dimensions(Dimension{Name: "p", Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute}),
		},
		{"the last of a repeated parameter counts", header("RateLimit", `"p";r=1;t=5;r=2`),
			dimensions(Dimension{Name: "p", Remaining: 2, Reset: 5 * time.Second})},
		{"no t: nothing to wait for", header("RateLimit", `"default";r=999`), State{}},
		{"t is zero", header("RateLimit", `"default";r=9;t=0`), State{}},
		{"t is negative", header("RateLimit", `"default";r=9;t=-5`), State{}},
		{"no r", header("RateLimit", `"default";t=5`), State{}},
		{"r is negative", header("RateLimit", `"default";r=-1;t=5`), State{}},
		{"no name", header("RateLimit", `;r=1;t=5`), State{}},
		{"commas without a member", header("RateLimit", `,"p";r=1;t=5,`),
			dimensions(Dimension{Name: "p", Remaining: 1, Reset: 5 * time.Second})},
		{"blank before the semicolon", header("RateLimit", `"p" ;r=1;t=5`), State{}},
		{"policy alone", header("RateLimit-Policy", `"p";q=100;w=60`), State{}},
		{
			name:   "huge values",
			header: header("RateLimit", `"p";r=99999999999999999999;t=99999999999999999999`, "RateLimit-Policy", `"p";q=99999999999999999999;w=99999999999999999999`, "Date", date),
			want: dimensions(Dimension{
				Name: "p", Limit: math.MaxInt64, Remaining: math.MaxInt64, Reset: MaxReset, Instant: at(MaxReset), Window: MaxReset,
			}),
		},
		{"policy of window zero", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p";q=5;w=0`),
			dimensions(Dimension{Name: "p", Limit: 5, Remaining: 1, Reset: 3 * time.Second})},
		{"malformed policies", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p";q=5;w`, "RateLimit-Policy", `"p";q=`),
			dimensions(Dimension{Name: "p", Limit: 5, Remaining: 1, Reset: 3 * time.Second})},
		{"policy without a quota or a window is none", header("RateLimit", `"p";r=1;t=3`, "RateLimit-Policy", `"p", "p";q=7;w=9, ?1`),
			dimensions(Dimension{Name: "p", Limit: 7, Remaining: 1, Reset: 3 * time.Second, Window: 9 * time.Second})},
		{
			name: "quota units",
			header: header("RateLimit", `"a";r=1;t=1, "b";r=2;t=1, "c";r=3;t=1, "tokens";r=4;t=1, "d tokens";r=5;t=1, "endpoint";r=6;t=1`,
				"RateLimit-Policy", `"a";q=9;qu="content-bytes", "b";q=9;qu="requests", "c";q=9;qu="concurrent-requests", "tokens";q=9;qu="request"`),
			want: dimensions(
				Dimension{Name: "a", Limit: 9, Remaining: 1, Reset: time.Second, Costed: true},
				Dimension{Name: "b", Limit: 9, Remaining: 2, Reset: time.Second},
				Dimension{Name: "c", Limit: 9, Remaining: 3, Reset: time.Second, Costed: true},
				Dimension{Name: "tokens", Limit: 9, Remaining: 4, Reset: time.Second},
				Dimension{Name: "d tokens", Remaining: 5, Reset: time.Second, Costed: true},
				Dimension{Name: "endpoint", Remaining: 6, Reset: time.Second},
			),
		},
		{
			name:   "two partition keys: both name the bucket",
			header: header("RateLimit", `"a";r=3;t=60;pk=:YQ==:, "b";r=4;t=60;pk=:Yg==:`),
			want: State{Bucket: "YQ==,Yg==", Dimensions: []Dimension{
				{Name: "a", Remaining: 3, Reset: time.Minute},
				{Name: "b", Remaining: 4, Reset: time.Minute},
			}},
		},
		{"one policy twice: the last", header("RateLimit", `"a";r=3;t=60, "a";r=2;t=61`),
			dimensions(Dimension{Name: "a", Remaining: 2, Reset: 61 * time.Second})},
		{"partition key too long for a bucket", header("RateLimit", `"a";r=3;t=60;pk=:`+strings.Repeat("a", MaxName+1)+`:`),
			dimensions(Dimension{Name: "a", Remaining: 3, Reset: time.Minute})},
		{"the bucket by name comes before the partition key", header("RateLimit", `"a";r=3;t=60;pk=:YQ==:`, "X-RateLimit-Resource", "core"),
			State{Bucket: "core", Dimensions: []Dimension{{Name: "a", Remaining: 3, Reset: time.Minute}}}},
		{"the longest name, and one that is too long", header("RateLimit", `"`+strings.Repeat("a", MaxName)+`";r=3;t=60, "`+strings.Repeat("a", MaxName)+`c";r=2;t=60`),
			dimensions(Dimension{Name: strings.Repeat("a", MaxName), Remaining: 3, Reset: time.Minute})},
		{"line too long", header("RateLimit", `"p";r=1;t=2;x="`+strings.Repeat("a", maxLine)+`"`, "RateLimit-Policy", `"p";q=1;x="`+strings.Repeat("a", maxLine)+`"`),
			State{}},
		{
			name: "old fields beside it say the same",
			header: header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=30`, "Date", date,
				"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631"),
			want: dimensions(Dimension{Name: "p", Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute}),
		},
		{
			name: "old fields beside it complete the limit",
			header: header("RateLimit", `"p";r=50;t=30`, "Date", date,
				"X-RateLimit-Limit", "100, 100;w=60", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631"),
			want: dimensions(Dimension{Name: "p", Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute}),
		},
	})
}

// The draft's open change: a for r, w for t in RateLimit, and c, the cost of the request.
func TestIETFOpenChange(t *testing.T) {
	run(t, []test{
		{"one policy", header("RateLimit-Policy", `"burst";q=100;w=60`, "RateLimit", `"burst";a=80;w=45`),
			dimensions(Dimension{Name: "burst", Limit: 100, Remaining: 80, Reset: 45 * time.Second, Window: time.Minute})},
		{
			name: "several policies and a partition key",
			header: header("RateLimit-Policy", `"burst";q=100;w=60, "daily";q=1000;w=86400`,
				"RateLimit", `"burst";a=0;w=40;pk=:YQ==:, "daily";a=3;w=3600;pk=:YQ==:`),
			want: State{Bucket: "YQ==", Exhausted: true, Dimensions: []Dimension{
				{Name: "burst", Limit: 100, Reset: 40 * time.Second, Window: time.Minute},
				{Name: "daily", Limit: 1000, Remaining: 3, Reset: time.Hour, Window: 24 * time.Hour},
			}},
		},
		{
			name:   "one policy in each draft's letters",
			header: header("RateLimit", `"old";r=9;t=4, "new";a=8;w=5`),
			want: dimensions(
				Dimension{Name: "old", Remaining: 9, Reset: 4 * time.Second},
				Dimension{Name: "new", Remaining: 8, Reset: 5 * time.Second},
			),
		},
		{"letters of both: t is the reset, and w the window", header("RateLimit", `"p";a=9;t=4;w=60`),
			dimensions(Dimension{Name: "p", Remaining: 9, Reset: 4 * time.Second, Window: time.Minute})},
		{"the window of a policy is no reset", header("RateLimit", `"p";a=9`, "RateLimit-Policy", `"p";q=100;w=60`), State{}},
		{"w is zero: nothing to wait for", header("RateLimit", `"p";a=9;w=0`), State{}},
		{"a cost of several units: requests in flight cannot be counted", header("RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";a=80;w=45;c=5`),
			dimensions(Dimension{Name: "p", Limit: 100, Remaining: 80, Reset: 45 * time.Second, Window: time.Minute, Costed: true})},
		{"a cost of one", header("RateLimit", `"p";a=80;w=45;c=1`),
			dimensions(Dimension{Name: "p", Remaining: 80, Reset: 45 * time.Second})},
	})
}

func TestIETFOldDrafts(t *testing.T) {
	run(t, []test{
		{"-07: dictionary", header("RateLimit", "limit=100, remaining=50, reset=30"),
			dimensions(Dimension{Limit: 100, Remaining: 50, Reset: 30 * time.Second})},
		{"-07: the policy of the limit, among several", header("RateLimit", "limit=1000, remaining=50, reset=5", "RateLimit-Policy", `10;w=1, 50;w=60, 1000;w=3600;comment="x", 5000;w=86400`),
			dimensions(Dimension{Limit: 1000, Remaining: 50, Reset: 5 * time.Second, Window: time.Hour})},
		{"-07: no policy of the limit, among several", header("RateLimit", "limit=99, remaining=50, reset=5", "RateLimit-Policy", "10;w=1, 50;w=60"),
			dimensions(Dimension{Limit: 99, Remaining: 50, Reset: 5 * time.Second})},
		{"-07: a limit lowered below the only policy", header("RateLimit", "limit=20, remaining=9, reset=50", "RateLimit-Policy", "100;w=60"),
			dimensions(Dimension{Limit: 20, Remaining: 9, Reset: 50 * time.Second, Window: time.Minute})},
		{"-07: the limit from the only policy", header("RateLimit", "remaining=9, reset=50", "RateLimit-Policy", "100;w=60"),
			dimensions(Dimension{Limit: 100, Remaining: 9, Reset: 50 * time.Second, Window: time.Minute})},
		{"-07: parameters, flags and unknown keys", header("RateLimit", "limit=100;x=1, remaining=50;y, reset=30, acme, acme2;p=1"),
			dimensions(Dimension{Limit: 100, Remaining: 50, Reset: 30 * time.Second})},
		{"-07: remaining is optional", header("RateLimit", "limit=10, reset=1"), State{}},
		{"-07: no reset", header("RateLimit", "limit=10, remaining=1"), State{}},
		{"-07: other keys", header("RateLimit", "limits=10, left=1, until=1"), State{}},
		{"three fields", header("RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "30"),
			dimensions(Dimension{Limit: 100, Remaining: 50, Reset: 30 * time.Second})},
		{"three fields, a policy in the limit", header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50", "RateLimit-Reset", "30"),
			dimensions(Dimension{Limit: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute})},
		{"three fields and a policy", header("RateLimit-Limit", "10", "RateLimit-Remaining", "1", "RateLimit-Reset", "7", "RateLimit-Policy", `10;w=10;burst=1000, 1000;w=3600`),
			dimensions(Dimension{Limit: 10, Remaining: 1, Reset: 7 * time.Second, Window: 10 * time.Second})},
		{"three fields complete the dictionary", header("RateLimit", "limit=10, reset=7", "RateLimit-Remaining", "1"),
			dimensions(Dimension{Limit: 10, Remaining: 1, Reset: 7 * time.Second})},
		{"the three fields come before the dictionary", header("RateLimit", "limit=10, remaining=2, reset=7", "RateLimit-Limit", "9", "RateLimit-Remaining", "1", "RateLimit-Reset", "5"),
			dimensions(Dimension{Limit: 9, Remaining: 1, Reset: 5 * time.Second})},
		{"Envoy: policies in X-RateLimit-Limit", header("x-ratelimit-limit", `10, 10;w=1;name="foo", 1000;w=60`, "x-ratelimit-remaining", "9", "x-ratelimit-reset", "1"),
			dimensions(Dimension{Limit: 10, Remaining: 9, Reset: time.Second, Window: time.Second})},
		{"WHOOP: window spelt out", header("X-RateLimit-Limit", "100, 100;window=60, 10000;window=86400", "X-RateLimit-Remaining", "98", "X-RateLimit-Reset", "3"),
			dimensions(Dimension{Limit: 100, Remaining: 98, Reset: 3 * time.Second, Window: time.Minute})},
		{"Docker Hub: no reset", header("ratelimit-limit", "100;w=21600", "ratelimit-remaining", "76;w=21600"), State{}},
		{
			name: "express-rate-limit: old and standard fields of one quota",
			header: header("Date", date, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "1705314631",
				"RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "30", "RateLimit-Policy", "100;w=60"),
			want: dimensions(Dimension{Limit: 100, Remaining: 50, Reset: 31 * time.Second, Instant: at(31 * time.Second), Window: time.Minute}),
		},
		{
			name: "a gateway's quota beside the service's",
			header: header("Date", date, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1705318200",
				"RateLimit-Limit", "10", "RateLimit-Remaining", "9", "RateLimit-Reset", "1"),
			want: dimensions(
				Dimension{Limit: 5000, Remaining: 4999, Reset: time.Hour, Instant: at(time.Hour)},
				Dimension{Name: "ratelimit", Limit: 10, Remaining: 9, Reset: time.Second},
			),
		},
		{
			name: "Kong: windows without resets, beside the standard fields",
			header: header("X-RateLimit-Limit-Minute", "10", "X-RateLimit-Remaining-Minute", "9",
				"RateLimit-Limit", "10", "RateLimit-Remaining", "9", "RateLimit-Reset", "47"),
			want: dimensions(Dimension{Limit: 10, Remaining: 9, Reset: 47 * time.Second}),
		},
	})
}
