package faulttest_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// written is the time of a response, 300 ms after a whole second.
var written = time.Date(2024, time.January, 15, 10, 30, 0, 300e6, time.FixedZone("", 3600))

// Each dialect has the fields that its API documents, and this module's parser understands them.
func TestRateLimit_dialects(t *testing.T) {
	t.Parallel()
	const epoch = "1705311002" // written plus 1.5 s, rounded up
	for _, row := range []struct {
		dialect faulttest.Dialect
		want    string        // the fields
		quota   string        // its name
		reset   time.Duration // with a Date without fractions; 0: 2 s
		bucket  string
		window  time.Duration
	}{
		{dialect: faulttest.IETF, quota: "default", window: time.Minute,
			want: `Ratelimit: "default";r=20;t=2, Ratelimit-Policy: "default";q=60;w=60`},
		{dialect: faulttest.IETF07, want: "Ratelimit: limit=60, remaining=20, reset=2"},
		{dialect: faulttest.IETF06, want: "Ratelimit-Limit: 60, Ratelimit-Remaining: 20, Ratelimit-Reset: 2"},
		{dialect: faulttest.GitHub, bucket: "core",
			want: "X-Ratelimit-Limit: 60, X-Ratelimit-Remaining: 20, X-Ratelimit-Reset: " + epoch + ", X-Ratelimit-Resource: core, X-Ratelimit-Used: 40"},
		{dialect: faulttest.GitLab, bucket: "throttle_authenticated_api",
			want: "Ratelimit-Limit: 60, Ratelimit-Name: throttle_authenticated_api, Ratelimit-Observed: 40, Ratelimit-Remaining: 20, Ratelimit-Reset: " + epoch + ", Ratelimit-Resettime: Mon, 15 Jan 2024 09:30:02 GMT"},
		{dialect: faulttest.Okta, want: "X-Rate-Limit-Limit: 60, X-Rate-Limit-Remaining: 20, X-Rate-Limit-Reset: " + epoch},
		{dialect: faulttest.OpenAI, quota: "requests", reset: 1500 * time.Millisecond,
			want: "X-Ratelimit-Limit-Requests: 60, X-Ratelimit-Remaining-Requests: 20, X-Ratelimit-Reset-Requests: 1.5s"},
		{dialect: faulttest.AzureOpenAI, quota: "requests",
			want: "X-Ratelimit-Limit-Requests: 60, X-Ratelimit-Limit-Tokens: -1, X-Ratelimit-Remaining-Requests: 20, X-Ratelimit-Remaining-Tokens: -1, " +
				"X-Ratelimit-Reset-Requests: 2, X-Ratelimit-Reset-Tokens: 0"},
		{dialect: faulttest.Anthropic, quota: "requests",
			want: "Anthropic-Ratelimit-Requests-Limit: 60, Anthropic-Ratelimit-Requests-Remaining: 20, Anthropic-Ratelimit-Requests-Reset: 2024-01-15T09:30:02Z"},
		{dialect: faulttest.Discord, reset: 1500 * time.Millisecond, bucket: "bucket",
			want: "X-Ratelimit-Bucket: bucket, X-Ratelimit-Limit: 60, X-Ratelimit-Remaining: 20, X-Ratelimit-Reset: 1705311001.800, X-Ratelimit-Reset-After: 1.500"},
		{dialect: faulttest.Reddit, want: "X-Ratelimit-Remaining: 20.0, X-Ratelimit-Reset: 2, X-Ratelimit-Used: 40"},
		{dialect: faulttest.Zendesk, want: "Ratelimit-Reset: 2, X-Rate-Limit: 60, X-Rate-Limit-Remaining: 20"},
		{dialect: faulttest.Shopify, want: "X-Shopify-Shop-Api-Call-Limit: 40/60", reset: 40 * time.Second / 3}, // a full bucket takes 20 s
		{dialect: faulttest.NoHeaders, want: ""},
	} {
		t.Run(row.dialect.String(), func(t *testing.T) {
			t.Parallel()
			limit := faulttest.RateLimit{Dialect: row.dialect, Limit: 60, Remaining: 20, Reset: 1500 * time.Millisecond, Window: time.Minute}
			h := limit.Header(written)
			var got []string
			for _, field := range slices.Sorted(maps.Keys(h)) {
				got = append(got, field+": "+h.Get(field))
			}
			assert.Equal(t, row.want, strings.Join(got, ", "))

			h.Set("Date", written.UTC().Format(http.TimeFormat))
			state, ok := ratelimitheader.Parse(h, time.Time{})
			if row.dialect == faulttest.NoHeaders {
				assert.False(t, ok)
				return
			}
			require.True(t, ok)
			require.Len(t, state.Dimensions, 1)
			a := state.Dimensions[0]
			assert.Equal(t, row.quota, a.Name)
			assert.EqualValues(t, 60, a.Limit)
			assert.EqualValues(t, 20, a.Remaining)
			assert.Equal(t, cmp.Or(row.reset, 2*time.Second), a.Reset)
			assert.Equal(t, row.window, a.Window)
			assert.Equal(t, row.bucket, state.Bucket)
		})
	}
	assert.Equal(t, "Dialect(99)", faulttest.Dialect(99).String())
}

