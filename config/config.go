// Package config reads the configuration of a Transport as operators write it: JSON, with
// durations as text.
//
//	{
//	  "Policy":    {"MaxAttempts": 3, "AttemptTimeout": "5s", "Backoff": {"Strategy": "FullJitter", "Base": "100ms", "Max": "10s"}},
//	  "Budget":    {"Ratio": 0.2},
//	  "RateLimit": {"Limit": 50, "MaxWait": "10s"},
//	  "Breaker":   {"FailureRatio": 0.5, "Cooldown": "1s"},
//	  "Hedge":     {}
//	}
//
// The names are those of the Transport's fields, and mean what is written there.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// MaxSize is the most bytes that Read takes for a configuration.
const MaxSize = 1 << 20

// Read reads one JSON object from r and sets the fields of t that it names; all others
// stay as they are. So a program writes down its own defaults, and then reads what its
// operators want otherwise.
//
// Names are those of the fields, in any case ("attemptTimeout"). A duration is a string as
// time.ParseDuration takes it ("1m30s", "250ms"; "-1s" where negative turns off), never a
// number. Policy.Backoff is an object: Strategy is FullJitter, EqualJitter,
// DecorrelatedJitter or Exponential, with Base and Max, or Constant, with Base alone.
// Budget, RateLimit, Breaker, Hedge and Policy.AdaptiveTimeout are made if they are nil, and so
// turned on; the fields of one that is there are set in place, for all Transports that
// share it.
//
// Errors name the field: one that is not known, is there twice, or can only be set in Go;
// a value of the wrong kind; and what Transport.Validate refuses. All of them are told at
// once, and then t is as it was. The text must be one object of no more than MaxSize, in
// UTF-8, with or without a byte order mark, and nothing behind it.
//
// Like any setting of fields, it must come before the first use of t and of what t shares.
func Read(r io.Reader, t *resilienthttp.Transport) error {
	if t == nil {
		return errors.New("config: nil Transport")
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if len(text) > MaxSize {
		return fmt.Errorf("config: more than %d bytes", MaxSize)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as some editors begin a file
	if err := wellFormed(text); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	tried := resilienthttp.Transport{}
	settle(reflect.ValueOf(&tried).Elem(), reflect.ValueOf(t).Elem())
	if err := set(&tried, text); err != nil {
		return err
	}
	if err := tried.Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return set(t, text)
}

// wellFormed tells where the text is no JSON, by line.
func wellFormed(text []byte) error {
	var object json.RawMessage
	err := json.Unmarshal(text, &object)
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := text[:min(max(wrong.Offset, 0), int64(len(text)))]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	}
	return err
}

// settle copies the fields of one struct that can be set, those that are pointers to
// structs into new ones.
func settle(to, from reflect.Value) {
	for i := range to.NumField() {
		if !to.Type().Field(i).IsExported() {
			continue
		}
		switch at := from.Field(i); {
		case !isStruct(at.Type()) || at.Kind() == reflect.Pointer && at.IsNil():
			to.Field(i).Set(at)
		case at.Kind() == reflect.Struct:
			settle(to.Field(i), at)
		default:
			made := reflect.New(at.Type().Elem())
			settle(made.Elem(), at.Elem())
			to.Field(i).Set(made)
		}
	}
}

// isStruct reports whether the type is a struct or a pointer to one.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func set(t *resilienthttp.Transport, text []byte) error {
	var c complaints
	c.object(reflect.ValueOf(t).Elem(), "", text)
	return errors.Join(c...)
}

// complaints are what is wrong with a configuration.
type complaints []error

func (c *complaints) addf(field, format string, args ...any) {
	if field == "" {
		field = "it"
	}
	*c = append(*c, fmt.Errorf("config: %s %s", field, fmt.Sprintf(format, args...)))
}

// members are those of an object, in its order. Names that differ in their case are the
// same.
func (c *complaints) members(path string, text []byte) (members []member) {
	d := json.NewDecoder(bytes.NewReader(text))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		c.addf(path, "is %s, and must be an object", kindOf(text))
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			c.addf(path, "cannot be read: %v", err)
			return nil
		}
		m := member{name: fmt.Sprint(name), value: value}
		if key := strings.ToLower(m.name); seen[key] {
			c.addf(join(path, m.name), "is there twice")
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

// object sets the fields of a struct.
func (c *complaints) object(to reflect.Value, path string, text []byte) {
	for _, m := range c.members(path, text) {
		field, ok := to.Type().FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, m.name) })
		if !ok || !field.IsExported() {
			c.addf(join(path, m.name), "is no field")
			continue
		}
		c.value(to.FieldByIndex(field.Index), join(path, field.Name), m.value)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// value sets one field.
