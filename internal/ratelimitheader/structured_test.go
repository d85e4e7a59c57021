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
var other = bare{kind: kindOther}

func TestParseList(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []member
		wantOK   bool
	}{
		{"empty", "", nil, true},
		{"blanks", "  ", nil, true},
		{"integer", "42", []member{{value: number(42, 0)}}, true},
		{"negative integer", "-42", []member{{value: bare{kind: kindNumber, number: retryafter.Number{Whole: 42}, negative: true}}}, true},
		{"decimal", "4.5", []member{{value: number(4, 5e8)}}, true},
		{"string", `"a b"`, []member{{value: text(kindString, "a b")}}, true},
		{"empty string", `""`, []member{{value: text(kindString, "")}}, true},
		{"escapes", `"\"\\\"\\"`, []member{{value: text(kindString, `"\"\`)}}, true},
		{"text behind an escape", `"a\"b"`, []member{{value: text(kindString, `a"b`)}}, true},
		{"comma and semicolon in a string", `"a,b;c=1", d`, []member{{value: text(kindString, "a,b;c=1")}, {value: text(kindToken, "d")}}, true},
		{"token", "a/b:c*!#", []member{{value: text(kindToken, "a/b:c*!#")}}, true},
		{"token with a star first", "*a", []member{{value: text(kindToken, "*a")}}, true},
		{"bytes", ":aGk=:", []member{{value: text(kindBytes, "aGk=")}}, true},
		{"no bytes", "::", []member{{value: text(kindBytes, "")}}, true},
		{"booleans", "?0, ?1", []member{{value: other}, {value: other}}, true},
		{"dates", "@1659578233, @-1", []member{{value: other}, {value: other}}, true},
		{"display string", `%"f%c3%bc"`, []member{{value: other}}, true},
		{"inner list", `(1 "a";b=2   c);d=3, ()`, []member{{value: other, params: []param{{"d", number(3, 0)}}}, {value: other}}, true},
		{"inner list with blanks", `(  1  )`, []member{{value: other}}, true},
		{"parameters", `a;b;c=1; d="e"`, []member{{value: text(kindToken, "a"), params: []param{{"b", other}, {"c", number(1, 0)}, {"d", text(kindString, "e")}}}}, true},
		{"key with all it may have", "a;*b_-.*1=1", []member{{value: text(kindToken, "a"), params: []param{{"*b_-.*1", number(1, 0)}}}}, true},
		{"tabs and blanks around commas", "1 \t,\t 2", []member{{value: number(1, 0)}, {value: number(2, 0)}}, true},

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
		{"inner list without an end", "(1 2", nil, false},
		{"inner list without anything", "(", nil, false},
		{"inner list with a comma", "(1,2)", nil, false},
		{"inner list with nonsense", "(=)", nil, false},
		{"inner list with a nonsensical parameter", "(1;A)", nil, false},
		{"inner list inside one", "((1))", nil, false},
		{"inner list with nothing between", `("a""b")`, nil, false},
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
			got, ok := parseList(tt.in)
			require.Equal(t, tt.wantOK, ok)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseDictionary(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []member
		wantOK   bool
	}{
		{"empty", "", nil, true},
		{"values", `a=1, b="c", d=e`, []member{{key: "a", value: number(1, 0)}, {key: "b", value: text(kindString, "c")}, {key: "d", value: text(kindToken, "e")}}, true},
		{"flags", "a, b;c", []member{{key: "a", value: other}, {key: "b", value: other, params: []param{{"c", other}}}}, true},
		{"inner list", "a=(1 2);b", []member{{key: "a", value: other, params: []param{{"b", other}}}}, true},
		{"repeated key", "a=1, a=2", []member{{key: "a", value: number(1, 0)}, {key: "a", value: number(2, 0)}}, true},

		{"no key", "=1", nil, false},
		{"capital key", "A=1", nil, false},
		{"no value", "a=", nil, false},
		{"blank before the value", "a= 1", nil, false},
		{"blank before the equals sign", "a =1", nil, false},
		{"comma last", "a=1,", nil, false},
		{"bad parameter of a flag", "a;B", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseDictionary(tt.in)
			require.Equal(t, tt.wantOK, ok)
			require.Equal(t, tt.want, got)
		})
	}
}