func TestReply_severalRateLimits(t *testing.T) {
	t.Parallel()
	for _, d := range []faulttest.Dialect{faulttest.OpenAI, faulttest.AzureOpenAI, faulttest.Anthropic, faulttest.IETF} {
		srv := faulttest.New(t, faulttest.Reply{Status: 429, RateLimits: []faulttest.RateLimit{
			{Dialect: d, Name: "tokens", Limit: 1000, Remaining: 7, Reset: time.Minute},
			{Dialect: d, Name: "requests", Limit: 10, Reset: time.Second},
		}})
		resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
		state, ok := ratelimitheader.Parse(resp.Header, time.Now())
		require.True(t, ok, d)
		require.Len(t, state.Dimensions, 2, d)
		for _, a := range state.Dimensions {
			if a.Name == "tokens" {
				assert.EqualValues(t, 7, a.Remaining, d)
			} else {
				assert.Equal(t, "requests", a.Name, d)
				assert.Zero(t, a.Remaining, d)
			}
		}
	}
}

// The parsed wait is never shorter than the wanted one.
func TestRetryAfterFormats(t *testing.T) {
	for _, row := range []struct {
		name         string
		format       faulttest.RetryAfterFormat
		field, value string
		read         time.Duration
	}{
		{"seconds", faulttest.Seconds, "Retry-After", "3", 3 * time.Second},
		{"fraction", faulttest.Fraction, "Retry-After", "2.500", 2500 * time.Millisecond},
		{"HTTP date", faulttest.HTTPDate, "Retry-After", "Sat, 01 Jan 2000 00:00:03 GMT", 3 * time.Second},
		{"RFC 850 date", faulttest.RFC850Date, "Retry-After", "Saturday, 01-Jan-00 00:00:03 GMT", 3 * time.Second},
		{"ANSI C date", faulttest.ANSICDate, "Retry-After", "Sat Jan  1 00:00:03 2000", 3 * time.Second},
		{"ms", faulttest.Millis, "Retry-After-Ms", "2500", 2500 * time.Millisecond},
		{"ms, Azure's", faulttest.AzureMillis, "X-Ms-Retry-After-Ms", "2500", 2500 * time.Millisecond},
		{"none", faulttest.NoRetryAfter, "Retry-After", "", 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, faulttest.Unavailable(2500*time.Millisecond, row.format))
			resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
			assert.Equal(t, 503, resp.StatusCode)
			assert.Equal(t, row.value, resp.Header.Get(row.field))
			read, ok := retryafter.Parse(resp.Header, time.Time{})
			assert.Equal(t, row.format != faulttest.NoRetryAfter, ok)
			assert.Equal(t, row.read, read)
		})
	}
}

