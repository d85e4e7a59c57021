// Package fuzz has no code: its tests compare what a resilienthttp.Transport says of its calls with what servers did,
// in random scripts of faults and settings. Run it with
//
//	go test ./faulttest/fuzz -scripts 5000
//
// A failure prints its seed and its script.
package fuzz
