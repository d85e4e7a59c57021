package idempotency

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// DoAs is Do for work whose result is a T, which is stored as JSON. Who asks again
// gets what encoding/json reads from that: fields that are not exported are lost, a
// number in an any is a float64, and a string that is not UTF-8 is made so.
//
// A T that cannot be stored is an ErrInvalid before the work is begun: it has a
// channel, a function, a complex number, an interface with methods, a map by other
// keys than strings and integers, or a struct without exported fields, and does not
// marshal and unmarshal itself. Where only the value tells (a NaN, a cycle, a
// channel in an any), the work has taken effect and is not done again: DoAs returns
// the value and an ErrUnreplayable that says why, and gives the error alone to those
// who ask again. Whoever gave a store within a transaction commits it then, too.
//
// Where the stored JSON does not fit T any more, because it has a field that T has
// not, or one of another type, the error is an ErrUnreplayable that says so: better
// no result than half of one. So a T may get new fields at any time, and lose those
// that no record has any more.
//
// All else is as with Do.
func DoJSON[T any](
	ctx context.Context, store Store, scope, operation, key string, fingerprint Fingerprint,
	work func(context.Context) (T, error),
) (T, error) {
	var first, none T
	if err := notJSON(reflect.TypeFor[T](), map[reflect.Type]bool{}); err != nil {
		return none, err
	}
	if work == nil {
		return none, fmt.Errorf("%w: there is no work", ErrInvalid)
	}
	done := false
	result, err := Do(ctx, store, scope, operation, key, fingerprint, func(ctx context.Context) (_ Result, err error) {
		if first, err = work(ctx); err != nil {
			return Result{}, err
		}
		done = true
		body, err := toJSON(&first)
		if err != nil {
			e, _ := executionOf(ctx)
			e.unkept = fmt.Errorf("%w: %w", ErrUnreplayable, err)
			return Result{}, nil
		}
		return Result{Body: body}, nil
	})
	switch {
	case done && (err == nil || errors.Is(err, ErrUnreplayable)):
		return first, err
	case err != nil:
		return none, err
	}
	value, err := fromJSON[T](result.Body)
	if err != nil {
		return none, fmt.Errorf("%w: the stored result is no %v: %w", ErrUnreplayable, reflect.TypeFor[T](), err)
	}
	return value, nil
}

// toJSON also finds out whether it could be read again, as long as somebody hears
// of it who has the value.
func toJSON[T any](value *T) ([]byte, error) {
	body, err := json.Marshal(value) // a pointer, for the sake of methods that want one
	if err == nil {
		_, err = fromJSON[T](body)
	}
	return body, err
}

func fromJSON[T any](body []byte) (value T, err error) {
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	err = in.Decode(&value)
	if _, more := in.Token(); err == nil && more != io.EOF {
		err = errors.New("more than one value")
	}
	return value, err
}

// notJSON says why encoding/json cannot store a value of this type, or not give it
// back.
func notJSON(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || marshalsItself(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return fmt.Errorf("%w: a result with a %v cannot be stored", ErrInvalid, t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%w: a result with a %v cannot be read again", ErrInvalid, t)
		}
	case reflect.Map:
		if key := t.Key(); !isText(key) && key.Kind() != reflect.String && !isInteger(key.Kind()) {
			return fmt.Errorf("%w: a result with a map by %v cannot be stored", ErrInvalid, key)
		}
		return notJSON(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return notJSON(t.Elem(), seen)
	case reflect.Struct:
		return notJSONStruct(t, seen)
	default:
	}
	return nil
}

func notJSONStruct(t reflect.Type, seen map[reflect.Type]bool) error {
	kept := 0
	for field := range t.Fields() {
		if field.Tag.Get("json") == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		kept++
		if err := notJSON(field.Type, seen); err != nil {
			return err
		}
	}
	if kept == 0 && t.NumField() > 0 {
		return fmt.Errorf("%w: a result with a %v cannot be stored, for it has no exported fields", ErrInvalid, t)
	}
	return nil
}

// marshalsItself reports whether a type does so both ways.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) && p.Implements(reflect.TypeFor[json.Unmarshaler]()) || isText(t)
}

func isText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }
