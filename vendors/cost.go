package vendors

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/http"
)

const (
	// bytesPerToken is OpenAI's rule of thumb for English text.
	bytesPerToken = 4

	// maxTokenDigits bounds the numbers that are read. Larger ones mean nothing.
	maxTokenDigits = 9
)

// tokensOf estimates the tokens of a request to an API for language models: a quarter of the bytes of its
// JSON, and the most tokens that the response may have. 0 means unknown: a body of another type, or of
// unknown length. Like modelOf it reads a copy of the body until the member "model"; what follows counts
// only if it is in the buffer then.
func tokensOf(r *http.Request) float64 {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength <= 0 || kind != "" && kind != "application/json" {
		return 0
	}
	body := copyOf(r)
	if body == nil {
		return 0
	}
	defer body.Close()
	s := &jsonScanner{bufio.NewReader(io.LimitReader(body, maxModelBody))}
	return float64(r.ContentLength)/bytesPerToken + float64(s.maxTokens())
}

// maxTokens returns the number of tokens that the response may have, or 0 if the object does not say so.
func (s *jsonScanner) maxTokens() (most int64) {
	s.members(func(name string, first byte) (end byte) {
		switch name {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			number, end := s.number(first)
			most = max(most, number)
			return end
		}
		end = s.skip(first)
		if name == "model" { // a prompt may follow
			rest, _ := s.in.Peek(s.in.Buffered())
			s.in = bufio.NewReader(bytes.NewReader(rest))
		}
		return end
	})
	return most
}

// number returns a whole number and the byte after it. Another value is 0.
func (s *jsonScanner) number(first byte) (number int64, end byte) {
	c := first
	for digits := 0; c >= '0' && c <= '9' && digits < maxTokenDigits; digits++ {
		number = 10*number + int64(c-'0')
		c = s.token()
	}
	if c != ',' && c != '}' {
		return 0, s.skip(c)
	}
	return number, c
}
