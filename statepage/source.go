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

// sourceTimeout is the time that the page waits for its sources.
const sourceTimeout = time.Second

// source is a Source. busy means that its State is running.
type source struct {
	Source
	busy atomic.Bool
}

// sourceView is the state of a source.
type sourceView struct {
	Name  string          `json:"name"`
	State json.RawMessage `json:"state,omitempty"`
	Error string          `json:"error,omitempty"`

	shown json.RawMessage // State with durations as texts
}

// askAll calls all sources concurrently, and does not wait for one that hangs.
func askAll(ctx context.Context, sources []*source) []sourceView {
	if len(sources) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	answers := make([]chan sourceView, len(sources))
	for i, s := range sources {
		answers[i] = make(chan sourceView, 1)
		if s.busy.Swap(true) {
			answers[i] <- sourceView{Name: s.Name, Error: "the previous call has not returned"}
			continue
		}
		go func() {
			view := s.ask(ctx)
			s.busy.Store(false) // before the answer is sent: its receiver may ask again at once
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
		case views[i] = <-answers[i]: // it came while another one was awaited
		default:
			views[i] = sourceView{Name: s.Name, Error: "no answer within a second"}
		}
	}
	return views
}

func (s *source) ask(ctx context.Context) (v sourceView) {
	v.Name = s.Name
	defer func() {
		if r := recover(); r != nil {
			v.State, v.shown, v.Error = nil, nil, "panicked" // the value may contain a secret
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

// state returns the state for the JSON, with durations in seconds, and for the HTML, as texts.
func (s *source) state(ctx context.Context) (text, shown json.RawMessage, err error) {
	if s.State == nil {
		return nil, nil, neterr.New("State is nil")
	}
	state, err := s.State(ctx)
	if err != nil {
		return nil, nil, err
	}
	value := reflect.ValueOf(state)
	text, err = json.Marshal(withDurations(value, func(d time.Duration) any { return d.Seconds() }, 0))
	if err != nil {
		return nil, nil, err
	}
	shown, err = json.Marshal(withDurations(value, func(d time.Duration) any { return formatDuration(d) }, 0))
	return text, shown, err
}

// entry is one value of a source and its path.
type entry struct{ Path, Value string }

// maxEntries is the maximum number of values of a source in the HTML.
const maxEntries = 200

// Entries returns the values of the state in order.
func (v *sourceView) Entries() section[entry] {
	var all []entry
	d := json.NewDecoder(bytes.NewReader(v.shown))
	d.UseNumber()
	walk(d, "", func(e entry) { all = append(all, e) })
	return newSection(all, maxEntries)
}

// walk calls f with each value of a well-formed text.
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
