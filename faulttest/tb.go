package faulttest

import "testing"

// TB is what this package needs of a test. A [testing.TB] is one, and so is
// what other frameworks have in its place. It may be nil in a program that is no
// test: assertions do nothing then but report, and nothing is logged.
type TB interface {
	// Helper says that the calling function's lines are not those of the test.
	Helper()
	// Errorf says what is wrong and fails the test, which goes on.
	Errorf(format string, args ...any)
	// Logf says something that is of use if the test fails.
	Logf(format string, args ...any)
	// Cleanup has a function called when the test is over.
	Cleanup(f func())
}

var _ TB = testing.TB(nil)

// asTesting makes a testing.TB of tb, which may be nil, for code that calls no
// other methods than those below.
type asTesting struct {
	testing.TB // nil; what makes this a testing.TB, one of whose methods cannot be written

	tb TB
}

// orNobody is tb, or one that listens to nothing.
func orNobody(tb TB) TB {
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
