package doctable

import (
	"testing"
	"time"
)

func TestReplace(t *testing.T) {
	const page = "# x\n<!-- defaults:begin a -->\nold\n<!-- defaults:end -->\n<!-- defaults:begin b -->\nkept\n<!-- defaults:end -->\n"
	for _, row := range []struct{ name, table, want, err string }{
		{"first table: the other one is kept", "a", "# x\n<!-- defaults:begin a -->\nnew\n<!-- defaults:end -->\n<!-- defaults:begin b -->\nkept\n<!-- defaults:end -->\n", ""},
		{"unknown table: an error", "c", "", `no marker "<!-- defaults:begin c -->"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := replace(page, "defaults", row.table, "new\n")
			if got != row.want || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
				t.Errorf("got %q, %v; want %q, %s", got, err, row.want, row.err)
			}
		})
	}
	if _, err := replace("<!-- defaults:begin a -->\n", "defaults", "a", ""); err == nil {
		t.Error("no end: got no error")
	}
	const example = "<!-- example:begin a -->\n<!-- example:end -->\n"
	if _, err := replace(example, "defaults", "a", ""); err == nil {
		t.Error("a table of another kind: got no error")
	}
	if got, err := replace(example, "example", "a", "new\n"); err != nil || got != "<!-- example:begin a -->\nnew\n<!-- example:end -->\n" {
		t.Errorf("example: got %q, %v", got, err)
	}
}

func TestTable(t *testing.T) {
	got := table([]Row{{Field: "Breaker.Cooldown", Default: 100 * time.Millisecond, Unit: "duration", Range: "negative: none"}})
	want := "| field | default | unit | range |\n|---|---|---|---|\n| `Breaker.Cooldown` | 100 ms | duration | negative: none |\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFormat(t *testing.T) {
	for _, row := range []struct {
		name  string
		value any
		want  string
	}{
		{"hours: a whole number", time.Hour, "1 h"},
		{"a minute and a half: in minutes", 90 * time.Second, "1.5 min"},
		{"seconds: a whole number", 10 * time.Second, "10 s"},
		{"two seconds and a half: in seconds", 2500 * time.Millisecond, "2.5 s"},
		{"a quarter of a second: in milliseconds", 250 * time.Millisecond, "250 ms"},
		{"zero: as Go prints it", time.Duration(0), "0s"},
		{"number: as fmt prints it", 0.1, "0.1"},
		{"text: as it is", "off", "off"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := Format(row.value); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
