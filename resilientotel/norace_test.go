//go:build !race

package resilientotel

const raceEnabled = false
