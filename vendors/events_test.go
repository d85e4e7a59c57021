package vendors

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

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
		{OpenAI, "", `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"delta":{"role":"assistant","content":""}}]}`, content},
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
	)
	for _, row := range []struct {
		name  string
		off   bool
		first []string // chunks
		pause time.Duration
		want  string
		calls int
		took  time.Duration // until the return; 0: not checked
	}{
		{"api_error: repeated", false, []string{start, apiErr}, 0, content, 2, 0},
		{"api_error, turned off: the event is returned", true, []string{start, apiErr}, 0, start + apiErr, 1, 0},
		{"silent for 304 s after the start: whole", false, []string{start, content}, 304 * time.Second, start + content, 1, 10 * time.Second},
		{"silent for 304 s between contents: whole", false, []string{content, content}, 304 * time.Second, content + content, 1, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			calls := 0
			server := memhttp.NewNetwork(t).Serve(t, "api.anthropic.com", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("Content-Type", "text/event-stream")
				chunks := row.first
				if calls > 1 {
					chunks = []string{content}
				}
				for _, chunk := range chunks {
					_, _ = io.WriteString(w, chunk)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(row.pause)
				}
			}))
			tr := Anthropic()
			tr.Base = server.Transport()
			if row.off {
				tr.Policy.Idempotent = nil
			}
			begin := time.Now()
			req := request(t, http.MethodPost, "http://api.anthropic.com/v1/messages", strings.NewReader(`{"model":"claude-sonnet-4-5"}`))
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
