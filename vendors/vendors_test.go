package vendors

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// vendor is a row of the tables in these tests.
type vendor struct {
	name string
	new  func(...string) *resilienthttp.Transport
	host string // one of the vendor's hosts
	key  string // the header of idempotency keys; "" if the API does not honour them
}

func all() []vendor {
	return []vendor{
		{"Stripe", Stripe, "api.stripe.com", "Idempotency-Key"},
		{"PayPal", PayPal, "api-m.paypal.com", "Paypal-Request-Id"},
		{"Adyen", Adyen, "checkout-test.adyen.com", "Idempotency-Key"},
		{"Square", Square, "connect.squareup.com", ""},
		{"GitHub", GitHub, "api.github.com", ""},
		{"OpenAI", OpenAI, "api.openai.com", ""},
		{"AzureOpenAI", AzureOpenAI, "mine.openai.azure.com", ""},
		{"Anthropic", Anthropic, "api.anthropic.com", ""},
		{"Google", Google, "generativelanguage.googleapis.com", ""},
		{"Slack", Slack, "slack.com", ""},
		{"Atlassian", Atlassian, "my-site.atlassian.net", ""},
		{"Shopify", Shopify, "my-shop.myshopify.com", ""},
		{"Twilio", Twilio, "api.twilio.com", ""},
	}
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	return req
}

// call sends a request through tr to a server with the URL's host and handler reply. It returns
// the server and the attempts.
func call(ctx context.Context, t *testing.T, tr *resilienthttp.Transport, method, url string, reply http.Handler) (*faulttest.Server, []resilienthttp.Attempt) {
	t.Helper()
	host := strings.TrimPrefix(url, "http://")
	host, _, _ = strings.Cut(host, "/")
	api := &faulttest.Server{Script: reply, InMemory: true, Host: host}
	api.KeyHeader = tr.Idempotency.Header
	api.Start(t)
	tr.Base = api.Transport()
	require.NoError(t, tr.Validate())
	req := request(t, method, url, strings.NewReader("{}")).WithContext(ctx)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return api, resilienthttp.Attempts(resp)
}

// V1, V2: the vendor's hosts and the hosts that the caller passes get keys. Other hosts get none.
// A POST without a key is not retried after a 500.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, v := range all() {
		for _, host := range []struct {
			name, host string
			known      bool
		}{
			{"host of the vendor", v.host, true},
			{"host of the caller", "localhost:12111", true},
			{"other host", "example.test", false},
			{"vendor's name as prefix", v.host + ".evil.test", false},
			{"vendor's name as suffix", "evil-" + strings.TrimPrefix(v.host, "www."), false},
		} {
			if host.name == "vendor's name as suffix" && slices.Contains([]string{"Adyen", "Stripe", "AzureOpenAI", "Google", "Atlassian", "Shopify", "Twilio"}, v.name) {
				continue // the profile has all subdomains
			}
			bubble.Parallel(t, v.name+", "+host.name, func(t *testing.T) {
				api, attempts := call(t.Context(), t, v.new("localhost:12111"), http.MethodPost, "http://"+host.host+"/v1/things", faulttest.Status(500))
				keyed := v.key != "" && host.known
				for _, r := range api.Requests() {
					assert.Equal(t, keyed, r.Key != "", "a key")
					assert.NotContains(t, r.Header, "X-Request-Deadline")
					if v.key != "Idempotency-Key" || !host.known {
						assert.NotContains(t, r.Header, "Idempotency-Key")
					}
					if !host.known {
						assert.NotContains(t, r.Header, "Paypal-Request-Id")
					}
				}
				if keyed {
					assert.GreaterOrEqual(t, len(attempts), 5)
					assert.Contains(t, api.Requests()[0].Header, v.key)
				} else {
					assert.Len(t, attempts, 1)
					assert.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].StopReason)
				}
			})
		}
	}
}

// F1: a profile fulfils the rows of a client.
func TestPayPal_conforms(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		transport := PayPal("fault.test") // the host of the test's servers
		transport.Base = base
		return transport
	}, faulttest.WithKeyHeader("PayPal-Request-Id"))
}