// In a bubble the resets of all dialects are correct. Only responses with epoch resets are two
// years ahead.
func TestReply_resetsInBubble(t *testing.T) {
	for d := range faulttest.Shopify {
		for _, by := range []string{"a reply", "a quota", "a reply after a quota"} {
			bubble.Run(t, d.String()+", "+by, func(t *testing.T) {
				quota := &faulttest.Quota{Limit: 1, Window: time.Hour, Dialect: d, RetryAfterFormat: faulttest.HTTPDate}
				var script http.Handler = faulttest.Throttled(d, time.Hour)
				switch by {
				case "a quota":
					script = quota
				case "a reply after a quota":
					quota.Next = faulttest.Unavailable(time.Hour, faulttest.HTTPDate)
					script = quota
				}
				srv := faulttest.NewInMemory(t, script)
				resp, _, err := send(t, srv.Client(), http.MethodGet, srv.URL, "")
				require.NoError(t, err)
				if by == "a quota" { // the first request has used the quota
					resp, _ = answered(t, srv.Client(), http.MethodGet, srv.URL, "")
					assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				}
				if state, ok := ratelimitheader.Parse(resp.Header, time.Now()); assert.True(t, ok) {
					assert.Equal(t, time.Hour, state.Dimensions[0].Reset)
				}
				if by != "a reply" {
					wait, ok := retryafter.Parse(resp.Header, time.Now())
					assert.True(t, ok)
					assert.Equal(t, time.Hour, wait)
				}
				year := "2000"
				if slices.Contains([]faulttest.Dialect{faulttest.GitHub, faulttest.GitLab, faulttest.Okta, faulttest.Discord}, d) {
					year = "2002"
				}
				assert.Contains(t, resp.Header.Get("Date"), year)
			})
		}
	}
}

func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &faulttest.Server{Script: faulttest.Throttled(faulttest.GitHub, time.Hour), InMemory: true}
		srv.Skew = 30 * 365 * 24 * time.Hour
		srv.Start(t)
		resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
		assert.Equal(t, 429, resp.StatusCode)
		assert.Empty(t, resp.Header.Get("Retry-After"))
		state, ok := ratelimitheader.Parse(resp.Header, time.Now())
		require.True(t, ok)
		assert.True(t, state.Exhausted)
		assert.Equal(t, time.Hour, state.Dimensions[0].Reset, "by the server's clock")
		assert.Equal(t, 2029, state.Dimensions[0].Instant.Year())
	})
}

// In every dialect a client that follows the header uses the whole quota without a rejection.
func TestQuota_advertisesTheTruth(t *testing.T) {
	for d := faulttest.IETF; d <= faulttest.NoHeaders; d++ {
		bubble.Run(t, d.String(), func(t *testing.T) {
			time.Sleep(300 * time.Millisecond) // not a whole second
			const limit, window = 10, 5 * time.Second
			quota := &faulttest.Quota{Limit: limit, Window: window, Dialect: d, RetryAfterFormat: faulttest.Fraction}
			// The clock is long after 2001, so that epoch seconds can be distinguished from seconds.
			srv := &faulttest.Server{Script: quota, InMemory: true}
			srv.Skew = 30*365*24*time.Hour + 700*time.Millisecond
			srv.Start(t)
			begin := time.Now()
			for range 4 {
				for i := range limit {
					resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
					require.Equal(t, 200, resp.StatusCode, "request %d", i)
					require.Empty(t, resp.Header.Get("Retry-After"))
					state, ok := ratelimitheader.Parse(resp.Header, time.Now())
					require.Equal(t, d != faulttest.NoHeaders, ok)
					if !ok {
						continue
					}
					assert.EqualValues(t, limit, state.Dimensions[0].Limit)
					assert.EqualValues(t, limit-1-i, state.Dimensions[0].Remaining)
					assert.Equal(t, i == limit-1, state.Exhausted)
				}
				// One more request is rejected, with the correct wait.
				resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
				require.Equal(t, 429, resp.StatusCode)
				again, ok := retryafter.Parse(resp.Header, time.Now())
				require.True(t, ok)
				reset := window
				if state, ok := ratelimitheader.Parse(resp.Header, time.Now()); ok && d != faulttest.Shopify {
					reset = state.Dimensions[0].Reset
					assert.True(t, state.Exhausted)
					assert.GreaterOrEqual(t, reset, again-time.Millisecond)
					assert.Less(t, reset, again+2*time.Second, "at most 2s too long")
				}
				time.Sleep(again - 2*time.Millisecond)
				assert.Equal(t, 429, status(t, srv, http.MethodGet, "/"))
				time.Sleep(reset - again + 2*time.Millisecond)
				if d == faulttest.Shopify { // the bucket is empty after a window
					time.Sleep(window)
				}
			}
			accepted, rejected := quota.Counts()
			assert.Equal(t, []int{4 * limit, 8}, []int{accepted, rejected})
			assert.Less(t, time.Since(begin), 4*(2*window+2*time.Second))
			assert.Contains(t, srv.Transcript(), "429 over quota")
		})
	}
}

