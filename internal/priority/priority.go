// Package priority reads how much a request matters from its header field.
package priority

import "strings"

// Header is the field that carries it.
const Header = "X-Request-Priority"

// The three values, as numbers that grow with what matters.
const (
	Batch    int8 = -1
	Default  int8 = 0
	Critical int8 = 1
)

const (
	batch    = "batch"
	critical = "critical"
)

// Parse reads a field's value. Letter case and blanks around it do not matter, and
// what is neither batch nor critical is Default.
func Parse(value string) int8 {
	switch value = strings.TrimSpace(value); {
	case strings.EqualFold(value, batch):
		return Batch
	case strings.EqualFold(value, critical):
		return Critical
	}
	return Default
}

// Format is the field's value: "" for Default, which is not sent.
func Format(p int8) string {
	switch p {
	case Batch:
		return batch
	case Critical:
		return critical
	}
	return ""
}
