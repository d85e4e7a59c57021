package storetest

import (
	"bytes"
	"crypto/rand"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// testResults stores results and compares what the store returns.
func (k *kit) testResults() {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := bytes.Repeat(every, 4096)
	latin1 := string(every[0xa0:]) // net/http permits it in values

	for _, row := range []struct {
		name   string
		result idempotency.Result
	}{
		{"nothing", idempotency.Result{}},
		{"an answer", answer()},
		{"empty header", idempotency.Result{Header: http.Header{}}},
		{"empty body", idempotency.Result{Body: []byte{}}},
		{"several values in order", idempotency.Result{Header: http.Header{
			"Link": {"</2>; rel=next", "</1>; rel=prev", "</2>; rel=next"}, "Vary": {"Accept", "Origin"},
		}}},
		{"a name without values, which disables the default of net/http", idempotency.Result{Header: http.Header{"Content-Type": nil}}},
		{"empty values", idempotency.Result{Header: http.Header{"X-Empty": {"", ""}}}},
		{"names as they are written", idempotency.Result{Header: http.Header{"x-lower": {"1"}, "X-Lower": {"2"}, "ETag": {`W/"a"`}}}},
		{"values with quotes, commas and blanks", idempotency.Result{Header: http.Header{
			"X": {`"a", 'b'; c="\"\\"`, " a  b ", "a\tb", "{}", "[1]", "null", "NULL", "<&>"},
		}}},
		{"values that are not UTF-8", idempotency.Result{Header: http.Header{"Content-Disposition": {"attachment; filename=\"r\xe9sum\xe9\"", latin1}}}},
		{"values in UTF-8", idempotency.Result{Header: http.Header{"X": {"žluťoučký 🐎", "e\u0301", "\u00e9", "\ufffd", "\u2028"}}}},
		{"many values", idempotency.Result{Header: http.Header{"X": strings.Split(strings.Repeat("a b c ", 1000), " ")}}},
		{"every byte", idempotency.Result{Body: every}},
		{"NUL", idempotency.Result{Body: []byte{0}}},
		{"text", idempotency.Result{Body: []byte("  {\"a\": 1.0, \"a\": 2}\r\n ")}},
		{"hexadecimal", idempotency.Result{Body: []byte(`\x00`)}},
		{"one MiB", idempotency.Result{Body: large}},
		{"reference", idempotency.Result{Reference: "s3://bucket/žluťoučký 🐎?a='b'&c=%00\\ "}},
		{"code -1", idempotency.Result{Code: -1}},
		{"the largest code", idempotency.Result{Code: math.MaxInt}},
		{"the smallest code", idempotency.Result{Code: math.MinInt}},
	} {
		k.test(row.name, func(k *kit) {
			for _, status := range []idempotency.Status{idempotency.Completed, idempotency.FailedFinal} {
				id := k.id()
				k.complete(k.acquire(k.claim(id)), idempotency.Outcome{Status: status, Result: row.result})
				assert.Equal(k, row.result, k.load(id).Result)
				reservation, err := k.again.Reserve(k.patient(), k.claim(id))
				require.NoError(k, err)
				k.equalReservation(idempotency.Reservation{Decision: idempotency.DecisionDone}, reservation)
				assert.Equal(k, row.result, reservation.Record.Result)
			}
		})
	}
}

// testNames uses similar names.
func (k *kit) testNames() {
	k.test("records", func(k *kit) {
		all := similarIDs()
		for i, id := range all {
			k.complete(k.acquire(k.claim(id)), idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{Code: i}})
		}
		for i, id := range all {
			assert.Equal(k, i, k.load(id).Result.Code)
		}
	})

	k.test("fingerprints", func(k *kit) {
		decide := func(id idempotency.ID, of idempotency.Fingerprint, want idempotency.Decision) {
			claim := k.claim(id)
			claim.Fingerprint = of
			assert.Equal(k, want, k.reserve(claim).Decision, "%q", of)
		}
		// I7: a store that compares in its own language must not know any rule of these texts.
		of := []idempotency.Fingerprint{"v1:a", "v2:a", "v3:a", "v3:b:a", "v1:4200", "v3:4200"}
		similar := []idempotency.Fingerprint{"", "v1:A", "V1:a", "v1:a ", " v1:a", "v1:", "v3:", "v1:aa", "v1:a\u0301", "v1:%", "v1:_"}
		for _, recorded := range of {
			claim := k.claim(k.id())
			claim.Fingerprint = recorded
			lease := k.acquire(claim)
			others := func() {
				for _, other := range slices.Concat(of, similar) {
					if other != recorded {
						decide(lease.ID, other, idempotency.DecisionMismatch)
					}
				}
			}
			others()
			k.complete(lease, idempotency.Outcome{Status: idempotency.Completed, Result: answer()})
			others()
			decide(lease.ID, recorded, idempotency.DecisionDone)
		}
		without := k.id()
		decide(without, "", idempotency.DecisionAcquired)
		decide(without, fingerprint, idempotency.DecisionMismatch)
		decide(without, "", idempotency.DecisionInProgress)
	})

	k.test("owners", func(k *kit) {
		claim := k.claim(k.id())
		claim.Owner = "žluťoučký 'kůň' \\ %_ e"
		lease := k.acquire(claim)
		for _, other := range []string{
			"", strings.ToUpper(claim.Owner), claim.Owner + " ", claim.Owner + "\u0301", "%", strings.ReplaceAll(claim.Owner, "ů", "u"),
		} {
			lost := lease
			lost.Owner = other
			k.cannotWrite(lost)
		}
		k.complete(lease, idempotency.Outcome{Status: idempotency.Completed})
	})
}

