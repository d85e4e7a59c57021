//go:build race

package resilientotel

const raceEnabled = true
