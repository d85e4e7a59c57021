package main

import (
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fault is what the server does to the first request of a turn.
type fault int

const (
	noFault fault = iota
	overloadedEvent
	serverErrorEvent
	endsEmpty
	breaks    // after the work
	silent    // for a minute, while it works
	throttled // 429, which says when
	faults
)

// faultEach is the number of turns of which the last one meets a fault.
const faultEach = 4

// faultOf returns the fault of a turn, each in its turn.
func faultOf(turn int) fault {
	if turn%faultEach != 0 {
		return noFault
	}
	return 1 + fault(turn/faultEach-1)%(faults-1)
}

// The texts of the three APIs.
type texts struct{ begin, overloaded, serverError, content, end string }

var (
	openAITexts = texts{
		begin:       `{"type":"response.created"}`,
		overloaded:  `{"type":"error","code":"server_is_overloaded","error":{"code":"server_is_overloaded","message":"overloaded"}}`,
		serverError: `{"type":"response.failed","response":{"error":{"code":"server_error"}}}`,
		content:     `{"type":"response.output_text.delta","delta":"Hello"}`, end: `{"type":"response.completed"}`,
	}
	chatTexts = texts{
		begin:       `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
		overloaded:  `{"error":{"code":"server_is_overloaded","message":"overloaded"}}`,
		serverError: `{"error":{"type":"server_error","message":"The server had an error while processing your request."}}`,
		content:     `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}`, end: `[DONE]`,
	}
	anthropicTexts = texts{
		begin:       `{"type":"message_start"}`,
		overloaded:  `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
		serverError: `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`,
		content:     `{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello"}}`, end: `{"type":"message_stop"}`,
	}
)

const (
	tokensPerMinute = 30_000
	tokensPerTurn   = 2000
	thinks          = 500 * time.Millisecond // until the first text
)

// model is a server with the three APIs. Each key has a bucket of tokens for each of them.
type model struct {
	mu     sync.Mutex
	tokens map[string]float64
	at     map[string]time.Time
	turns  map[string]bool // that have been requested
	billed map[string]int  // answers by turn
}

func newModel() *model {
	return &model{tokens: map[string]float64{}, at: map[string]time.Time{}, turns: map[string]bool{}, billed: map[string]int{}}
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	_, rest, _ := strings.Cut(string(body), "turn ")
	number, _, _ := strings.Cut(rest, `"`)
	n, err := strconv.Atoi(number)
	if err != nil {
		http.Error(w, "the prompt has no number", http.StatusBadRequest)
		return
	}
	say, of := openAITexts, "openai "
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages"):
		say, of = anthropicTexts, "anthropic "
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		say, of = chatTexts, "chat "
	}
	f, ok := m.admit(w.Header(), of+number, of+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), n)
	if !ok {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(after time.Duration, data string) {
		select {
		case <-time.After(after):
			_, _ = io.WriteString(w, "data: "+data+"\n\n")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	send(0, say.begin)
	switch f {
	case overloadedEvent:
		send(0, say.overloaded)
	case serverErrorEvent:
		send(0, say.serverError)
	case endsEmpty:
	case breaks:
		panic(http.ErrAbortHandler)
	case silent:
		send(time.Minute, say.content)
		send(0, say.end)
	default:
		send(thinks, say.content)
		send(thinks, say.end)
	}
}

// admit takes the tokens of a request, describes the quota, and bills the work. It returns the fault of the request.
func (m *model) admit(h http.Header, turn, key string, n int) (f fault, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.turns[turn] {
		f = faultOf(n)
	}
	m.turns[turn] = true
	const perSecond = tokensPerMinute / 60.0
	now, left := time.Now(), float64(tokensPerMinute)
	if last, known := m.at[key]; known {
		left = min(m.tokens[key]+now.Sub(last).Seconds()*perSecond, tokensPerMinute)
	}
	ok = f != throttled
	wait := 2.0
	if ok && left < tokensPerTurn {
		ok, wait = false, math.Ceil((tokensPerTurn-left)/perSecond)
	}
	if !ok {
		h.Set("Retry-After", strconv.Itoa(int(wait)))
	} else if f != overloadedEvent {
		left -= tokensPerTurn
		if f == noFault || f == breaks || f == silent {
			m.billed[turn]++
		}
	}
	m.tokens[key], m.at[key] = left, now
	h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(tokensPerMinute))
	h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(int(left)))
	h.Set("X-Ratelimit-Reset-Tokens", time.Duration((tokensPerMinute-left)/perSecond*float64(time.Second)).Round(time.Millisecond).String())
	return f, ok
}
