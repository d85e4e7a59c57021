package ratelimitheader

import (
	"math"
	"strings"
	"testing"
	"time"
)

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
