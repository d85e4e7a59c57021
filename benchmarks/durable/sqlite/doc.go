// Package sqlite sets package durable beside River on SQLite. Its driver for that can be
// had at River's version 0.47 and no later one, so this module is not in go.work, where
// all modules would share River's later version:
//
//	(cd benchmarks/durable/sqlite && GOWORK=off go test -run '^$' -bench . -benchtime 3x .)
//
// See package durable, above this one, for what is measured and how.
package sqlite
