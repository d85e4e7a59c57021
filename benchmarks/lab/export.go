package lab

import (
	"fmt"
	"go/format"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
)

// Row returns the experiment as a Go literal of the fleet's Scenario, for a file of package fleet.
func (s *Spec) Row() string {
	sc := s.Scenario()
	var b strings.Builder
	b.WriteString("Scenario")
	literal(&b, reflect.ValueOf(sc), s.config)
	const before = "package fleet\n\nvar row = "
	text, err := format.Source([]byte(before + b.String() + "\n"))
	if err != nil {
		panic(fmt.Sprintf("lab: %v in %s", err, b.String())) // literal writes Go
	}
	return strings.TrimPrefix(string(text), before)
}

// literal writes a value as Go, a struct without its type. It leaves out fields that are zero.
func literal(b *strings.Builder, v reflect.Value, config string) {
	switch value := v.Interface().(type) {
	case time.Duration:
		b.WriteString(duration(value))
		return
	case fleet.Topology:
		b.WriteString(map[fleet.Topology]string{fleet.Shared: "Shared", fleet.Own: "Own"}[value])
		return
	case fleet.HeaderPolicy:
		b.WriteString([]string{"AllHeaders", "HeadersOnRejections", "RetryAfterOnly", "NoHeaders"}[value])
		return
	case error:
		b.WriteString(map[error]string{fleet.ErrRefused: "ErrRefused", fleet.ErrReset: "ErrReset"}[value])
		return
	}
	switch v.Kind() {
	case reflect.Func: // Configure
		b.WriteString("Configured(" + quote(config) + ")")
	case reflect.Struct:
		b.WriteString("{")
		lines := v.Type() == reflect.TypeFor[fleet.Scenario]()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			if lines {
				b.WriteString("\n")
			}
			b.WriteString(v.Type().Field(i).Name + ": ")
			if v.Field(i).Kind() == reflect.Struct {
				b.WriteString(v.Field(i).Type().Name())
			}
			literal(b, v.Field(i), config)
			b.WriteString(",")
		}
		if lines {
			b.WriteString("\n")
		}
		b.WriteString("}")
	case reflect.Slice:
		b.WriteString("[]" + v.Type().Elem().Name() + "{")
		for i := range v.Len() {
			literal(b, v.Index(i), config)
			b.WriteString(",")
		}
		b.WriteString("}")
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	default:
		fmt.Fprint(b, v.Interface())
	}
}

func duration(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{time.Minute, "time.Minute"}, {time.Second, "time.Second"}, {time.Millisecond, "time.Millisecond"}, {time.Microsecond, "time.Microsecond"}} {
		if d%unit.d == 0 {
			return fmt.Sprintf("%d*%s", d/unit.d, unit.name)
		}
	}
	return strconv.FormatInt(int64(d), 10) // -1 means none
}

// quote returns a text as a Go string, in its own lines if possible.
func quote(text string) string {
	if strconv.CanBackquote(strings.ReplaceAll(text, "\n", "")) && !strings.Contains(text, "\r") {
		return "`" + text + "`"
	}
	return strconv.Quote(text)
}