// V2: the error code determines the verdict, at the vendor's hosts only.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	vendors := map[string]vendor{}
	for _, v := range all() {
		vendors[v.name] = v
	}
	const (
		permanent = resilienthttp.VerdictPermanent
		transient = resilienthttp.VerdictTransient
		throttled = resilienthttp.VerdictThrottled
	)
	for _, row := range []struct {
		vendor, name string
		status       int
		header, body string
		want         resilienthttp.Verdict // at the vendor's hosts
		defaultWant  resilienthttp.Verdict // at other hosts
	}{
		{"Stripe", "lock timeout", 400, "", `{"error":{"type":"invalid_request_error","code":"lock_timeout","message":"This object cannot be accessed right now because another API request or Stripe process is currently accessing it."}}`, transient, permanent},
		{"Stripe", "lock timeout with 429", 429, "", `{"error":{"code":"lock_timeout"}}`, transient, throttled},
		{"Stripe", "key in progress", 409, "", `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}`, transient, permanent},
		{"Stripe", "key of another request", 400, "", `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`, permanent, permanent},
		{"Stripe", "decline", 402, "", `{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}`, permanent, permanent},
		{"Stripe", "rate limit", 429, "", `{"error":{"code":"rate_limit"}}`, throttled, throttled},
		{"Stripe", "Stripe-Should-Retry against the code", 400, "Stripe-Should-Retry: false", `{"error":{"code":"lock_timeout"}}`, transient, permanent},
		{"PayPal", "in progress", 409, "", `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, transient, permanent},
		{"PayPal", "other conflict", 409, "", `{"name":"RESOURCE_CONFLICT","details":[{"issue":"DUPLICATE_INVOICE_ID"}]}`, permanent, permanent},
		{"Adyen", "in progress", 422, "Transient-Error: true", `{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}`, transient, permanent},
		{"Adyen", "already processed", 422, "", `{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}`, permanent, permanent},
		{"Adyen", "transient 403", 403, "transient-error: TRUE", `{}`, transient, permanent},
		{"Adyen", "not transient", 422, "Transient-Error: false", `{"errorCode":"101"}`, permanent, permanent},
		{"Square", "temporary", 400, "", `{"errors":[{"category":"API_ERROR","code":"TEMPORARY_ERROR"}]}`, transient, permanent},
		{"Square", "key of another request", 400, "", `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`, permanent, permanent},
		{"GitHub", "secondary limit", 403, "", `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/"}`, throttled, permanent},
		{"GitHub", "abuse detection", 403, "", `{"message":"You have triggered an abuse detection mechanism."}`, throttled, permanent},
		{"GitHub", "no permission", 403, "", `{"message":"Resource not accessible by integration"}`, permanent, permanent},
		{"GitHub", "404 with the words of a limit", 404, "", `{"message":"secondary rate limit"}`, permanent, permanent},
		{"OpenAI", "insufficient quota", 429, "", `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, permanent, throttled},
		{"OpenAI", "project limit", 429, "", `{"error":{"type":"requests","code":"project_spend_limit_exceeded"}}`, permanent, throttled},
		{"OpenAI", "rate limit", 429, "", `{"error":{"type":"requests","code":"rate_limit_exceeded"}}`, throttled, throttled},
		{"AzureOpenAI", "rate limit", 429, "", `{"error":{"code":"429","message":"Requests have exceeded the token rate limit"}}`, throttled, throttled},
		{"AzureOpenAI", "numeric code", 429, "", `{"error":{"code":429,"type":"insufficient_quota"}}`, permanent, throttled},
		{"Anthropic", "spend limit", 429, "", `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`, permanent, throttled},
		{"Anthropic", "overloaded", 500, "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, throttled, transient},
		{"Anthropic", "overloaded with 529", 529, "", `{"type":"error","error":{"type":"overloaded_error"}}`, throttled, throttled},
		{"Anthropic", "rate limit", 429, "", `{"type":"error","error":{"type":"rate_limit_error"}}`, throttled, throttled},
		{"Google", "403 of a rate", 403, "", `{"error":{"errors":[{"domain":"usageLimits","reason":"rateLimitExceeded","message":"Rate Limit Exceeded"}],"code":403,"message":"Rate Limit Exceeded"}}`, throttled, permanent},
		{"Google", "403 of a user's rate", 403, "", `{"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}],"code":403}}`, throttled, permanent},
		{"Google", "403 of a day", 403, "", `{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded"}],"code":403}}`, permanent, permanent},
		{"Google", "404 with the reason of a rate", 404, "", `{"error":{"errors":[{"reason":"rateLimitExceeded"}],"code":404}}`, permanent, permanent},
		{"Google", "quota of a day", 429, "", googleBody("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "38s"), permanent, throttled},
		{"Google", "quota of a day, in a list", 429, "", "[" + googleBody("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "38s") + "]", permanent, throttled},
		{"Google", "quota of a minute", 429, "", googleBody("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "38s"), throttled, throttled},
		{"Google", "server error with a wait", 503, "", googleBody("", "1s"), transient, transient},
		{"Google", "no permission", 403, "", `{"error":{"code":403,"status":"PERMISSION_DENIED"}}`, permanent, permanent},
		{"Atlassian", "burst", 429, "Retry-After: 1", `{"errorMessages":["Rate limit exceeded."]}`, throttled, throttled},
		{"Twilio", "rate limit", 429, "", `{"code":20429,"message":"Too Many Requests","status":429}`, throttled, throttled},
		{"Twilio", "verifications sent", 429, "", `{"code":60203,"message":"Max send attempts reached","status":429}`, permanent, throttled},
		{"Twilio", "verifications checked", 429, "", `{"code":60202,"status":429}`, permanent, throttled},
		{"Slack", "rate limit", 429, "Retry-After: 1", `{"ok":false,"error":"ratelimited"}`, throttled, throttled},
		{"Shopify", "rate limit", 429, "Retry-After: 1", `{"errors":"Exceeded 2 calls per second for api client."}`, throttled, throttled},
		{"Stripe", "no JSON", 400, "", `<html>lock_timeout`, permanent, permanent},
		{"Stripe", "other JSON", 400, "", `{"error":"lock_timeout"}`, permanent, permanent},
		{"Stripe", "JSON list", 400, "", `[1,2,3]`, permanent, permanent},
	} {
		for host, want := range map[string]resilienthttp.Verdict{vendors[row.vendor].host: row.want, "example.test": row.defaultWant} {
			bubble.Parallel(t, row.vendor+", "+row.name+", at "+host, func(t *testing.T) {
				reply := faulttest.Reply{Status: row.status, Body: row.body}
				if name, value, ok := strings.Cut(row.header, ": "); ok {
					reply.Header = http.Header{http.CanonicalHeaderKey(name): {value}}
				}
				_, attempts := call(t.Context(), t, vendors[row.vendor].new(), http.MethodGet, "http://"+host+"/", reply)
				assert.Equal(t, want.String(), attempts[0].Verdict.String())
			})
		}
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		new       func(...string) *resilienthttp.Transport
		url, want string
	}{
		{Slack, "https://slack.com/api/chat.postMessage", "slack.com/chat.postMessage"},
		{Atlassian, "https://my-site.atlassian.net/rest/api/3/issue", "my-site.atlassian.net"},
		{Atlassian, "https://api.atlassian.com/ex/jira/11223344-a1b2/rest/api/3/issue", "api.atlassian.com/jira/11223344-a1b2"},
		{Atlassian, "https://api.atlassian.com/ex/jira", "api.atlassian.com"},
		{Atlassian, "https://api.atlassian.com/ex//x/y", "api.atlassian.com"},
		{Atlassian, "https://api.atlassian.com/oauth/token/accessible-resources", "api.atlassian.com"},
		{Atlassian, "https://example.test/ex/jira/1/x", "example.test"},
		{Slack, "https://slack.com/api/", "slack.com"},
		{Slack, "https://hooks.slack.com/services/T0/B0/secret", "hooks.slack.com"},
		{Slack, "https://slack.com/api/a/b", "slack.com"},
		{Slack, "https://example.test/api/chat.postMessage", "example.test"},
		{AzureOpenAI, "https://mine.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=1", "mine.openai.azure.com/gpt"},
		{AzureOpenAI, "https://mine.openai.azure.com/openai/deployments/a%20b/embeddings", "mine.openai.azure.com/a b"},
		{AzureOpenAI, "https://mine.openai.azure.com/openai/v1/responses", "mine.openai.azure.com"},
		{AzureOpenAI, "https://mine.openai.azure.com/openai/deployments/", "mine.openai.azure.com"},
		{AzureOpenAI, "https://example.test/openai/deployments/gpt/x", "example.test"},
	} {
		req := request(t, http.MethodPost, row.url, nil)
		assert.Equal(t, row.want, row.new().Scope(req), row.url)
	}
	assert.Nil(t, Shopify().Scope, "the default scope is the host, which is the shop")
}

func TestModels_longTimeouts(t *testing.T) {
	t.Parallel()
	for _, v := range all() {
		p := v.new().Policy
		if slices.Contains([]string{"OpenAI", "AzureOpenAI", "Anthropic"}, v.name) {
			assert.Equal(t, 10*time.Minute, p.AttemptTimeout, v.name)
			assert.Equal(t, 10*time.Minute, p.ReadTimeout, v.name)
			assert.Zero(t, p.Stream.FirstEvent, v.name)
		} else {
			assert.Zero(t, p.AttemptTimeout, v.name)
			assert.Zero(t, p.ReadTimeout, v.name)
			assert.Nil(t, p.Stream, v.name)
			assert.Nil(t, p.Idempotent, v.name)
		}
	}
}

// A key that is longer than the vendor permits is an error before the request is sent.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		tr    *resilienthttp.Transport
		host  string
		limit int
	}{{"Adyen", Adyen(), "checkout-test.adyen.com", 64}, {"PayPal", PayPal(), "api-m.paypal.com", 108}, {"Stripe", Stripe(), "api.stripe.com", 255}} {
		row.tr.Base = http.NewFileTransport(http.Dir("."))
		for length, fits := range map[int]bool{row.limit: true, row.limit + 1: false} {
			ctx := resilienthttp.WithIdempotencyKey(t.Context(), strings.Repeat("k", length))
			req := request(t, http.MethodPost, "https://"+row.host+"/", nil).WithContext(ctx)
			resp, err := row.tr.RoundTrip(req)
			if !fits {
				require.ErrorContains(t, err, "idempotency key", row.name)
				continue
			}
			require.NoError(t, err, row.name)
			require.NoError(t, resp.Body.Close())
		}
	}
}

func TestValidate_invalidHost(t *testing.T) {
	t.Parallel()
	for _, v := range all() {
		require.NoError(t, v.new().Validate(), v.name)
		require.ErrorContains(t, v.new("https://localhost:12111").Validate(), "localhost", v.name)
	}
}

// V3: the comment of each function names its sources and the day on which they were read.
func TestSources(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	functions := 0
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			functions++
			assert.Regexp(t, `Sources?, read 20\d\d-\d\d-\d\d[:,](?s:.*)https://`, f.Doc.Text(), f.Name.Name)
		}
	}
	assert.Equal(t, len(all())+4, functions)
}

// The keys of idempotency.ID.KeyFor and durable.IdempotencyKey are short enough for each vendor
// and sent unchanged.
func TestDerivedKeys(t *testing.T) {
	id := idempotency.ID{Scope: "comp1", Operation: "charge", Key: strings.Repeat("k", 255)}
	const square = 45 // a field of the body: developer.squareup.com/docs/build-basics/common-api-patterns/idempotency
	for name, key := range map[string]string{"KeyFor": id.KeyFor("capture"), "IdempotencyKey": durable.IdempotencyKey(id, 1)} {
		require.LessOrEqual(t, len(key), square)
		for _, v := range all() {
			if v.key == "" {
				continue
			}
			t.Run(name+"/"+v.name, func(t *testing.T) {
				ctx := resilienthttp.WithIdempotencyKey(t.Context(), key)
				api, _ := call(ctx, t, v.new(), http.MethodPost, "http://"+v.host+"/", faulttest.Status(http.StatusOK))
				requests := api.Requests()
				require.Len(t, requests, 1)
				assert.Equal(t, key, requests[0].Header.Get(v.key))
			})
		}
	}
}

func TestDeclines(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		read func(int, []byte) string
		body string
		want string
	}{
		{"Stripe, advice", StripeDecline, `{"error":{"type":"card_error","code":"card_declined","decline_code":"generic_decline","network_advice_code":"03","network_decline_code":"59"}}`, "03"},
		{"Stripe, no advice", StripeDecline, `{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}`, "insufficient_funds"},
		{"Stripe, the code alone", StripeDecline, `{"error":{"type":"card_error","code":"expired_card"}}`, "expired_card"},
		{"Stripe, an intent", StripeDecline, `{"object":"payment_intent","last_payment_error":{"type":"card_error","code":"card_declined","network_advice_code":"24"}}`, "24"},
		{"Stripe, no card", StripeDecline, `{"error":{"type":"invalid_request_error","code":"parameter_missing"}}`, ""},
		{"Stripe, a success", StripeDecline, `{"object":"payment_intent","status":"succeeded","last_payment_error":null}`, ""},
		{"PayPal, advice", PayPalDecline, `{"id":"1","purchase_units":[{"payments":{"captures":[{"status":"DECLINED","processor_response":{"response_code":"5120","payment_advice_code":"21"}}]}}]}`, "21"},
		{"PayPal, no advice", PayPalDecline, `{"purchase_units":[{"payments":{"authorizations":[{"processor_response":{"response_code":"0500"}}]}}]}`, "0500"},
		{"PayPal, a capture", PayPalDecline, `{"status":"DECLINED","processor_response":{"response_code":"9500","payment_advice_code":"03"}}`, "03"},
		{"PayPal, approved", PayPalDecline, `{"processor_response":{"response_code":"0000","payment_advice_code":"01"}}`, ""},
		{"PayPal, an error", PayPalDecline, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"INSTRUMENT_DECLINED"}]}`, "INSTRUMENT_DECLINED"},
		{"Adyen, advice", AdyenDecline, `{"resultCode":"Refused","refusalReasonCode":"2","additionalData":{"merchantAdviceCode":"24 : Retry after 1 hour"}}`, "24"},
		{"Adyen, no advice", AdyenDecline, `{"resultCode":"Refused","refusalReason":"Refused","refusalReasonCode":"2"}`, "2"},
		{"Adyen, authorised", AdyenDecline, `{"resultCode":"Authorised","additionalData":{"merchantAdviceCode":"01"}}`, ""},
		{"Adyen, an error", AdyenDecline, `{"status":422,"errorCode":"101","message":"Invalid card number"}`, "101"},
		{"Square, a card", SquareDecline, `{"errors":[{"category":"API_ERROR","code":"X"},{"category":"PAYMENT_METHOD_ERROR","code":"CARD_DECLINED"}]}`, "CARD_DECLINED"},
		{"Square, no card", SquareDecline, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"BAD_REQUEST"}]}`, ""},
	} {
		assert.Equal(t, row.want, row.read(402, []byte(row.body)), row.name)
	}
	for _, read := range []func(int, []byte) string{StripeDecline, PayPalDecline, AdyenDecline, SquareDecline} {
		for _, body := range []string{"", "null", "[]", `"x"`, `{"error":3,"errors":{},"details":"x","resultCode":[]}`, "<html>"} {
			assert.Empty(t, read(500, []byte(body)), body)
		}
	}
}