// Windows are fixed and start on a whole second.
func TestQuota_windows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(900 * time.Millisecond)
		srv := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Window: 10 * time.Second, RetryAfterFormat: faulttest.Millis})
		begin := time.Now().Truncate(time.Second)
		for _, row := range []struct {
			at    time.Duration
			want  int
			again string
		}{
			{900 * time.Millisecond, 200, ""},
			{9999 * time.Millisecond, 429, "1"},
			{10 * time.Second, 200, ""},
			{10 * time.Second, 429, "10000"},
			{35 * time.Second, 200, ""},
			{39 * time.Second, 429, "1000"},
			{40 * time.Second, 200, ""},
		} {
			time.Sleep(time.Until(begin.Add(row.at)))
			resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
			assert.Equal(t, row.want, resp.StatusCode, row.at)
			assert.Equal(t, row.again, resp.Header.Get("Retry-After-Ms"), row.at)
		}
	})
}

func TestQuota_defaultsAndOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, new(faulttest.Quota))
		for range 60 {
			assert.Equal(t, 200, status(t, srv, http.MethodGet, "/"))
		}
		assert.Equal(t, 429, status(t, srv, http.MethodGet, "/"))
		time.Sleep(time.Minute)
		assert.Equal(t, 200, status(t, srv, http.MethodGet, "/"))

		for _, d := range []faulttest.Dialect{faulttest.GitHub, faulttest.Shopify} {
			none := faulttest.NewInMemory(t, &faulttest.Quota{Limit: -1, Status: 403, RetryAfterFormat: faulttest.NoRetryAfter, Dialect: d, Name: "x"})
			resp, _ := answered(t, none.Client(), http.MethodGet, none.URL, "")
			assert.Equal(t, 403, resp.StatusCode)
			assert.Empty(t, resp.Header.Get("Retry-After"))
		}

		next := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Dialect: faulttest.GitHub, Name: "search", Next: faulttest.OK("hi")})
		resp, text := answered(t, next.Client(), http.MethodGet, next.URL, "")
		assert.Equal(t, "hi", text)
		assert.Equal(t, "search", resp.Header.Get("X-Ratelimit-Resource"))
		assert.Len(t, resp.Header.Values("Date"), 1)

		short := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Window: time.Millisecond})
		assert.Equal(t, 200, status(t, short, http.MethodGet, "/"))
		assert.Equal(t, 429, status(t, short, http.MethodGet, "/"))
		time.Sleep(time.Millisecond)
		assert.Equal(t, 200, status(t, short, http.MethodGet, "/"))
	})
}

// Each credential has its own quota, and old ones are removed.
func TestQuota_perCredential(t *testing.T) {
	t.Parallel()
	for _, d := range []faulttest.Dialect{faulttest.IETF, faulttest.Shopify} {
		synctest.Test(t, func(t *testing.T) {
			quota := &faulttest.Quota{Limit: 1, KeyFunc: faulttest.Credential, Dialect: d}
			srv := faulttest.NewInMemory(t, quota)
			for range 2 {
				for i := range 1100 {
					credential := fmt.Sprint(i)
					assert.Equal(t, 200, status(t, srv, http.MethodGet, "/", "Authorization", credential))
					if i%500 == 0 {
						assert.Equal(t, 429, status(t, srv, http.MethodGet, "/", "Authorization", credential))
					}
				}
				time.Sleep(2 * time.Minute)
			}
			for i := range 1100 {
				status(t, srv, http.MethodGet, "/", "Authorization", fmt.Sprint("new", i))
			}
			synctest.Wait()
			assert.LessOrEqual(t, faulttest.QuotaKeys(quota), 1100+1)
		})
	}
}
