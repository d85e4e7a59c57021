package faulttest

import (
	"fmt"
	"net/http"
	"reflect"
	"time"
)

// serverOptions are the fields of a Server that Start reads.
type serverOptions struct {
	Script         http.Handler
	InMemory       bool
	Host           string
	Network        *Server
	KeyHeader      string
	DeadlineHeader string
	MaxRequests    int
	MaxBody        int
	GroupCalls     func(*Request) string
	Skew           time.Duration
}

func (s *Server) options() serverOptions {
	return serverOptions{
		s.Script, s.InMemory, s.Host, s.Network, s.KeyHeader, s.DeadlineHeader, s.MaxRequests, s.MaxBody, s.GroupCalls, s.Skew,
	}
}

// optionsError returns an error if a field was set after Start.
func (s *Server) optionsError() error {
	before, now := reflect.ValueOf(s.started), reflect.ValueOf(s.options())
	for i := range now.NumField() {
		if !same(before.Field(i), now.Field(i)) {
			return fmt.Errorf("faulttest: Server.%s was set after Start (want it in a Server literal, before Start)", now.Type().Field(i).Name)
		}
	}
	return nil
}

// same reports whether two values are equal. Functions, maps and slices are equal if they are one.
func same(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Interface:
		return same(a.Elem(), b.Elem())
	case reflect.Func, reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return a.UnsafePointer() == b.UnsafePointer() && a.Len() == b.Len()
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Array:
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}

// guarded returns the Script, or a handler that answers 500 with the error of a field that was set
// after Start.
func (s *Server) guarded(tb TB) http.Handler {
	next := orOK(s.Script)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.optionsError(); err != nil {
			s.reportOptions(tb, err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// reportOptions reports the error once.
func (s *Server) reportOptions(tb TB, err error) {
	s.misused.Do(func() { orDiscard(tb).Errorf("%v", err) })
}