// similarIDs returns ids that are similar, but not equal to each other or to those of other runs.
func similarIDs() []idempotency.ID {
	u := rand.Text()
	all := make(map[idempotency.ID]bool) // without a suffix, some are equal
	add := func(scope, operation, key string) {
		all[idempotency.ID{Scope: scope, Operation: operation, Key: key}] = true
	}
	for _, name := range []string{
		"", " ", "  ", "a", "A", "a ", " a", "a\t", "a\n", "a\r\n", "\u00a0a", "\u200ba", "\ufeffa",
		"aa", "ａ", "ä", "a\u0308", "å", "\u212b", "K", "\u212a", "k", "ß", "ss", "SS", "ẞ", "i", "I", "ı", "İ", "ﬁ", "fi",
		"1", "01", "1.0", "1e0", "+1", "-0", "0", "NULL", "null", "nil", "true", "'", "''", `"`, `""`, `\`, `\\`, "%", "_", "?", "$1", "*",
		"/", ":", "|", ",", ".", "-", "--", ";", "\x01", "\x1f", "\x7f", "\u0080", "\ufffd", "\uffff", "\U0010ffff", "🐎", "🐎\ufe0f",
	} {
		add(u+name, "op", "key")
		add(u, "op"+name, "key")
		add(u, "op", "key"+name)
	}
	long := u + strings.Repeat("x", idempotency.MaxName-len(u)-1)
	for _, separator := range []string{"", " ", "/", ":", "|", ",", "\x1f", "\n", `","`, "'"} {
		add(u+"1", "b"+separator+"c", "d"+separator)
		add(u+"1"+separator+"b", "c", "d"+separator)
		add(u+"1", "b", "c"+separator+"d"+separator)
		add(u+"1"+separator, "b"+separator+"c", "d")
	}
	add(u, "", u)
	add("", u, u)
	add("", "", u)
	add(long+"1", long+"1", long+"1")
	add(long+"2", long+"1", long+"1")
	add(long+"1", long+"2", long+"1")
	add(long+"1", long+"1", long+"2")
	add(u, "long", strings.Repeat("🐎", 128))
	return slices.Collect(maps.Keys(all))
}
