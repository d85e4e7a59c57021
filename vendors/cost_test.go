package vendors

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

func TestTokensOf(t *testing.T) {
	long := strings.Repeat("word ", 20_000)
	for _, row := range []struct {
		name, kind, body string
		most             float64 // beside a quarter of the bytes; negative: the cost is unknown
	}{
		{"OpenAI: after the model", "application/json", `{"model":"gpt-4o","messages":[],"max_tokens":1000}`, 1000},
		{"OpenAI: its newer name", "application/json; charset=utf-8", `{"messages":[],"model":"gpt-4o","max_completion_tokens" : 1000 }`, 1000},
		{"OpenAI: responses", "application/json", `{"model":"gpt-4o","max_output_tokens":1000,"input":"Hello"}`, 1000},
		{"Anthropic's SDK: first", "application/json", `{"max_tokens":1024,"messages":[{"content":"` + long + `"}],"model":"claude-sonnet-4-5"}`, 1024},
		{"after a long prompt, before the model", "", `{"messages":["` + long + `"],"max_tokens":7,"model":"a"}`, 7},
		{"after the model and a long prompt: not read", "", `{"model":"a","messages":["` + long + `"],"max_tokens":7}`, 0},
		{"after the model and a member that the buffer cuts", "", `{"model":"a","user":"` + strings.Repeat("u", 5000) + `","max_tokens":7}`, 0},
		{"several names: the largest", "", `{"max_tokens":7,"max_completion_tokens":9,"max_output_tokens":8,"model":"a"}`, 9},
		{"none", "", `{"model":"a"}`, 0},
		{"of another object", "", `{"metadata":{"max_tokens":7},"model":"a"}`, 0},
		{"null", "", `{"max_tokens":null,"model":"a"}`, 0},
		{"a fraction", "", `{"max_tokens":7.5,"model":"a"}`, 0},
		{"negative", "", `{"max_tokens":-7,"model":"a"}`, 0},
		{"a string", "", `{"max_tokens":"7","max_completion_tokens":8,"model":"a"}`, 8},
		{"too large", "", `{"max_tokens":12345678901,"model":"a"}`, 0},
		{"cut", "", `{"max_tokens":12`, 0},
		{"not an object", "", `[1000]`, 0},
		{"a form", "multipart/form-data; boundary=x", `--x--`, -1},
		{"empty", "", ``, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := request(t, http.MethodPost, "https://api.test/", strings.NewReader(row.body))
			if row.kind != "" {
				r.Header.Set("Content-Type", row.kind)
			}
			want := float64(len(row.body))/4 + row.most
			if row.most < 0 {
				want = 0
			}
			require.InDelta(t, want, tokensOf(r), 1e-9)
		})
	}
	t.Run("a body that cannot be copied: unknown", func(t *testing.T) {
		r := request(t, http.MethodPost, "https://api.test/", io.NopCloser(strings.NewReader(`{"max_tokens":7}`)))
		r.ContentLength = 16
		require.Zero(t, tokensOf(r))
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		require.Zero(t, tokensOf(r))
	})
}

// The estimate reads no more of the body than the model's name needs.
func TestTokensOf_readsAsMuchAsForTheModel(t *testing.T) {
	long := strings.Repeat("word ", 20_000)
	for _, body := range []string{
		`{"model":"a","messages":["` + long + `"],"max_tokens":7}`,
		`{"max_tokens":7,"model":"a","messages":["` + long + `"]}`,
		`{"messages":["` + long + `"],"model":"a","n":["` + long + `"]}`,
		`{"messages":["` + strings.Repeat(long, 20) + `"],"model":"a"}`,
	} {
		read := map[string]int{}
		for name, f := range map[string]func(*http.Request){
			"model":  func(r *http.Request) { modelOf(r) },
			"tokens": func(r *http.Request) { tokensOf(r) },
		} {
			r := request(t, http.MethodPost, "https://api.test/", strings.NewReader(body))
			r.GetBody = func() (io.ReadCloser, error) {
				return &countingBody{Reader: strings.NewReader(body), add: func(n int) { read[name] += n }}, nil
			}
			f(r)
		}
		require.LessOrEqual(t, read["tokens"], read["model"])
		require.Positive(t, read["tokens"])
	}
}

type countingBody struct {
	io.Reader
	add func(int)
}

func (c *countingBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.add(n)
	return n, err
}

func (c *countingBody) Close() error { return nil }

func TestCost_profiles(t *testing.T) {
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		url       string
	}{
		{"OpenAI", OpenAI(), "https://api.openai.com/v1/responses"},
		{"Azure", AzureOpenAI(), "https://eu.openai.azure.com/openai/deployments/a/chat/completions"},
		{"Anthropic", Anthropic(), "https://api.anthropic.com/v1/messages"},
	} {
		t.Run(row.name, func(t *testing.T) {
			const body = `{"max_tokens":100,"model":"a"}`
			r := request(t, http.MethodPost, row.url, strings.NewReader(body))
			require.InDelta(t, 100+float64(len(body))/4, row.transport.RateLimit.Cost(r), 1e-9)
			r.URL.Host = "other.test"
			require.Zero(t, row.transport.RateLimit.Cost(r), "another host")
		})
	}
}

func FuzzTokensOf(f *testing.F) {
	f.Add(`{"messages":[{"content":"\\\""}],"max_tokens":12,"model":"gpt-4o"}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := request(t, http.MethodPost, "https://api.test/", strings.NewReader(body))
		tokens := tokensOf(r)
		require.GreaterOrEqual(t, tokens, float64(len(body))/4)
		require.LessOrEqual(t, tokens, float64(len(body))/4+1e9)
	})
}
