// Package transcript writes requests as a table that people read: failed assertions of faulttest
// and resilienthttp.Explain have the same form. Its functions are pure.
package transcript

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Table returns a table with one line for the titles and one for each row, in columns two spaces
// apart. It leaves out columns without any text. A row may have fewer cells than there are titles.
func Table(titles []string, rows [][]string) string {
	lines := make([]strings.Builder, len(rows)+1)
	for column, title := range titles {
		cells := []string{title}
		width, empty := utf8.RuneCountInString(title), true
		for _, row := range rows {
			text := ""
			if column < len(row) {
				text = row[column]
			}
			cells = append(cells, text)
			width = max(width, utf8.RuneCountInString(text))
			empty = empty && text == ""
		}
		if empty {
			continue
		}
		for i, text := range cells {
			lines[i].WriteString(text + strings.Repeat(" ", width-utf8.RuneCountInString(text)+2))
		}
	}
	var table strings.Builder
	for i := range lines {
		table.WriteString(strings.TrimRight(lines[i].String(), " ") + "\n")
	}
	return table.String()
}

// Duration returns d with about three digits.
func Duration(d time.Duration) string {
	unit := time.Second
	for unit > 1 && d.Abs() < unit {
		unit /= 10
	}
	return d.Round(max(unit/100, 1)).String()
}
