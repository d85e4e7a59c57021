package idempotency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCanonicalJSON(t *testing.T) {
	for _, row := range []struct {
		name string
		in   string
		want string
	}{
		{"null", "null", "null"},
		{"true", " true\n", "true"},
		{"false", "\tfalse\r", "false"},
		{"zero", "0", "0"},
		{"minus zero", "-0", "-0"},
		{"a number with all parts", "-10.50E+07", "-10.50E+07"},
		{"a number beyond float64", "9007199254740993", "9007199254740993"},
		{"a string", `"a"`, `"a"`},
		{"an empty string", `""`, `""`},
		{"escapes that are needed", `"\"\\\b\f\n\r\t\u0000\u001F"`, `"\"\\\b\f\n\r\t\u0000\u001f"`},
		{"escapes that are needed, as numbers", `"\u0022\u005c\u0008\u000c\u000A\u000d\u0009"`, `"\"\\\b\f\n\r\t"`},
		{"escapes that are not", `"\/\u0041\u00e9\u20AC\u007f"`, "\"/Aé€\x7f\""},
		{"a pair", `"\ud83d\uDE00"`, `"😀"`},
		{"UTF-8", `"é€😀` + "\ufffd\u2028" + `"`, `"é€😀` + "\ufffd\u2028" + `"`},
		{"an array", "[ 1 , 2,\n3 ]", "[1,2,3]"},
		{"an empty array", "[ ]", "[]"},
		{"an empty object", " { } ", "{}"},
		{"members in order", `{"a":1,"b":2}`, `{"a":1,"b":2}`},
		{"members out of order", `{ "b" : 2 , "a" : 1 , "c": 3 }`, `{"a":1,"b":2,"c":3}`},
		{"names that are prefixes", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		{"objects in objects", `{"b":{"d":[{"z":1,"y":{}}],"c":null},"a":""}`, `{"a":"","b":{"c":null,"d":[{"y":{},"z":1}]}}`},

		{"nothing", "", ""},
		{"blanks", " \n", ""},
		{"a byte order mark", "\ufeff{}", ""},
		{"trailing data", "{} {}", ""},
		{"trailing NUL", "{}\x00", ""},
		{"a blank that is none", "\v1", ""},
		{"a word", "nul", ""},
		{"a longer word", "nulll", ""},
		{"in capitals", "True", ""},
		{"NaN", "NaN", ""},
		{"a leading zero", "01", ""},
		{"a minus alone", "-", ""},
		{"a plus", "+1", ""},
		{"a point first", ".5", ""},
		{"a point last", "5.", ""},
		{"an exponent of nothing", "5e", ""},
		{"an exponent of a sign", "5e+", ""},
		{"hexadecimal", "0x10", ""},
		{"one quote", `"`, ""},
		{"no end", `"abc`, ""},
		{"single quotes", `'a'`, ""},
		{"a line end in a string", "\"a\nb\"", ""},
		{"an unknown escape", `"\x41"`, ""},
		{"a backslash last", `"\`, ""},
		{"too few digits", `"\u004"`, ""},
		{"digits that are none", `"\u00g0"`, ""},
		{"digits cut off", `"\u00`, ""},
		{"a high half alone", `"\ud83d"`, ""},
		{"a high half and a letter", `"\ud83da"`, ""},
		{"a high half and an escape", `"\ud83d\n00000"`, ""},
		{"a high half twice", `"\ud83d\ud83d"`, ""},
		{"a high half and half digits", `"\ud83d\ude0"`, ""},
		{"a low half alone", `"\ude00"`, ""},
		{"a low half first", `"\ude00\ud83d"`, ""},
		{"a half in UTF-8", "\"\xed\xa0\xbd\"", ""},
		{"not UTF-8", "\"\xff\"", ""},
		{"not UTF-8 in a name", "{\"\xc3\":1}", ""},
		{"overlong", "\"\xc0\xaf\"", ""},
		{"no UTF-8 outside of strings", "é", ""},
		{"one name twice", `{"a":1,"a":1}`, ""},
		{"one name twice, apart", `{"a":1,"b":2,"a":1}`, ""},
		{"one name twice, escaped", `{"b":0,"a":1,"\u0061":1}`, ""},
		{"one name twice, inside", `[{"x":{"a":1,"a":2}}]`, ""},
		{"an end too many", "[]]", ""},
		{"an end too few", "[[]", ""},
		{"another end", "[}", ""},
		{"another end behind a value", "[1}", ""},
		{"another end behind a member", `{"a":1]`, ""},
		{"another end behind a name", `{"a"}`, ""},
		{"a comma last", "[1,]", ""},
		{"a comma last in an object", `{"a":1,}`, ""},
		{"a comma first", "[,1]", ""},
		{"a comma alone in an object", "{,}", ""},
		{"no comma", "[1 2]", ""},
		{"no colon", `{"a" 1}`, ""},
		{"no value", `{"a":}`, ""},
		{"a name that is no string", `{a:1}`, ""},
		{"a number for a name", `{1:1}`, ""},
		{"a comment", "[] // x", ""},
		{"hash, as inside", "#" + strings.Repeat("a", 32), ""},
		{"hash, as inside an array", "[#" + strings.Repeat("a", 32) + "]", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, ok := canonicalJSON([]byte(row.in))
			require.Equal(t, row.want, string(text))
			require.Equal(t, row.want != "", ok)
		})
	}
}

// TestCanonicalJSONOfLongContainers: with hashes of long members, order still does not
// matter, and every other difference does.
func TestCanonicalJSONOfLongContainers(t *testing.T) {
	member := func(n int) string {
		return fmt.Sprintf(`"name %03d":{"b":[%d,%q],"a":null}`, n, n, strings.Repeat("x", n))
	}
	var members []string
	for n := range 200 {
		members = append(members, member(n))
	}
	text := func(members []string) string {
		in := fmt.Sprintf(`{"outer":[{%s}]}`, strings.Join(members, ","))
		text, ok := canonicalJSON([]byte(in))
		require.True(t, ok)
		require.Less(t, len(text), len(in)/10)
		return string(text)
	}
	want := text(members)
	for range 20 {
		shuffled := slices.Clone(members)
		rand.Shuffle(len(shuffled), reflect.Swapper(shuffled))
		require.Equal(t, want, text(shuffled))
	}
	for n := range members {
		other := slices.Clone(members)
		other[n] = strings.Replace(other[n], fmt.Sprintf("[%d,", n), fmt.Sprintf("[%d0,", n+1), 1)
		require.NotEqual(t, want, text(other))
	}
	_, ok := canonicalJSON([]byte(fmt.Sprintf(`{%s,%s}`, strings.Join(members, ","), member(7))))
	require.False(t, ok, "one name twice")
}

// TestCanonicalJSON_aroundTheHash: just below and above the length from which a hash is used.
func TestCanonicalJSON_aroundTheHash(t *testing.T) {
	seen := map[string]int{}
	for n := maxInline - 20; n < maxInline+20; n++ {
		for _, form := range []string{`{"a":"%[1]s","b":1}`, ` { "b" : 1 , "a" : "%[1]s" } `} {
			text, ok := canonicalJSON([]byte(fmt.Sprintf(form, strings.Repeat("x", n))))
			require.True(t, ok)
			if was, found := seen[string(text)]; found {
				require.Equal(t, was, n)
			}
			seen[string(text)] = n
		}
	}
	require.Len(t, seen, 40)
}

// hostileBodies are about 256 KiB each, the worst cases of the parser's parts.
func hostileBodies() map[string][]byte {
	const size = 256 << 10
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	numbered := func(form, separator string, descending bool) string {
		var b strings.Builder
		for n := 0; b.Len() < size; n++ {
			k := n
			if descending {
				k = size - n
			}
			if n > 0 {
				b.WriteString(separator)
			}
			fmt.Fprintf(&b, form, k)
		}
		return b.String()
	}
	// Nested objects that are out of order on each level, so that all is moved.
	nested := strings.Repeat(`{"b":`, deepest) + `"` + repeat("x") + `"` + strings.Repeat(`,"a":1}`, deepest)
	// As many levels as there can be, over and over.
	levels := strings.Repeat("[", deepest-1) + `"` + strings.Repeat("x", maxInline) + `"` + strings.Repeat("]", deepest-1)
	unordered := strings.Repeat(`{"b":`, deepest-1) + `0` + strings.Repeat(`,"a":1}`, deepest-1)
	return map[string][]byte{
		"brackets":              []byte(repeat("[")),
		"objects":               []byte(repeat(`{"a":`)),
		"brackets, closed":      []byte(strings.Repeat("[", size/2) + strings.Repeat("]", size/2)),
		"empty arrays":          []byte("[" + repeat("[],") + "0]"),
		"members":               []byte("{" + numbered(`"%x":0`, ",", false) + "}"),
		"members, descending":   []byte("{" + numbered(`"%08x":0`, ",", true) + "}"),
		"members of one name":   []byte("{" + repeat(`"a":0,`) + `"a":0}`),
		"long names":            []byte("{" + numbered(`"`+strings.Repeat("x", 1000)+`%08x":0`, ",", true) + "}"),
		"nested out of order":   []byte(nested),
		"levels over and over":  []byte("[" + strings.Repeat(levels+",", size/len(levels)) + "0]"),
		"levels out of order":   []byte("[" + strings.Repeat(unordered+",", size/len(unordered)) + "0]"),
		"objects of two":        []byte("[" + repeat(`{"b":0,"a":0},`) + "0]"),
		"escapes":               []byte(`"` + repeat(`\u0041`) + `"`),
		"numbers":               []byte("[" + repeat("0,") + "0]"),
		"one number":            []byte(repeat("1")),
		"blanks":                []byte(repeat(" ")),
		"a string without end":  []byte(`"` + repeat("a")),
		"strings without end":   []byte(repeat(`"\`)),
		"four bytes a letter":   []byte(`"` + repeat("😀") + `"`),
		"deepest that is read":  []byte(strings.Repeat("[", deepest) + strings.Repeat("]", deepest)),
		"one deeper":            []byte(strings.Repeat("[", deepest+1) + strings.Repeat("]", deepest+1)),
		"deepest with an empty": []byte(strings.Repeat("[", deepest) + "{}" + strings.Repeat("]", deepest)),
	}
}

// TestCanonicalJSONOfHostileBodies: time and memory are proportional to the body, and
// the parser accepts what encoding/json accepts.
func TestCanonicalJSONOfHostileBodies(t *testing.T) {
	for name, body := range hostileBodies() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			text, ok := canonicalJSON(body)
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes: %v, %.1f times the body allocated, read: %v", len(body), took, float64(allocated)/float64(len(body)), ok)
			require.LessOrEqual(t, len(text), len(body))
			require.Less(t, allocated, 24*uint64(len(body))+1<<20)
			require.Less(t, took, 10*time.Second, "quadratic work takes minutes")
			_, err := decodeStrictly(body)
			require.Equal(t, err == nil, ok)
		})
	}
}

// decodeStrictly decodes with encoding/json, for comparison: the structure of an unambiguous text,
// with numbers as text.
func decodeStrictly(body []byte) (any, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errors.New("not JSON in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	value, err := decodeValue(d)
	if err != nil {
		return nil, err
	}
	// A lone surrogate becomes U+FFFD. To distinguish it from a real U+FFFD, the test counts
	// them before and after.
	text := strings.NewReplacer(`\\`, "", `\ufffd`, "�", `\ufffD`, "�", `\uffFd`, "�", `\uffFD`, "�", `\ufFfd`, "�", `\ufFfD`, "�",
		`\ufFFd`, "�", `\ufFFD`, "�", `\uFffd`, "�", `\uFffD`, "�", `\uFfFd`, "�", `\uFfFD`, "�", `\uFFfd`, "�", `\uFFfD`, "�", `\uFFFd`, "�", `\uFFFD`, "�").Replace(string(body))
	if countReplacements(value) != strings.Count(text, "�") {
		return nil, errors.New("a lone surrogate")
	}
	return value, nil
}

// decodeValue decodes token by token, to detect duplicate names.
func decodeValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := decodeValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if _, twice := object[name.(string)]; twice {
				return nil, errors.New("one name twice")
			}
			if object[name.(string)], err = decodeValue(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	}
	return token, nil
}

func countReplacements(value any) int {
	n := 0
	switch v := value.(type) {
	case string:
		n = strings.Count(v, "�")
	case []any:
		for _, e := range v {
			n += countReplacements(e)
		}
	case map[string]any:
		for name, e := range v {
			n += strings.Count(name, "�") + countReplacements(e)
		}
	}
	return n
}

// rewritten writes a structure in another way: members in any order, blanks
// anywhere, characters escaped or not.
func rewritten(b *bytes.Buffer, r *rand.Rand, value any) {
	blank := func() { b.WriteString([]string{"", " ", "\n\t", "\r"}[r.IntN(4)]) }
	text := func(s string) {
		b.WriteByte('"')
		for _, c := range s {
			switch {
			case c < 0x10000 && (c < ' ' || c == '"' || c == '\\' || r.IntN(3) == 0):
				fmt.Fprintf(b, [...]string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
			case c >= 0x10000 && r.IntN(2) == 0:
				fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			default:
				b.WriteRune(c)
			}
		}
		b.WriteByte('"')
	}
	blank()
	switch v := value.(type) {
	case string:
		text(v)
	case []any:
		b.WriteByte('[')
		for n, e := range v {
			if n > 0 {
				b.WriteByte(',')
			}
			rewritten(b, r, e)
		}
		b.WriteByte(']')
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		r.Shuffle(len(names), reflect.Swapper(names))
		b.WriteByte('{')
		for n, name := range names {
			if n > 0 {
				b.WriteByte(',')
			}
			blank()
			text(name)
			blank()
			b.WriteByte(':')
			rewritten(b, r, v[name])
		}
		b.WriteByte('}')
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v) // a bool or a json.Number
	}
	blank()
}

// FuzzCanonicalJSON: two texts have the same canonical text exactly if encoding/json
// decodes them to the same structure, and one is read exactly if it has one.
func FuzzCanonicalJSON(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"b":1,"a":[1,2]}`, `{"a":[1,2],"b":1}`},
		{`{"b":1,"a":[1,2]}`, `{"a":[2,1],"b":1}`},
		{"9007199254740993", "9007199254740992"},
		{"1.0", "1"},
		{"1e2", "100"},
		{`"\u0041"`, `"A"`},
		{`"\ud83d\ude00"`, `"😀"`},
		{`"\ud83d"`, `"\ufffd"`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{"\ufeff{}", "{}"},
		{`["a","b"]`, `["a,b"]`},
		{`{"a":{}}`, `{"a":[]}`},
		{`{"x":"` + strings.Repeat("x", maxInline) + `"}`, "#"},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]), uint64(1))
	}
	f.Fuzz(func(t *testing.T, one, other []byte, seed uint64) {
		a, err := decodeStrictly(one)
		text, ok := canonicalJSON(one)
		require.Equal(t, err == nil, ok, "%s: %v", one, err)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(text), len(one))
		if len(one) <= maxInline {
			again, ok := canonicalJSON(text)
			require.True(t, ok)
			require.Equal(t, text, again, "canonical already")
		}

		var b bytes.Buffer
		rewritten(&b, rand.New(rand.NewPCG(seed, 0)), a)
		same, ok := canonicalJSON(b.Bytes())
		require.True(t, ok, "%s", b.Bytes())
		require.Equal(t, text, same, "%s", b.Bytes())

		if b, err := decodeStrictly(other); err == nil {
			text2, ok := canonicalJSON(other)
			require.True(t, ok)
			require.Equal(t, reflect.DeepEqual(a, b), bytes.Equal(text, text2))
		}
	})
}