func (c *complaints) value(to reflect.Value, path string, text []byte) {
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
	case **resilienthttp.Trace: // which is functions, and nothing else
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

// plain sets a number, a text, a truth, or a list of texts.
func (c *complaints) plain(to reflect.Value, path string, text []byte) {
	want := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Float64: "a number", reflect.String: "a string", reflect.Slice: "a list of strings",
	}[to.Kind()]
	made := reflect.New(to.Type())
	if string(bytes.TrimSpace(text)) == "null" {
		c.addf(path, "is null, and must be %s", want)
		return
	}
	if i, item, found := notText(text); found && to.Kind() == reflect.Slice {
		c.addf(path+"["+strconv.Itoa(i)+"]", "is %s, and must be a string", kindOf(item))
		return
	}
	if err := json.Unmarshal(text, made.Interface()); err != nil {
		c.addf(path, "is %s, and must be %s", kindOf(text), want)
		return
	}
	if to.Kind() == reflect.Float64 && math.IsInf(made.Elem().Float(), 0) {
		c.addf(path, "is too large")
		return
	}
	to.Set(made.Elem())
}

// notText is the first item of a list that is no string.
func notText(text []byte) (i int, item []byte, found bool) {
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

func (c *complaints) duration(path string, text []byte) (time.Duration, bool) {
	var said string
	if text[0] != '"' || json.Unmarshal(text, &said) != nil {
		c.addf(path, `is %s, and must be a duration as text, as "5s" or "250ms"`, kindOf(text))
		return 0, false
	}
	d, err := time.ParseDuration(said)
	if err != nil {
		c.addf(path, `is %s, which is no duration: write "5s" or "250ms"`, strconv.Quote(said))
		return 0, false
	}
	return d, true
}

// strategies are the kinds of Backoff that take a base and a maximum.
var strategies = map[string]func(base, most time.Duration) resilienthttp.Backoff{ //nolint:gochecknoglobals // never written to
	"fulljitter": resilienthttp.FullJitter, "equaljitter": resilienthttp.EqualJitter,
	"decorrelatedjitter": resilienthttp.DecorrelatedJitter, "exponential": resilienthttp.Exponential,
}

// backoff makes a Backoff; nil: something is wrong.
func (c *complaints) backoff(path string, text []byte) resilienthttp.Backoff {
	said := struct {
		Strategy  string
		Base, Max time.Duration
	}{}
	before := len(*c)
	c.object(reflect.ValueOf(&said).Elem(), path, text)
	if len(*c) > before {
		return nil
	}
	for name, d := range map[string]time.Duration{"Base": said.Base, "Max": said.Max} {
		if d < 0 || d > 0 && d < time.Microsecond {
			c.addf(join(path, name), "is %v, which nobody waits", d)
		}
	}
	strategy := strategies[strings.ToLower(said.Strategy)]
	constant := strings.EqualFold(said.Strategy, "constant")
	switch {
	case strategy == nil && !constant:
		c.addf(join(path, "Strategy"), "is %s, and must be FullJitter, EqualJitter, DecorrelatedJitter, Exponential or Constant", strconv.Quote(said.Strategy))
	case constant && said.Max != 0:
		c.addf(join(path, "Max"), "is of no use: Constant waits its Base")
	case !constant && said.Base == 0:
		c.addf(join(path, "Base"), "is missing")
	case !constant && said.Max < said.Base:
		c.addf(join(path, "Max"), "is less than Base")
	}
	switch {
	case len(*c) > before:
		return nil
	case constant:
		return resilienthttp.Constant(said.Base)
	}
	return strategy(said.Base, said.Max)
}

// kindOf says what a value is, without saying it.
func kindOf(text []byte) string {
	switch text = bytes.TrimSpace(text); {
	case len(text) == 0:
		return "nothing"
	case text[0] == '{':
		return "an object"
	case text[0] == '[':
		return "a list"
	case text[0] == '"':
		return "a string"
	case text[0] == 't', text[0] == 'f':
		return "true or false"
	case text[0] == 'n':
		return "null"
	case len(text) > 20:
		return "a number"
	}
	return string(text)
}
