package ratelimitheader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

func number(whole, nanos int64) bare {
	return bare{kind: kindNumber, number: retryafter.Number{Whole: whole, Nanos: nanos}}
}

func text(k kind, s string) bare { return bare{kind: k, text: s} }

// other is a value that the parser ignores.
var other bare

// param is a parameter of a member.
type param struct {
	key   string
	value bare
}

// parsed is a member with its parameters parsed.
type parsed struct {
	key    string
	value  bare
	params []param
}

func parseAll(members []member) (all []parsed) {
	for _, m := range members {
		p := parsed{key: m.key, value: m.value}
		for key, value := range m.parameters() {
			p.params = append(p.params, param{key, value})
		}
		all = append(all, p)
	}
	return all
}

func TestParseMembers_list(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []parsed
		wantOK   bool
	}{
		{"empty", "", nil, true},
		{"blanks", "  ", nil, true},
		{"integer", "42", []parsed{{value: number(42, 0)}}, true},
		{"negative integer", "-42", []parsed{{value: other}}, true},
		{"decimal", "4.5", []parsed{{value: number(4, 5e8)}}, true},
		{"string", `"a b"`, []parsed{{value: text(kindName, "a b")}}, true},
		{"empty string", `""`, []parsed{{value: text(kindName, "")}}, true},
		{"escapes", `"\"\\\"\\"`, []parsed{{value: text(kindName, `"\"\`)}}, true},
		{"text behind an escape", `"a\"b"`, []parsed{{value: text(kindName, `a"b`)}}, true},
		{"comma and semicolon in a string", `"a,b;c=1", d`, []parsed{{value: text(kindName, "a,b;c=1")}, {value: text(kindName, "d")}}, true},
		{"token", "a/b:c*!#", []parsed{{value: text(kindName, "a/b:c*!#")}}, true},
		{"token with a star first", "*a", []parsed{{value: text(kindName, "*a")}}, true},
		{"bytes", ":aGk=:", []parsed{{value: text(kindBytes, "aGk=")}}, true},
		{"no bytes", "::", []parsed{{value: text(kindBytes, "")}}, true},
		{"booleans", "?0, ?1", []parsed{{value: other}, {value: other}}, true},
		{"dates", "@1659578233, @-1", []parsed{{value: other}, {value: other}}, true},
		{"display string", `%"f%c3%bc"`, []parsed{{value: other}}, true},
		{"parameters", `a;b;c=1; d="e"`, []parsed{{value: text(kindName, "a"), params: []param{{"b", other}, {"c", number(1, 0)}, {"d", text(kindName, "e")}}}}, true},
		{"key with all it may have", "a;*b_-.*1=1", []parsed{{value: text(kindName, "a"), params: []param{{"*b_-.*1", number(1, 0)}}}}, true},
		{"tabs and blanks around commas", "1 \t,\t 2", []parsed{{value: number(1, 0)}, {value: number(2, 0)}}, true},

		{"comma alone", ",", nil, false},
		{"comma last", "1,", nil, false},
		{"comma twice", "1,,2", nil, false},
		{"no comma", "1 2", nil, false},
		{"minus alone", "-", nil, false},
		{"two points", "1.2.3", nil, false},
		{"point last", "1.", nil, false},
		{"string without an end", `"a`, nil, false},
		{"string that ends in a backslash", `"a\`, nil, false},
		{"unknown escape", `"\n"`, nil, false},
		{"control character in a string", "\"a\tb\"", nil, false},
		{"not ASCII in a string", `"ü"`, nil, false},
		{"bytes without an end", ":aGk=", nil, false},
		{"bytes with a blank", ":a b:", nil, false},
		{"boolean of neither kind", "?2", nil, false},
		{"boolean without a value", "?", nil, false},
		{"date without a number", "@x", nil, false},
		{"display string without a quote", "%a", nil, false},
		{"inner list", `(1 "a");d=3`, nil, false},
		{"parameter with a capital", "a;B=1", nil, false},
		{"parameter without a key", "a;=1", nil, false},
		{"parameter without a value", "a;b=", nil, false},
		{"parameter with a digit first", "a;1b=1", nil, false},
		{"parameter with an inner list", "a;b=(1)", nil, false},
		{"dictionary", "a=1", nil, false},
		{"not ASCII", "ü", nil, false},
		{"NUL", "\x00", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseMembers(tt.in, false)
			require.Equal(t, tt.wantOK, ok)
			require.Equal(t, tt.want, parseAll(got))
		})
	}
}

func TestParseMembers_dictionary(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []parsed
		wantOK   bool
	}{
		{"empty", "", nil, true},
		{"values", `a=1, b="c", d=e`, []parsed{{key: "a", value: number(1, 0)}, {key: "b", value: text(kindName, "c")}, {key: "d", value: text(kindName, "e")}}, true},
		{"flags", "a, b;c", []parsed{{key: "a", value: other}, {key: "b", value: other, params: []param{{"c", other}}}}, true},
		{"repeated key", "a=1, a=2", []parsed{{key: "a", value: number(1, 0)}, {key: "a", value: number(2, 0)}}, true},

		{"inner list", "a=(1 2);b", nil, false},
		{"no key", "=1", nil, false},
		{"capital key", "A=1", nil, false},
		{"no value", "a=", nil, false},
		{"blank before the value", "a= 1", nil, false},
		{"blank before the equals sign", "a =1", nil, false},
		{"comma last", "a=1,", nil, false},
		{"bad parameter of a flag", "a;B", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseMembers(tt.in, true)
			require.Equal(t, tt.wantOK, ok)
			require.Equal(t, tt.want, parseAll(got))
		})
	}
}
