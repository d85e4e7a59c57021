package doctable

import (
	"testing"
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
