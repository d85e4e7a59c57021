package statepage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// sourceTime is how long the page waits for its sources.
const sourceTime = time.Second

// source is a Source, and whether it is being asked.
type source struct {
	Source
	busy atomic.Bool
}

// sourceView is what a source said.
type sourceView struct {
	Name  string          `json:"name"`
	State json.RawMessage `json:"state,omitempty"`
	Error string          `json:"error,omitempty"`

	shown json.RawMessage // State in the HTML's words
}

// askAll asks all sources at once, and does not wait for those that hang.
func askAll(ctx context.Context, sources []*source) []sourceView {
	if len(sources) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	answers := make([]chan sourceView, len(sources))
	for i, s := range sources {
		answers[i] = make(chan sourceView, 1)
		if s.busy.Swap(true) {
			answers[i] <- sourceView{Name: s.Name, Error: "has not answered since it was last asked"}
			continue
		}
		go func() {
			view := s.ask(ctx)
			s.busy.Store(false) // before it is told: whoever has the answer may ask again at once
			answers[i] <- view
		}()
	}
	views := make([]sourceView, len(sources))
	for i, s := range sources {
		select {
		case views[i] = <-answers[i]:
			continue
		case <-ctx.Done():
		}
		select {
		case views[i] = <-answers[i]: // another one was waited for meanwhile
		default:
			views[i] = sourceView{Name: s.Name, Error: "does not answer"}
		}
	}
	return views
}

func (s *source) ask(ctx context.Context) (v sourceView) {
	v.Name = s.Name
	defer func() {
		if r := recover(); r != nil {
			v.State, v.shown, v.Error = nil, nil, fmt.Sprintf("panicked: %v", r)
		}
	}()
	state, shown, err := s.state(ctx)
	if err != nil {
		v.Error = neterr.SafeText(err)
		return v
	}
	v.State, v.shown = state, shown
	return v
}

// state is the source's state as the JSON has it, whose spans are seconds, and in words.
func (s *source) state(ctx context.Context) (text, shown json.RawMessage, err error) {
	if s.State == nil {
		return nil, nil, neterr.New("has no State")
	}
	state, err := s.State(ctx)
	if err != nil {
		return nil, nil, err
	}
	value := reflect.ValueOf(state)
	text, err = json.Marshal(withSpans(value, func(d time.Duration) any { return d.Seconds() }, 0))
	if err != nil {
		return nil, nil, err
	}
	shown, err = json.Marshal(withSpans(value, func(d time.Duration) any { return wordsOf(d) }, 0))
	return text, shown, err
}

// wordsOf is spanOf, also of what is past.
func wordsOf(d time.Duration) string {
	if d < 0 {
		return "-" + spanOf(-d.Seconds())
	}
	return spanOf(d.Seconds())
}

// entry is one value of a source, and where in its state it stands.
type entry struct{ Path, Value string }

// mostEntries is how many of a source's values the HTML shows.
const mostEntries = 200

// entries are the values in a JSON text, in its order, and how many were left out.
func entries(text json.RawMessage) (all []entry, left int) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	walk(d, "", func(e entry) {
		if len(all) < mostEntries {
			all = append(all, e)
		} else {
			left++
		}
	})
	return all, left
}

// walk calls f with each value. What comes from json.Marshal is well-formed.
func walk(d *json.Decoder, path string, f func(entry)) {
	token, err := d.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('{'):
		for d.More() {
			name, _ := d.Token()
			walk(d, join(path, fmt.Sprint(name)), f)
		}
		_, _ = d.Token()
	case json.Delim('['):
		for i := 0; d.More(); i++ {
			walk(d, join(path, strconv.Itoa(i+1)), f)
		}
		_, _ = d.Token()
	case nil:
		f(entry{path, "–"})
	default:
		f(entry{path, fmt.Sprint(token)})
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + " › " + name
}
