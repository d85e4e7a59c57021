package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/vendors"
)

// api is one of the three APIs.
type api struct {
	path, body string // of a turn; %q is the prompt
	keyHeader  string
	bearer     string // before the key
	profile    func(hosts ...string) *resilienthttp.Transport
}

var (
	openAI = api{
		path: "/v1/responses", body: `{"model":"gpt-5","max_output_tokens":1900,"stream":true,"input":%q}`,
		keyHeader: "Authorization", bearer: "Bearer ", profile: vendors.OpenAI,
	}
	openAIChat = api{
		path: "/v1/chat/completions", body: `{"model":"gpt-5","max_completion_tokens":1900,"stream":true,"messages":[{"role":"user","content":%q}]}`,
		keyHeader: "Authorization", bearer: "Bearer ", profile: vendors.OpenAI,
	}
	anthropic = api{
		path: "/v1/messages", body: `{"model":"claude-sonnet-4-5","max_tokens":1900,"stream":true,"messages":[{"role":"user","content":%q}]}`,
		keyHeader: "X-Api-Key", profile: vendors.Anthropic,
	}
)

// pool are two keys, and a region with a key of its own.
func (a api) pool(base *url.URL) []endpoints.Endpoint {
	base = base.JoinPath("/") // a base without a path would make that of the region relative: "eu"
	key := func(name string) http.Header { return http.Header{a.keyHeader: {a.bearer + name}} }
	return []endpoints.Endpoint{
		{Name: "key-1", URL: base, Header: key("key-1")},
		{Name: "key-2", URL: base, Header: key("key-2")},
		{Name: "eu", URL: base.JoinPath("eu"), Header: key("key-eu")},
	}
}

// newClient returns the client with a Transport. Of the vendor's profile it uses what events mean (Stream), which POSTs may be
// repeated (Idempotent), and how many tokens a request costs (RateLimit.Cost).
func (a api) newClient(base *url.URL, below http.RoundTripper) *http.Client {
	t := a.profile(base.Hostname()) // the host, because it is not the vendor's
	t.Base = below
	t.Policy.Stream.FirstEvent = 5 * time.Second // then the next key or region
	return &http.Client{Transport: &endpoints.Transport{Transport: t, Endpoints: a.pool(base)}}
}

// event is what the events of the APIs have in common. Those of a Chat Completion have no type.
type event struct {
	Type    string          `json:"type"`
	Delta   json.RawMessage `json:"delta"` // a text, or an object with a text
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (e *event) text() (text string) {
	if len(e.Choices) > 0 {
		return e.Choices[0].Delta.Content
	}
	var delta struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(e.Delta, &text) != nil && json.Unmarshal(e.Delta, &delta) == nil {
		text = delta.Text
	}
	return text
}

// failure returns the error of a failure event.
func (e *event) failure() error {
	switch {
	case e.Error != nil:
		return fmt.Errorf("failure event: %s", e.Error.Message)
	case e.Type == "error", e.Type == "response.failed":
		return errors.New("failure event without a message")
	}
	return nil
}

// turn sends a prompt, and calls each with the texts of the answer as they come. The code has nothing about retries: a stream
// that fails before its first event of content never gets here. One that fails later is the program's: it has shown a part.
func (a api) turn(ctx context.Context, client *http.Client, base *url.URL, prompt string, each func(text string)) error {
	body := strings.NewReader(fmt.Sprintf(a.body, prompt))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(a.path).String(), body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return err
			}
			return io.ErrUnexpectedEOF
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" { // of a Chat Completion
			return nil
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if err := e.failure(); err != nil {
			return err
		}
		switch e.Type {
		case "response.output_text.delta", "content_block_delta", "":
			if text := e.text(); text != "" { // the first chunk has the role alone
				each(text)
			}
		case "response.completed", "message_stop":
			return nil
		}
	}
}
