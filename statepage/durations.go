package statepage

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// maxDepth is the depth to which durations are found. Deeper values are cycles, which
// encoding/json reports.
const maxDepth = 100

// withDurations returns the value with format(d) in place of each time.Duration d, because
// encoding/json writes nanoseconds. A value with a marshaler of its own stays as it is.
func withDurations(v reflect.Value, format func(time.Duration) any, depth int) any {
	if !v.IsValid() {
		return nil
	}
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return format(d)
	}
	if depth == maxDepth || !mayHoldDuration(v.Type(), map[reflect.Type]bool{}) {
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return withDurations(v.Elem(), format, depth+1)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil
		}
		all := make([]any, v.Len())
		for i := range all {
			all[i] = withDurations(v.Index(i), format, depth+1)
		}
		return all
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		all := reflect.MakeMap(reflect.MapOf(v.Type().Key(), reflect.TypeFor[any]()))
		for key, value := range v.Seq2() {
			all.SetMapIndex(key, valueOf(withDurations(value, format, depth+1)))
		}
		return all.Interface()
	case reflect.Struct:
		return structWithDurations(v, format, depth)
	default:
		return v.Interface()
	}
}

// structWithDurations makes a struct of the same fields, by name, order and tag.
func structWithDurations(v reflect.Value, format func(time.Duration) any, depth int) any {
	var fields []reflect.StructField
	var values []reflect.Value
	var whole [][]int // embedded fields that encoding/json does not flatten
	for _, f := range reflect.VisibleFields(v.Type()) {
		if slices.ContainsFunc(whole, func(index []int) bool { return len(index) < len(f.Index) && slices.Equal(index, f.Index[:len(index)]) }) {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && isStruct(f.Type) {
			continue // its fields follow
		}
		if f.Anonymous {
			whole = append(whole, f.Index)
		}
		value, err := v.FieldByIndexErr(f.Index)
		if err != nil || !f.IsExported() {
			continue // in a nil embedded pointer, or not exported
		}
		field := reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag}
		if mayHoldDuration(f.Type, map[reflect.Type]bool{}) {
			field.Type = reflect.TypeFor[any]()
			if value.IsZero() && strings.Contains(options, "omit") {
				continue
			}
			value = valueOf(withDurations(value, format, depth+1))
		}
		fields, values = append(fields, field), append(values, value)
	}
	all := reflect.New(reflect.StructOf(fields)).Elem()
	for i, value := range values {
		all.Field(i).Set(value)
	}
	return all.Interface()
}

// valueOf returns a value of type any.
func valueOf(v any) reflect.Value { return reflect.ValueOf(&v).Elem() }

// mayHoldDuration reports whether a value of the type may contain a time.Duration.
func mayHoldDuration(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch {
	case t == reflect.TypeFor[time.Duration](), t.Kind() == reflect.Interface:
		return true
	case seen[t], marshalsItself(t):
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return mayHoldDuration(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && mayHoldDuration(f.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}

// marshalsItself reports whether the type has a marshaler of its own.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t) // its method set includes those of t
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}
