package vendors

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

const (
	// unknownModel is the key of a request without a model in the first maxModelBody bytes.
	unknownModel = "unknown"

	maxModelBody = 1 << 20
	maxModelName = 128 // bytes
)

// modelOf returns the model of a request to an API for language models: the member "model" of a
// JSON object, or the part "model" of a form. It reads a copy of the body.
func modelOf(r *http.Request) string {
	body := copyOf(r)
	if body == nil {
		return unknownModel
	}
	defer body.Close()
	in := io.LimitReader(body, maxModelBody)
	var model string
	if kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "multipart/form-data" {
		model = partNamed(multipart.NewReader(in, params["boundary"]), "model")
	} else {
		model = (&jsonScanner{bufio.NewReader(in)}).member("model")
	}
	if model == "" || len(model) > maxModelName {
		return unknownModel
	}
	return model
}

// copyOf returns a copy of the request's body, or nil if there is none.
func copyOf(r *http.Request) io.ReadCloser {
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	return body
}

// partNamed returns the content of the form's part with the name, or "".
func partNamed(form *multipart.Reader, name string) string {
	for {
		part, err := form.NextRawPart()
		if err != nil {
			return ""
		}
		if part.FormName() == name {
			content, err := io.ReadAll(io.LimitReader(part, maxModelName+1))
			if err != nil {
				return ""
			}
			return string(content)
		}
	}
}

// familyOf returns the models that share quotas with a model of Anthropic: its name without the
// date, and without the minor version of the models since version 4 (claude-sonnet-4-5-20250929
// is claude-sonnet-4).
func familyOf(model string) string {
	words := strings.Split(model, "-")
	if last := words[len(words)-1]; len(words) > 1 && (last == "latest" || len(last) == 8 && isNumber(last)) {
		words = words[:len(words)-1]
	}
	if n := len(words); n > 3 && isNumber(words[n-1]) && isNumber(words[n-2]) {
		words = words[:n-1]
	}
	return strings.Join(words, "-")
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// jsonScanner finds a member of a JSON object. It skips other values without decoding them: a
// prompt may have some hundred kilobytes, and comes before the model in some clients' requests.
type jsonScanner struct{ in *bufio.Reader }

// members calls visit with the name of each member of the object and the first byte of its value, while the text is
// well formed. visit reads the value, and returns the byte after it.
func (s *jsonScanner) members(visit func(name string, first byte) (end byte)) {
	if s.token() != '{' {
		return
	}
	for s.token() == '"' {
		name, ok := s.text()
		if !ok || s.token() != ':' || visit(name, s.token()) != ',' {
			return
		}
	}
}

// member returns the string value of the object's member with the name, or "" if there is none or
// the text is malformed. Neither may have escape sequences.
func (s *jsonScanner) member(name string) (value string) {
	s.members(func(key string, first byte) byte {
		if first == '"' && key == name {
			value, _ = s.text()
			return 0 // what follows is not read
		}
		return s.skip(first)
	})
	return value
}

// token returns the next byte that is not a blank, or 0 at the end.
func (s *jsonScanner) token() byte {
	for {
		switch c, err := s.in.ReadByte(); {
		case err != nil:
			return 0
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			return c
		}
	}
}

// text returns the rest of a string, or "" if it is long or has an escape sequence. ok is false if
// the string does not end.
func (s *jsonScanner) text() (text string, ok bool) {
	var b [maxModelName + 1]byte
	for n := range b {
		c, err := s.in.ReadByte()
		switch {
		case err != nil:
			return "", false
		case c == '"':
			return string(b[:n]), true
		case c == '\\':
			_, _ = s.in.ReadByte()
			return "", s.skipString()
		}
		b[n] = c
	}
	return "", s.skipString()
}

// skipString skips the rest of a string, and reports whether it ends.
func (s *jsonScanner) skipString() bool {
	for {
		if _, err := s.in.Peek(1); err != nil {
			return false
		}
		ready, _ := s.in.Peek(s.in.Buffered())
		i := bytes.IndexAny(ready, `"\\`)
		if i < 0 {
			_, _ = s.in.Discard(len(ready))
			continue
		}
		quote := ready[i] == '"'
		_, _ = s.in.Discard(i + 1)
		if quote {
			return true
		}
		_, _ = s.in.ReadByte() // the escaped byte
	}
}

// skip skips the rest of a value, and returns the byte after it, or 0 at the end.
func (s *jsonScanner) skip(first byte) byte {
	depth := 0
	for c := first; ; c = s.token() {
		switch c {
		case 0:
			return 0
		case '"':
			if !s.skipString() {
				return 0
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return c // the end of the object
			}
		case ',':
			if depth == 0 {
				return c
			}
		}
	}
}
