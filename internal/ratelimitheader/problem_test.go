package ratelimitheader

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofLibrary is Violated with encoding/json.
func ofLibrary(problem []byte) (names []string) {
	var p struct {
		Type     string   `json:"type"`
		Policies []string `json:"violated-policies"`
	}
	_ = json.Unmarshal(problem, &p) // what is not text stays ""
	if p.Type != quotaExceeded {
		return nil
	}
	for _, name := range p.Policies {
		if isName(name) && len(names) < MaxDimensions {
			names = append(names, name)
		}
	}
	return names
}

// plainKeys reports whether the keys of an object are written as in the draft, and once. encoding/json also takes "TYPE", and
// the last of two.
func plainKeys(object []byte) bool {
	var keys []string
	d := json.NewDecoder(bytes.NewReader(object))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return true // no object: there are no keys
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return false
		}
		text, _ := key.(string)
		for _, known := range []string{"type", "violated-policies"} {
			if strings.EqualFold(text, known) {
				if text != known || slices.Contains(keys, text) {
					return false
				}
				keys = append(keys, text)
			}
		}
	}
	return true
}

func TestViolated(t *testing.T) {
	const kind = `"type":"` + quotaExceeded + `"`
	policies := func(list string) string { return `{` + kind + `,"violated-policies":` + list + `}` }
	for _, row := range []struct {
		name, problem string
		want          []string
	}{
		{"one", policies(`["daily"]`), []string{"daily"}},
		{"the list is first", `{"violated-policies":["daily"],` + kind + `}`, []string{"daily"}},
		{"spaces and lines", "\n{ " + kind + " ,\r\n\t\"violated-policies\" : [ \"a\" , \"b\" ] }\n", []string{"a", "b"}},
		{"escaped slashes, as PHP writes them", strings.ReplaceAll(policies(`["a/b"]`), "/", `\/`), []string{"a/b"}},
		{"escaped characters", policies(`["\u0061\"\\b\/c"]`), []string{`a"\b/c`}},
		{"an escaped backslash before a slash or a u", policies(`["a\\/b","\\ud041"]`), []string{`a\/b`, `\ud041`}},
		{"a surrogate pair in another value", `{"title":"\ud83d\ude00 \uD83D\uDE00",` + policies(`["a"]`)[1:], []string{"a"}},
		{"a character that ends as a printable one does", policies(`["\ud041","\uD041"]`), nil},
		{"braces and keys in a text", `{"detail":"}]{[ \"violated-policies\":[\"x\"]",` + policies(`["a"]`)[1:], []string{"a"}},
		{"other values", `{"status":429,"x":{"type":"y","violated-policies":["z"]},"y":[["violated-policies"]],` + policies(`["a"]`)[1:], []string{"a"}},
		{"values in the list that are no text", policies(`[1,null,true,["x"],{"y":"z"},"a"]`), []string{"a"}},
		{"no list, but a text", policies(`"a"`), nil},
		{"no list, but an object", policies(`{"a":"b","c":["d"]}`), nil},
		{"a type that is a list", `{"type":["` + quotaExceeded + `"],"violated-policies":["a"]}`, nil},
		{"the problem in a list", `[` + policies(`["a"]`) + `]`, nil},
		{"the problem in an object", `{"x":` + policies(`["a"]`) + `}`, nil},
		{"a text after the type", strings.TrimSuffix(policies(`["a"]`), "}") + `,"title":"Quota exceeded"}`, []string{"a"}},
		{"a long name", policies(`["` + strings.Repeat("a", MaxName) + `","` + strings.Repeat("b", MaxName+1) + `"]`), []string{strings.Repeat("a", MaxName)}},
		{"another type", `{"type":"about:blank","violated-policies":["a"]}`, nil},
		{"cut in the list", strings.TrimSuffix(policies(`["a","b"]`), "]}"), nil},
		{"cut in a text", strings.TrimSuffix(policies(`["a","b"]`), `"]}`), nil},
		{"empty", "", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := Violated([]byte(row.problem))
			require.Equal(t, ofLibrary([]byte(row.problem)), got, "as encoding/json")
			require.Equal(t, row.want, got)
		})
	}
}

// FuzzViolated compares Violated with encoding/json. The names are short and printable, whatever the body is.
func FuzzViolated(f *testing.F) {
	f.Add([]byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["daily"]}`))
	f.Fuzz(func(t *testing.T, problem []byte) {
		names := Violated(problem)
		require.LessOrEqual(t, len(names), MaxDimensions)
		for _, name := range names {
			require.Regexp(t, `^[ -~]{1,128}$`, name)
		}
		if json.Valid(problem) && plainKeys(problem) {
			require.Equal(t, ofLibrary(problem), names)
		}
	})
}
