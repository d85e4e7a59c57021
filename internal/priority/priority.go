// Package priority parses the header field with a request's priority. Its functions are
// pure and safe for concurrent use.
package priority

import "strings"

// Header is the name of the field.
const Header = "X-Request-Priority"

// The three priorities. A greater number is more important.
const (
	Batch    int8 = -1
	Default  int8 = 0
	Critical int8 = 1
)

const (
	batch    = "batch"
	critical = "critical"
)

// Parse returns the priority of a field's value, in any letter case and with optional blanks
// around it. A value other than batch and critical means Default.
func Parse(value string) int8 {
	switch value = strings.TrimSpace(value); {
	case strings.EqualFold(value, batch):
		return Batch
	case strings.EqualFold(value, critical):
		return Critical
	}
	return Default
}

// Format returns the field's value: "" for Default, which is not sent.
func Format(p int8) string {
	switch p {
	case Batch:
		return batch
	case Critical:
		return critical
	}
	return ""
}
