package main

import (
	"slices"
	"testing"
)

func TestUnnamed(t *testing.T) {
	files := map[string]string{
		"a_test.go":         "// TestA is DESIGN §4.1 and §4.3.\nfunc TestA(t *testing.T) {}\n// §4.20\n",
		"durable/b_test.go": "// D1, D2: both.\nfunc TestD4Fences(t *testing.T) {}\nvar x = D5 // D30, D3\nfunc TestD50(t *testing.T) {}\nvar rows = []string{\"D6: a row\", \"no D7\"}\n",
		"other/c_test.go":   "// D5 is another list.\n",
	}
	for _, row := range []struct {
		name string
		law  law
		want []string
	}{
		{"all named", law{"x", "§4.", 1, 1, []string{""}}, nil},
		{"a number is not its beginning", law{"x", "§4.", 1, 3, []string{""}}, []string{"§4.2 of x"}},
		{"only there", law{"durable", "D", 1, 7, []string{"durable"}}, []string{"D5 of durable", "D7 of durable"}},
		{"no test: all missing", law{"y", "D", 1, 2, []string{"nowhere"}}, []string{"D1 of y", "D2 of y"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.law.unnamed(files); !slices.Equal(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
