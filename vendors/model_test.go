package vendors

import (
	"bytes"
	"cmp"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestModelOf(t *testing.T) {
	prompt := strings.Repeat(`say "hello" and {]}, then \\ `, 10_000)
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(prompt) + `"`
	for _, row := range []struct{ name, body, want string }{
		{"the first member", `{"model":"gpt-4o","messages":[]}`, "gpt-4o"},
		{"blanks", "\n{ \"model\" :\t\"gpt-4o\" }", "gpt-4o"},
		{"after a prompt of 300 KiB", `{"messages":[{"role":"user","content":` + quoted + `}],"model":"gpt-4o"}`, "gpt-4o"},
		{"a model in the prompt is another one", `{"messages":[{"model":"a","content":"\"model\":\"b\""}],"model":"gpt-4o"}`, "gpt-4o"},
		{"after numbers and literals", `{"n":1.5e3,"stream":true,"stop":null,"tools":[[],{}],"model":"gpt-4o"}`, "gpt-4o"},
		{"a member with an escape sequence is skipped", `{"m\u006fdel":"a","model":"gpt-4o"}`, "gpt-4o"},
		{"after more than 1 MiB: unknown", `{"messages":"` + strings.Repeat("a", 1<<20) + `","model":"gpt-4o"}`, ""},
		{"no model", `{"messages":[]}`, ""},
		{"not a string", `{"model":{"name":"gpt-4o"}}`, ""},
		{"a number", `{"model":5,"n":1}`, ""},
		{"two: the first", `{"model":"gpt-4o","model":"gpt-5"}`, "gpt-4o"},
		{"after the object", `{"messages":[]}"model":"gpt-4o"`, ""},
		{"a long name", `{"model":"` + strings.Repeat("a", 200) + `"}`, ""},
		{"not an object", `["model","gpt-4o"]`, ""},
		{"cut", `{"messages":"model`, ""},
		{"empty", ``, ""},
		{"closing braces only", `{"a":}}}]]`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := request(t, http.MethodPost, "https://api.test/", strings.NewReader(row.body))
			require.Equal(t, cmp.Or(row.want, unknownModel), modelOf(r))
		})
	}
	require.Equal(t, unknownModel, modelOf(request(t, http.MethodGet, "https://api.test/", nil)), "no body")
}

func TestModelOf_multipart(t *testing.T) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "speech.mp3")
	require.NoError(t, err)
	_, _ = file.Write(make([]byte, 300<<10))
	require.NoError(t, form.WriteField("model", "whisper-1"))
	require.NoError(t, form.Close())
	r := request(t, http.MethodPost, "https://api.test/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	require.Equal(t, "whisper-1", modelOf(r))
}

func FuzzModelOf(f *testing.F) {
	f.Add(`{"messages":[{"content":"\\\""}],"model":"gpt-4o"}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := request(t, http.MethodPost, "https://api.test/", strings.NewReader(body))
		model := modelOf(r)
		require.NotEmpty(t, model)
		if model != unknownModel {
			require.Contains(t, body, `"`+model+`"`)
		}
	})
}

func TestFamilyOf(t *testing.T) {
	for model, want := range map[string]string{
		"claude-sonnet-4-5-20250929": "claude-sonnet-4",
		"claude-sonnet-4-20250514":   "claude-sonnet-4",
		"claude-opus-4-1":            "claude-opus-4",
		"claude-haiku-4-5":           "claude-haiku-4",
		"claude-3-5-haiku-20241022":  "claude-3-5-haiku",
		"claude-3-7-sonnet-latest":   "claude-3-7-sonnet",
		"unknown":                    "unknown",
	} {
		require.Equal(t, want, familyOf(model), model)
	}
}

// Row 48: a model that has used up its quota does not stop another one of the same host.
func TestOpenAI_quotasOfModels(t *testing.T) {
	for _, size := range []int{1 << 10, 300 << 10} {
		bubble.Run(t, strconv.Itoa(size>>10)+" KiB", func(t *testing.T) {
			const quota = 100
			used := map[string]int{}
			transport := OpenAI()
			transport.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				model := modelOf(r)
				used[model]++
				left := max(quota-used[model], 0)
				resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{
					"X-Ratelimit-Limit-Requests": {"100"}, "X-Ratelimit-Remaining-Requests": {strconv.Itoa(left)}, "X-Ratelimit-Reset-Requests": {"1h0m0s"},
				}, Body: http.NoBody, Request: r}
				if used[model] > quota {
					resp.StatusCode = http.StatusTooManyRequests
					resp.Header.Set("Retry-After", "3600")
				}
				return resp, nil
			})
			served := map[string]int{}
			call := func(model string) {
				body := `{"messages":["` + strings.Repeat("a", size) + `"],"model":"` + model + `"}`
				r := request(t, http.MethodPost, "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
				if resp, err := transport.RoundTrip(r); err == nil && resp.StatusCode == http.StatusOK {
					served[model]++
				}
				time.Sleep(10 * time.Millisecond)
			}
			for i := range 3 * quota {
				call("gpt-4o")
				if i%5 == 0 {
					call("gpt-4o-mini")
				}
			}
			require.Equal(t, quota, served["gpt-4o"])
			require.Equal(t, 3*quota/5, served["gpt-4o-mini"])
			require.LessOrEqual(t, used["gpt-4o"], quota+2)
		})
	}
}

// §4.4: a body that an SDK rewinds arrives whole, although the profile has read the model and the tokens from its beginning.
func TestBodies_rewound(t *testing.T) {
	t.Parallel()
	for _, v := range all() {
		for _, size := range []int{10, 10_000, 100_000} {
			content := `{"model": "large", "input": "` + strings.Repeat("x", size) + `"}`
			tr := v.new()
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				got, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.NoError(t, r.Body.Close())
				require.Equal(t, content, string(got), v.name)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			})
			reader := strings.NewReader(content)
			req := request(t, http.MethodPost, "https://"+v.host+"/v1/responses", io.NopCloser(reader))
			req.ContentLength = reader.Size()
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := reader.Seek(0, io.SeekStart)
				return io.NopCloser(reader), err
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err, v.name)
			require.NoError(t, resp.Body.Close())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
