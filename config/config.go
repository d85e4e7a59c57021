// Package config reads the configuration of a Transport from JSON. Durations are strings.
//
//	{
//	  "Policy":    {"MaxAttempts": 3, "AttemptTimeout": "5s", "Backoff": {"Strategy": "FullJitter", "Base": "100ms", "Max": "10s"}},
//	  "Budget":    {"Ratio": 0.2},
//	  "RateLimit": {"Limit": 50, "MaxWait": "10s"},
//	  "Breaker":   {"FailureRatio": 0.5, "Cooldown": "1s"},
//	  "Hedge":     {}
//	}
//
// The names are those of the fields of resilienthttp.Transport. Connections.MaxAge is that of the
// Connections that is Base, or becomes it. Policy.Backoff is an object:
// Strategy is FullJitter or DecorrelatedJitter, with Base and Max, or Constant, with Base. See
// docs/configuration.md.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// MaxSize is the maximum size of a configuration, in bytes.
const MaxSize = 1 << 20

// Read reads one JSON object from r and sets the fields of t that the object names, in any case
// ("attemptTimeout"). Other fields keep their values. A nil Budget, RateLimit, Breaker or Hedge is
// allocated. Read must be called before the first use of t and of the parts that t shares.
// Durations are strings such as "1m30s". See docs/configuration.md.
//
// If there are errors, t is unchanged, and the error lists all of them by field: unknown and
// duplicate fields, fields that can only be set in Go, wrong types, and errors of
// Transport.Validate. The text is UTF-8, of at most MaxSize.
func Read(r io.Reader, t *resilienthttp.Transport) error {
	switch {
	case r == nil:
		return errors.New("config: Reader is nil")
	case t == nil:
		return errors.New("config: Transport is nil")
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if len(text) > MaxSize {
		return fmt.Errorf("config: text is longer than %d bytes", MaxSize)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors write one
	if err := wellFormed(text); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	trial := resilienthttp.Transport{}
	copyFields(reflect.ValueOf(&trial).Elem(), reflect.ValueOf(t).Elem())
	if err := set(&trial, text); err != nil {
		return err
	}
	if err := trial.Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return set(t, text)
}

// wellFormed returns an error with the line if the text is not valid JSON.
func wellFormed(text []byte) error {
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntaxErr, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := text[:min(max(syntaxErr.Offset, 0), int64(len(text)))]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	}
	return err
}

// copyFields copies the exported fields of a struct. It copies structs behind pointers too, so
// that a failed Read does not change them.
func copyFields(to, from reflect.Value) {
	for i := range to.NumField() {
		if !to.Type().Field(i).IsExported() {
			continue
		}
		switch field := from.Field(i); {
		case !isStruct(field.Type()) || field.Kind() == reflect.Pointer && field.IsNil():
			to.Field(i).Set(field)
		case field.Kind() == reflect.Struct:
			copyFields(to.Field(i), field)
		default:
			target := reflect.New(field.Type().Elem())
			copyFields(target.Elem(), field.Elem())
			to.Field(i).Set(target)
		}
	}
}

// isStruct reports whether the type is a struct or a pointer to one.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func set(t *resilienthttp.Transport, text []byte) error {
	var c fieldErrors
	c.object(reflect.ValueOf(t).Elem(), "", text)
	return errors.Join(c...)
}

// fieldErrors are the errors of a configuration.
type fieldErrors []error

func (c *fieldErrors) addf(field, format string, args ...any) {
	if field == "" {
		field = "text"
	}
	*c = append(*c, fmt.Errorf("config: %s: %s", field, fmt.Sprintf(format, args...)))
}

// members returns the members of an object in their order. Names that differ only in case are
// duplicates. The text is well-formed.
func (c *fieldErrors) members(path string, text []byte) (members []member) {
	d := json.NewDecoder(bytes.NewReader(text))
	if token, _ := d.Token(); token != json.Delim('{') {
		c.addf(path, "got %s, want object", kindOf(text))
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		name, _ := d.Token()
		m := member{name: fmt.Sprint(name)}
		_ = d.Decode(&m.value)
		if key := strings.ToLower(m.name); seen[key] {
			c.addf(join(path, m.name), "duplicate field")
		} else {
			seen[key] = true
			members = append(members, m)
		}
	}
	return members
}

type member struct {
	name  string
	value json.RawMessage
}

// object sets the fields of a struct from a JSON object.
func (c *fieldErrors) object(to reflect.Value, path string, text []byte) {
	for _, m := range c.members(path, text) {
		if t, ok := reflect.TypeAssert[*resilienthttp.Transport](to.Addr()); ok && strings.EqualFold(m.name, "Connections") {
			c.connections(t, m.value)
			continue
		}
		field, ok := to.Type().FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, m.name) })
		if !ok || !field.IsExported() {
			c.addf(join(path, m.name), "unknown field")
			continue
		}
		c.value(to.FieldByIndex(field.Index), join(path, field.Name), m.value)
	}
}

