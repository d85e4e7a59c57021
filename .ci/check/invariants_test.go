package main

import "testing"

func TestCheckPromises(t *testing.T) {
	const page = "# Invariants\n\nAbout `TestOther`.\n\n## Transport\n\n" +
		"- **§4.1** A sentence.\n  Tests: `TestA`,\n  `durable/internal/driver.TestB`.\n- **D2** Another. Tests: `durable.FuzzC`.\n\n## End\n\nSee `TestOther`.\n"
	const a = "// §4.1: as promised.\nfunc TestA(t *testing.T) {}\n"
	for _, row := range []struct {
		name, page, test, want string
	}{
		{"all right: no problem", page, a, ""},
		{"a number that no test names: a problem", page + "- **D3** New. `TestA`.\n", a, "no comment of a test names D3"},
		{"a number is not its beginning", page + "- **§4.2** New. `TestA`.\n", a + "// §4.22\n", "no comment of a test names §4.2"},
		{"a number in code only: a problem", page + "- **D5** New. `TestA`.\n", a + "func TestD5() { x(D5) }\n", "names D5"},
		{"a label that is not on the page: a problem", page, a + "// D1, D9: as promised.\n", "a_test.go:3: D1 is not in docs/maintainers/invariants.md"},
		{"the second of two labels: a problem", page, a + "// D2, D9: as promised.\n", "D9 is not in"},
		{"a label of an unknown letter: a problem", page, a + "x() // N1\n", "N1 is not in"},
		{"a label of a row: a problem", page, a + "{\"D8: a row\"},\n", "D8 is not in"},
		{"a section that is not on the page: a problem", page, a + "t.Run(\"§7 row\")\n", "§7 is not in"},
		{"letters in a URL and in code: no labels", page, a + "u := \"http://h/T0/B0\" + P50\n", ""},
		{"a test that does not exist: a problem", page + "- **D2** Again. `TestB`.\n", a, "D2: there is no test TestB"},
		{"a test of another folder: a problem", page + "- **D2** Again. `durable.TestA`.\n", a, "there is no test durable.TestA"},
		{"a method is no test: a problem", page + "- **D2** Again. `TestB`.\n", a + "func (x T) TestB() {}\n", "there is no test TestB"},
		{"an item without a test: a problem", page + "- **D2** Again.\n", a, "D2 has no test"},
		{"a number twice: a problem", page + "- **D2** Again. `TestA`.\n", a, "has D2 twice"},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, checkPromises(row.page, map[string]string{
				"a_test.go": row.test, "durable/c_test.go": "// D2\nfunc FuzzC(f *testing.F) {}\n",
				"durable/internal/driver/b_test.go": "func TestB(t *testing.T) {}\n",
			}), row.want)
		})
	}
}
