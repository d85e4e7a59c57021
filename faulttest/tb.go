package faulttest

import "testing"

// TB is the part of a [testing.TB] that this package uses. It may be nil in a program that is not a
// test: assertions then only return their result, and nothing is logged.
type TB interface {
	// Helper marks the calling function as a test helper.
	Helper()
	// Errorf logs an error and fails the test, which continues.
	Errorf(format string, args ...any)
	// Logf logs a line.
	Logf(format string, args ...any)
	// Cleanup registers a function that is called at the end of the test.
	Cleanup(f func())
}

var _ TB = testing.TB(nil)

// asTesting makes a testing.TB of tb, which may be nil. Only the methods below may be called.
type asTesting struct {
	testing.TB // nil; it has the unexported method of testing.TB

	tb TB
}

// orDiscard returns tb, or a TB that discards everything if tb is nil.
func orDiscard(tb TB) TB {
	if tb == nil {
		return asTesting{}
	}
	return tb
}

func (a asTesting) Helper() {
	if a.tb != nil {
		a.tb.Helper()
	}
}

func (a asTesting) Errorf(format string, args ...any) {
	if a.tb != nil {
		a.tb.Helper()
		a.tb.Errorf(format, args...)
	}
}

func (a asTesting) Logf(format string, args ...any) {
	if a.tb != nil {
		a.tb.Helper()
		a.tb.Logf(format, args...)
	}
}

func (a asTesting) Cleanup(f func()) {
	if a.tb != nil {
		a.tb.Cleanup(f)
	}
}
