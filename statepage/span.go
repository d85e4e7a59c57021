package statepage

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// deepest is how far spans are looked for. Below that are cycles, which encoding/json
// finds.
const deepest = 100

// withSpans is the value with span's word for each time.Duration in it, to be written by
// encoding/json, which would write nanoseconds. What marshals itself stays as it is.
func withSpans(v reflect.Value, span func(time.Duration) any, depth int) any {
	if !v.IsValid() {
		return nil
	}
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return span(d)
	}
	if depth == deepest || !mayHoldSpan(v.Type(), map[reflect.Type]bool{}) {
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return withSpans(v.Elem(), span, depth+1)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil
		}
		all := make([]any, v.Len())
		for i := range all {
			all[i] = withSpans(v.Index(i), span, depth+1)
		}
		return all
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		all := reflect.MakeMap(reflect.MapOf(v.Type().Key(), reflect.TypeFor[any]()))
		for key, value := range v.Seq2() {
			all.SetMapIndex(key, valueOf(withSpans(value, span, depth+1)))
		}
		return all.Interface()
	case reflect.Struct:
		return structWithSpans(v, span, depth)
	default:
		return v.Interface()
	}
}

// structWithSpans makes a struct of the same fields, by name, order and tag.
func structWithSpans(v reflect.Value, span func(time.Duration) any, depth int) any {
	var fields []reflect.StructField
	var values []reflect.Value
	var whole [][]int // fields that are embedded, and not written as if their own were here
	for _, f := range reflect.VisibleFields(v.Type()) {
		if slices.ContainsFunc(whole, func(index []int) bool { return len(index) < len(f.Index) && slices.Equal(index, f.Index[:len(index)]) }) {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && isStruct(f.Type) {
			continue // its own come by themselves
		}
		if f.Anonymous {
			whole = append(whole, f.Index)
		}
		value, err := v.FieldByIndexErr(f.Index)
		if err != nil || !f.IsExported() {
			continue // in an embedded pointer that is nil, or nobody's business
		}
		field := reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag}
		if mayHoldSpan(f.Type, map[reflect.Type]bool{}) {
			field.Type = reflect.TypeFor[any]()
			if value.IsZero() && strings.Contains(options, "omit") {
				continue
			}
			value = valueOf(withSpans(value, span, depth+1))
		}
		fields, values = append(fields, field), append(values, value)
	}
	all := reflect.New(reflect.StructOf(fields)).Elem()
	for i, value := range values {
		all.Field(i).Set(value)
	}
	return all.Interface()
}

// valueOf is a value for what may hold any.
func valueOf(v any) reflect.Value { return reflect.ValueOf(&v).Elem() }

// mayHoldSpan reports whether encoding/json may meet a time.Duration in such a value.
func mayHoldSpan(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch {
	case t == reflect.TypeFor[time.Duration](), t.Kind() == reflect.Interface:
		return true
	case seen[t], marshalsItself(t):
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return mayHoldSpan(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && mayHoldSpan(f.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}

// marshalsItself reports whether encoding/json leaves it to the value how it is written.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t) // it has the methods of both
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}
