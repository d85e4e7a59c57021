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

// DoJSON is Do for work that returns a T. The result is stored as JSON. Duplicates get
// what encoding/json reads from it.
//
// The error is an ErrInvalid, before the work begins, if JSON cannot represent a T. If
// only the value cannot be stored (NaN, a cycle), DoJSON returns the value with an
// ErrUnreplayable, and duplicates get the error. If the stored JSON does not fit T any
// more, because T lost a field or changed its type, the error is an ErrUnreplayable. A T
// may get new fields at any time.
func DoJSON[T any](
	ctx context.Context, store Store, scope, operation, key string, fingerprint Fingerprint,
	work func(context.Context) (T, error), options ...Options,
) (T, error) {
	var first, none T
	if err := notJSON(reflect.TypeFor[T](), map[reflect.Type]bool{}); err != nil {
		return none, err
	}
	if work == nil {
		return none, fmt.Errorf("%w: work is nil", ErrInvalid)
	}
	var body []byte     // of first
	var notStored error // why first has none
	result, err := Do(ctx, store, scope, operation, key, fingerprint, func(ctx context.Context) (_ Result, err error) {
		body, notStored = nil, nil // an earlier try was rolled back
		if first, err = work(ctx); err != nil {
			return Result{}, err
		}
		if body, err = toJSON(&first); err != nil {
			e, _ := executionOf(ctx)
			notStored = fmt.Errorf("%w: %w", ErrUnreplayable, err)
			e.notStored = notStored
			return Result{}, nil
		}
		return Result{Body: body}, nil
	}, options...)
	switch {
	case notStored != nil && errors.Is(err, notStored), err == nil && body != nil && bytes.Equal(body, result.Body):
		return first, err
	case err != nil:
		return none, err
	}
	value, err := fromJSON[T](result.Body)
	if err != nil {
		return none, fmt.Errorf("%w: the stored result is not a %v: %w", ErrUnreplayable, reflect.TypeFor[T](), err)
	}
	return value, nil
}

// toJSON also checks that the value can be read again.
func toJSON[T any](value *T) ([]byte, error) {
	body, err := json.Marshal(value) // a pointer, because methods may need one
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

// notJSON returns an error if encoding/json cannot write or read values of a type.
func notJSON(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || marshalsItself(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return fmt.Errorf("%w: a result that contains a %v cannot be stored as JSON", ErrInvalid, t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%w: a result that contains a %v cannot be read from JSON", ErrInvalid, t)
		}
	case reflect.Map:
		if key := t.Key(); !isText(key) && key.Kind() != reflect.String && !isInteger(key.Kind()) {
			return fmt.Errorf("%w: a result that contains a map with keys of type %v cannot be stored as JSON", ErrInvalid, key)
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
		return fmt.Errorf("%w: a result that contains a %v: it has no exported fields and cannot be stored as JSON", ErrInvalid, t)
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