// connections sets the fields of a Connections, which is the Base or becomes it.
func (c *fieldErrors) connections(t *resilienthttp.Transport, text []byte) {
	before, ok := t.Base.(*resilienthttp.Connections)
	if !ok && t.Base != nil {
		c.addf("Connections", "Base is a %T", t.Base)
		return
	}
	connections := &resilienthttp.Connections{}
	if before != nil {
		connections.Transport, connections.MaxAge = before.Transport, before.MaxAge
	}
	options := struct{ MaxAge time.Duration }{connections.MaxAge}
	c.object(reflect.ValueOf(&options).Elem(), "Connections", text)
	connections.MaxAge = options.MaxAge
	t.Base = connections
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// value sets one field.
func (c *fieldErrors) value(to reflect.Value, path string, text []byte) {
	switch to.Addr().Interface().(type) {
	case *time.Duration:
		if d, ok := c.duration(path, text); ok {
			to.SetInt(int64(d))
		}
		return
	case *resilienthttp.Backoff:
		if b := c.backoff(path, text); b != nil {
			to.Set(reflect.ValueOf(b))
		}
		return
	case **resilienthttp.Trace: // it has functions only
		c.addf(path, "can only be set in Go")
		return
	}
	switch {
	case to.Kind() == reflect.Struct:
		c.object(to, path, text)
	case isStruct(to.Type()):
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		c.object(to.Elem(), path, text)
	case to.Kind() == reflect.Func, to.Kind() == reflect.Interface:
		c.addf(path, "can only be set in Go")
	default:
		c.plain(to, path, text)
	}
}

// plain sets a number, a string, a boolean, or a list of strings.
func (c *fieldErrors) plain(to reflect.Value, path string, text []byte) {
	want := map[reflect.Kind]string{
		reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number", reflect.String: "string", reflect.Slice: "list of strings",
	}[to.Kind()]
	target := reflect.New(to.Type())
	if string(bytes.TrimSpace(text)) == "null" {
		c.addf(path, "got null, want %s", want)
		return
	}
	if i, item, found := notString(text); found && to.Kind() == reflect.Slice {
		c.addf(path+"["+strconv.Itoa(i)+"]", "got %s, want string", kindOf(item))
		return
	}
	if err := json.Unmarshal(text, target.Interface()); err != nil {
		c.addf(path, "got %s, want %s", kindOf(text), want)
		return
	}
	to.Set(target.Elem())
}

// notString returns the first item of a list that is not a string.
func notString(text []byte) (i int, item []byte, found bool) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return 0, nil, false
	}
	for i, item := range list {
		if item[0] != '"' {
			return i, item, true
		}
	}
	return 0, nil, false
}

func (c *fieldErrors) duration(path string, text []byte) (time.Duration, bool) {
	var value string
	got := kindOf(text)
	if text[0] == '"' && json.Unmarshal(text, &value) == nil {
		if d, err := time.ParseDuration(value); err == nil {
			return d, true
		}
		got = strconv.Quote(value)
	}
	c.addf(path, `got %s, want duration string such as "5s"`, got)
	return 0, false
}

// strategies are the strategies with a base and a maximum.
var strategies = map[string]func(base, maximum time.Duration) resilienthttp.Backoff{ //nolint:gochecknoglobals // never written to
	"fulljitter": resilienthttp.FullJitter, "decorrelatedjitter": resilienthttp.DecorrelatedJitter,
}

// backoff returns a Backoff, or nil if there are errors.
func (c *fieldErrors) backoff(path string, text []byte) resilienthttp.Backoff {
	options := struct {
		Strategy  string
		Base, Max time.Duration
	}{}
	before := len(*c)
	c.object(reflect.ValueOf(&options).Elem(), path, text)
	if len(*c) > before {
		return nil
	}
	for name, d := range map[string]time.Duration{"Base": options.Base, "Max": options.Max} {
		if d < 0 || d > 0 && d < time.Microsecond {
			c.addf(join(path, name), "is %v, must be 0 or at least 1µs", d)
		}
	}
	strategy := strategies[strings.ToLower(options.Strategy)]
	constant := strings.EqualFold(options.Strategy, "constant")
	switch {
	case strategy == nil && !constant:
		c.addf(join(path, "Strategy"), "got %s, want FullJitter, DecorrelatedJitter or Constant", strconv.Quote(options.Strategy))
	case constant && options.Max != 0:
		c.addf(join(path, "Max"), "not used by Constant")
	case !constant && options.Base == 0:
		c.addf(join(path, "Base"), "missing")
	case !constant && options.Max < options.Base:
		c.addf(join(path, "Max"), "is %v, must not be less than Base", options.Max)
	}
	switch {
	case len(*c) > before:
		return nil
	case constant:
		return resilienthttp.Constant(options.Base)
	}
	return strategy(options.Base, options.Max)
}

// kindOf returns the kind of a JSON value. Strings are not included, because they may be secret.
func kindOf(text []byte) string {
	switch text = bytes.TrimSpace(text); {
	case text[0] == '{':
		return "object"
	case text[0] == '[':
		return "list"
	case text[0] == '"':
		return "string"
	case text[0] == 't', text[0] == 'f':
		return "boolean"
	case text[0] == 'n':
		return "null"
	case len(text) > 20:
		return "number"
	}
	return string(text)
}
