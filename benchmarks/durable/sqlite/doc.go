// Package sqlite compares package durable with River on SQLite. River v0.47 is the last
// version with an available driver, so this module is not in go.work:
//
//	(cd benchmarks/durable/sqlite && GOWORK=off go test -run '^$' -bench . -benchtime 3x .)
//
// The package in the parent directory describes the method.
package sqlite