// The codes of StripeDecline are those that durable.CardDeclines knows.
func TestStripeDecline_isKnownToCardDeclines(t *testing.T) {
	t.Parallel()
	next := func(body string) durable.Decision {
		return durable.CardDeclines().Next(&durable.History{
			Attempts: 1, Since: time.Now(), Outcome: durable.Outcome{Class: durable.ClassDeclined, Code: StripeDecline(402, []byte(body))},
		}, time.Now())
	}
	assert.Equal(t, durable.Retry, next(`{"error":{"type":"card_error","network_advice_code":"24"}}`).Action)
	assert.Equal(t, durable.Bury, next(`{"error":{"type":"card_error","network_advice_code":"03"}}`).Action)
}

// googleBody is an error of the Gemini API with a violated quota and a wait.
func googleBody(quotaID, wait string) string {
	return fmt.Sprintf(`{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[`+
		`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":%q,"quotaValue":"10"}]},`+
		`{"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://ai.google.dev/gemini-api/docs/rate-limits"}]},`+
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":%q}]}}`, quotaID, wait)
}

// V8: the wait of the body is the call's wait, at Google's hosts only.
func TestGoogle_waits(t *testing.T) {
	t.Parallel()
	const minute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
	other := `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.Other","retryDelay":"38s"}]}}`
	for _, row := range []struct {
		name, host, method string
		status             int
		body, retryAfter   string
		attempts           int
		want               time.Duration // Attempt.RetryAfter
	}{
		{"one retry at 38 s", "generativelanguage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "", 2, 38 * time.Second},
		{"a POST, which a 429 did not execute", "generativelanguage.googleapis.com", "POST", 429, googleBody(minute, "38s"), "", 2, 38 * time.Second},
		{"a fraction", "generativelanguage.googleapis.com", "GET", 429, googleBody(minute, "1.000340012s"), "", 2, 1000340012},
		{"in a list", "generativelanguage.googleapis.com", "GET", 429, "[" + googleBody(minute, "38s") + "]", "", 2, 38 * time.Second},
		{"503", "storage.googleapis.com", "GET", 503, googleBody("", "38s"), "", 2, 38 * time.Second},
		{"V1: 503 of a POST", "storage.googleapis.com", "POST", 503, googleBody("", "38s"), "", 1, 38 * time.Second},
		{"a shorter header", "storage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "2", 2, 38 * time.Second},
		{"a longer header", "storage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "50", 2, 50 * time.Second},
		{"too long", "storage.googleapis.com", "GET", 429, googleBody(minute, "61s"), "", 1, 61 * time.Second},
		{"overflow", "storage.googleapis.com", "GET", 429, googleBody(minute, "99999999999999999999s"), "", 1, retryafter.Max},
		{"a quota of a day: at once, without its wait", "generativelanguage.googleapis.com", "GET", 429, googleBody("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "38s"), "", 1, 0},
		{"negative", "storage.googleapis.com", "GET", 429, googleBody(minute, "-38s"), "", 2, 0},
		{"another unit", "storage.googleapis.com", "GET", 429, googleBody(minute, "38m"), "", 2, 0},
		{"another detail", "storage.googleapis.com", "GET", 429, other, "", 2, 0},
		{"V2: another host", "example.test", "GET", 429, googleBody(minute, "38s"), "", 2, 0},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			reply := faulttest.Reply{Status: row.status, Body: row.body}
			if row.retryAfter != "" {
				reply.Header = http.Header{"Retry-After": {row.retryAfter}}
			}
			began := time.Now()
			_, attempts := call(t.Context(), t, Google(), row.method, "http://"+row.host+"/v1", faulttest.Sequence(reply, faulttest.OK("{}")))
			require.Len(t, attempts, row.attempts)
			assert.Equal(t, row.want, attempts[0].RetryAfter)
			if row.attempts == 1 {
				assert.Zero(t, time.Since(began))
			} else {
				assert.GreaterOrEqual(t, time.Since(began), row.want)
				assert.LessOrEqual(t, time.Since(began), row.want+max(row.want/2, 1500*time.Millisecond))
			}
		})
	}
}

// A body of any form gives a wait from 0 to the maximum, and a wait of RetryInfo is exact.
func FuzzGoogle(f *testing.F) {
	f.Add([]byte(googleBody("", "38s")), int64(time.Second))
	f.Fuzz(func(t *testing.T, body []byte, wait int64) {
		a := resilienthttp.Attempt{Response: &http.Response{StatusCode: http.StatusForbidden}}
		v := googleVerdict(&a, body)
		require.Contains(t, []resilienthttp.Verdict{resilienthttp.VerdictDefault, resilienthttp.VerdictPermanent, resilienthttp.VerdictThrottled}, v)
		require.GreaterOrEqual(t, a.RetryAfter, time.Duration(0))
		require.LessOrEqual(t, a.RetryAfter, retryafter.Max)
		if !json.Valid(body) {
			require.Zero(t, a.RetryAfter)
		}
		d := time.Duration(wait & math.MaxInt64)
		e := parseGoogleError([]byte(googleBody("", fmt.Sprintf("%d.%09ds", d/time.Second, d%time.Second))))
		require.Equal(t, min(d, retryafter.Max), e.wait())
	})
}

// V1: a POST without a key is repeated only if the API says in words of its own that nothing was executed.
func TestNotExecuted(t *testing.T) {
	t.Parallel()
	google := func(reason string) string {
		return fmt.Sprintf(`{"error":{"errors":[{"domain":"usageLimits","reason":%q}],"code":403}}`, reason)
	}
	const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, row := range []struct {
		name   string
		new    func(...string) *resilienthttp.Transport
		host   string
		status int
		body   string
		again  bool
		doubt  bool
	}{
		{"Google: 403 of a rate", Google, "gmail.googleapis.com", 403, google("rateLimitExceeded"), true, false},
		{"Google: 403 of a user's rate", Google, "gmail.googleapis.com", 403, google("userRateLimitExceeded"), true, false},
		{"Google: 403 of a permission", Google, "gmail.googleapis.com", 403, google("forbidden"), false, false},
		{"Google: 503 with the reason of a rate", Google, "gmail.googleapis.com", 503, google("rateLimitExceeded"), false, true},
		{"Google: another host", Google, "example.test", 403, google("rateLimitExceeded"), false, false},
		{"Anthropic: overloaded", Anthropic, "api.anthropic.com", 529, overloaded, true, false},
		{"Anthropic: overloaded, with 500", Anthropic, "api.anthropic.com", 500, overloaded, true, false},
		{"Anthropic: 529 of a proxy", Anthropic, "api.anthropic.com", 529, "<html>", false, true},
		{"Anthropic: api_error", Anthropic, "api.anthropic.com", 500, `{"type":"error","error":{"type":"api_error"}}`, false, true},
		{"Twilio: 429", Twilio, "api.twilio.com", 429, `{"code":20429}`, true, false},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			reply := faulttest.Reply{Status: row.status, Body: row.body}
			_, attempts := call(t.Context(), t, row.new(), http.MethodPost, "http://"+row.host+"/v1/messages/batches", faulttest.Sequence(reply, faulttest.OK("{}")))
			assert.Equal(t, row.again, len(attempts) == 2)
			assert.Equal(t, row.again, attempts[0].NotExecuted)
			assert.Equal(t, row.doubt, resilienthttp.InDoubt(attempts[len(attempts)-1].Response, nil))
		})
	}
}

// S3: events as the vendors send them.
func TestEvents(t *testing.T) {
	t.Parallel()
	const (
		content   = resilienthttp.VerdictDefault
		permanent = resilienthttp.VerdictPermanent
		transient = resilienthttp.VerdictTransient
		throttled = resilienthttp.VerdictThrottled
		pending   = resilienthttp.VerdictPending
	)
	for _, row := range []struct {
		vendor     func(...string) *resilienthttp.Transport
		name, data string
		want       resilienthttp.Verdict
	}{
		{Anthropic, "message_start", `{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":12}}}`, pending},
		{Anthropic, "ping", `{"type": "ping"}`, pending},
		{Anthropic, "", `{"type": "ping"}`, pending},
		{Anthropic, "content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, content},
		{Anthropic, "content_block_delta", `{"type":"content_block_delta","delta":{"type":"text_delta","text":"overloaded_error"}}`, content},
		{Anthropic, "something_new", `{"type":"something_new"}`, content},
		{Anthropic, "error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, throttled},
		{Anthropic, "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, throttled},
		{Anthropic, "error", `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"}}`, throttled},
		{Anthropic, "error", `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, transient},
		{Anthropic, "error", `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`, permanent},
		{Anthropic, "error", `{"type":"error","error":{"type":"authentication_error"}}`, permanent},
		{Anthropic, "error", `not JSON`, transient},
		{Anthropic, "error", `{"type":"error","error":{"type":"timeout_error"}}`, transient},
		{Anthropic, "error", `{"type":"error","error":{"type":"new_error"}}`, permanent},
		{OpenAI, "response.created", `{"type":"response.created","response":{"status":"in_progress","error":null}}`, pending},
		{OpenAI, "response.in_progress", `{"type":"response.in_progress","response":{"error":null}}`, pending},
		{OpenAI, "response.queued", `{"type":"response.queued"}`, pending},
		{OpenAI, "", `{"type":"response.queued"}`, pending},
		{OpenAI, "ping", `{}`, pending},
		{OpenAI, "response.output_item.added", `{"type":"response.output_item.added"}`, content},
		{OpenAI, "", `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}`, pending},
		{OpenAI, "", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`, pending},
		{OpenAI, "", `{"id":"chatcmpl-1","choices":[]}`, pending},
		{OpenAI, "", `{"id":"cmpl-1","object":"text_completion","choices":[{"text":"","index":0,"finish_reason":null}]}`, pending},
		{OpenAI, "", `{"choices":[{"delta":{"role":"assistant"}},{"index":1,"delta":{"content":"x"}}]}`, content},
		{OpenAI, "", `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`, content},
		{OpenAI, "", `{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1"}]}}]}`, content},
		{OpenAI, "", `{"choices":[{"delta":{"role":"assistant","content":"","refusal":"no"}}]}`, content},
		{OpenAI, "", `{"choices":[{"delta":{"content":"","reasoning_content":"hm"}}]}`, content},
		{OpenAI, "", `{"choices":[{"text":"x","index":0,"finish_reason":null}]}`, content},
		{OpenAI, "", `{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, content},
		{OpenAI, "", `{"choices":null}`, content},
		{OpenAI, "", `{"id":"1"}`, content},
		{OpenAI, "", `{"object":"chat.completion.chunk","choices":[],"error":{"code":502,"message":"limit reached"}}`, transient},
		{OpenAI, "", `{"error":"the engine is gone"}`, transient},
		{OpenAI, "", `[DONE]`, content},
		{OpenAI, "error", `{"type":"error","sequence_number":2,"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"overloaded","param":null}}`, throttled},
		{OpenAI, "error", `{"type":"error","code":"rate_limit_exceeded","message":"limit"}`, throttled},
		{OpenAI, "error", `{"type":"error","code":"server_error","message":"sorry"}`, transient},
		{OpenAI, "error", `{"type":"error","code":null,"message":"sorry"}`, transient},
		{OpenAI, "error", `not JSON`, transient},
		{OpenAI, "error", `{"type":"error","error":{"code":"insufficient_quota"}}`, permanent},
		{OpenAI, "error", `{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded"}}`, permanent},
		{OpenAI, "response.failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"tokens per min"}}}`, throttled},
		{OpenAI, "response.failed", `{"type":"response.failed","response":{"error":{"code":"server_error"}}}`, transient},
		{OpenAI, "response.failed", `{"type":"response.failed","response":{"error":{"code":"invalid_prompt"}}}`, permanent},
		{OpenAI, "response.failed", `{"type":"response.failed","response":{"error":null}}`, transient},
		{OpenAI, "", `{"error":{"message":"The server had an error while processing your request.","type":"server_error"}}`, transient},
		{OpenAI, "", `{"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded"}}`, throttled},
		{AzureOpenAI, "error", `{"type":"error","error":{"code":429}}`, transient},
		{AzureOpenAI, "response.created", `{}`, pending},
		{AzureOpenAI, "", `{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}`, pending},
		{AzureOpenAI, "", `{"id":"","object":"","choices":[{"index":0,"finish_reason":null,"content_filter_results":{},"content_filter_offsets":{"check_offset":44}}]}`, pending},
		{AzureOpenAI, "", `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello"},"content_filter_results":{}}]}`, content},
	} {
		assert.Equal(t, row.want, row.vendor().Policy.Stream.Classify(row.name, []byte(row.data)), "%s %s", row.name, row.data)
	}
}

// V1: only completions are repeated without a key, and only at the vendor's hosts.
func TestCompletions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		vendor      func(...string) *resilienthttp.Transport
		method, url string
		want        bool
	}{
		{OpenAI, "POST", "https://api.openai.com/v1/chat/completions", true},
		{OpenAI, "POST", "https://api.openai.com/v1/completions", true},
		{OpenAI, "POST", "https://eu.api.openai.com/v1/responses", true},
		{OpenAI, "POST", "https://api.openai.com/v1/embeddings", true},
		{OpenAI, "POST", "https://api.openai.com/v1/responses/resp_1/cancel", false},
		{OpenAI, "POST", "https://api.openai.com/v1/chat/completions/chatcmpl-1", false},
		{OpenAI, "POST", "https://api.openai.com/v1/threads/thread_1/messages", false},
		{OpenAI, "POST", "https://api.openai.com/v1/batches", false},
		{OpenAI, "POST", "https://api.openai.com/v1/files", false},
		{OpenAI, "POST", "https://example.test/v1/responses", false},
		{OpenAI, "PATCH", "https://api.openai.com/v1/responses", false},
		{AzureOpenAI, "POST", "https://mine.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=1", true},
		{AzureOpenAI, "POST", "https://mine.openai.azure.com/openai/v1/responses", true},
		{AzureOpenAI, "POST", "https://mine.openai.azure.com/openai/deployments/embeddings/images/generations", false},
		{Anthropic, "POST", "https://api.anthropic.com/v1/messages", true},
		{Anthropic, "POST", "https://api.anthropic.com/v1/messages/count_tokens", true},
		{Anthropic, "POST", "https://api.anthropic.com/v1/messages/batches", false},
		{Anthropic, "POST", "https://api.anthropic.com/v1/files", false},
		{Anthropic, "POST", "https://api.anthropic.com.evil.test/v1/messages", false},
	} {
		req := request(t, row.method, row.url, nil)
		assert.Equal(t, row.want, row.vendor().Policy.Idempotent(req), row.method+" "+row.url)
	}
}

// S3, S5: whole calls with a profile: a failed stream is repeated, a reasoning turn is not cut, and the line of the page
// that turns the repetition off does so.
func TestStreams(t *testing.T) {
	const (
		start   = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
		content = "event: content_block_start\ndata: {\"type\":\"content_block_start\"}\n\n"
		apiErr  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n"

		prompt   = "data: {\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n"
		role     = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
		text     = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n"
		chunkErr = "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}\n\n"
	)
	type api struct {
		new              func(...string) *resilienthttp.Transport
		host, path, text string // the second request is answered by the text
	}
	anthropic := api{Anthropic, "api.anthropic.com", "/v1/messages", content}
	openAI := api{OpenAI, "api.openai.com", "/v1/chat/completions", text}
	azure := api{AzureOpenAI, "mine.openai.azure.com", "/openai/deployments/gpt/chat/completions", text}
	for _, row := range []struct {
		name string
		api
		off   bool
		first []string // chunks
		pause time.Duration
		want  string
		calls int
		took  time.Duration // until the return; 0: not checked
	}{
		{"api_error: repeated", anthropic, false, []string{start, apiErr}, 0, content, 2, 0},
		{"api_error, turned off: the event is returned", anthropic, true, []string{start, apiErr}, 0, start + apiErr, 1, 0},
		{"silent for 304 s after the start: whole", anthropic, false, []string{start, content}, 304 * time.Second, start + content, 1, 10 * time.Second},
		{"silent for 304 s between contents: whole", anthropic, false, []string{content, content}, 304 * time.Second, content + content, 1, 0},
		{"chat completion, an error after the role: repeated", openAI, false, []string{role, chunkErr}, 0, text, 2, 0},
		{"chat completion, an error after content: returned", openAI, false, []string{role, text, chunkErr}, 0, role + text + chunkErr, 1, 0},
		{"chat completion, an end after the role: repeated", openAI, false, []string{role}, 0, text, 2, 0},
		{"chat completion: whole", openAI, false, []string{role, text}, time.Second, role + text, 1, time.Second},
		{"Azure, an error after the prompt's filter: repeated", azure, false, []string{prompt, role, chunkErr}, 0, text, 2, 0},
		{"Azure, silent for 304 s after the prompt's filter: whole", azure, false, []string{prompt, text}, 304 * time.Second, prompt + text, 1, 10 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			calls := 0
			server := memhttp.NewNetwork(t).Serve(t, row.host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("Content-Type", "text/event-stream")
				chunks := row.first
				if calls > 1 {
					chunks = []string{row.text}
				}
				for _, chunk := range chunks {
					_, _ = io.WriteString(w, chunk)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(row.pause)
				}
			}))
			tr := row.new()
			tr.Base = server.Transport()
			if row.off {
				tr.Policy.Idempotent = nil
			}
			begin := time.Now()
			req := request(t, http.MethodPost, "http://"+row.host+row.path, strings.NewReader(`{"model":"claude-sonnet-4-5"}`))
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			if row.took > 0 {
				require.Equal(t, row.took, time.Since(begin))
			}
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, row.want, string(body))
			require.Equal(t, row.calls, calls)
		})
	}
}
