package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// usualChange is a change that comes every few months, and the places that it needs.
type usualChange struct {
	name   string
	begins string // the place where the check finds what there is

	// find returns what there is. Each has a NAME, and maybe other words for the patterns.
	find   func(texts map[string]string) []member
	needed []needed
	also   string // what no check can find
}

// member is one dialect, reason, gate, metric or store: its words.
type member map[string]string

// needed is a place where each of them must be. The file and the pattern have its words in capitals. A file that ends in a slash is
// any file below that folder. In other files an asterisk is any part of a name, so *.go are the files of the root.
type needed struct{ file, what, pattern string }

// usualChanges are the five changes. docs/maintainers/architecture.md has them as a table, which a test writes.
func usualChanges() []usualChange {
	return []usualChange{
		{
			name: "a rate-limit dialect", begins: "`meaningOf` in `internal/ratelimitheader/fields.go`", find: dialects,
			needed: []needed{
				{"internal/ratelimitheader/fields_test.go", "a row with real headers", `(?i)"NAME`},
				{"docs/rate-limits.md", "its fields in the table", "(?i)\\| .*`NAME"},
				{"benchmarks/limiter/dialect_test.go", "a server that writes it, in `Dialects`", `(?i)"SERVED`},
			},
			also: "a suffix of known fields (`X-RateLimit-…`): a row of the test, and the server; a link to its documentation: the package comment; `faulttest.Dialect`, if users test with it",
		},
		{
			name: "a reason to stop", begins: "`errors.go`", find: reasons,
			needed: []needed{
				{"*.go", "the code that stops for it", `(?:return|Reason:|=) NAME\b`},
				{"*_test.go", "a test", `\bresilienthttp\.NAME\b`},
				{"docs/errors.md", "a row", "(?m)^\\| `NAME` \\|"},
				{"docs/faq.md", "a row with the field that changes it", "(?m)^\\| `NAME` \\|"},
				{pageList, "the page that documents it", `\bNAME\b`},
			},
			also: "its place among the questions in `docs/retries.md`; `decisive` in `benchmarks/lab/report.go`, if a field changes it",
		},
		{
			name: "a gate before an attempt", begins: "an `Error` with a `Reason` and a `NotBefore`", find: gates,
			needed: []needed{
				{"errors.go", "`byGate`, which tells a rejection from a failure", `case .*\bNAME\b`},
				{"classify.go", "what its rejection by a Transport inside `Base` means", `\bNAME\b`},
				{"internal/neterr/kind.go", "its `error.type`", `"WORD"`},
				{"resilientotel/values.go", "`gateOf`, for `rejected_by`", `resilienthttp\.NAME\b`},
				{"docs/errors.md", "a row with `NotBefore`", "(?m)^\\| `NAME` \\|.*`NotBefore`"},
				{"docs/telemetry.md", "its `error.type`", `\bWORD\b`},
				{"benchmarks/lab/report.go", "the fields that decide about it, in `decisive`", `resilienthttp\.NAME\b`},
			},
			also: "it is a reason to stop too; `pass`, `donePermits` and `cancelPermits` in `gates.go`, with the reason for its place in the order; the wait in `explain.go` and `State`",
		},
		{
			name: "a metric", begins: "`resilientotel/names.go`", find: metrics,
			needed: []needed{
				{"resilientotel/", "its instrument", `\w\(CONSTANT,|, CONSTANT,`},
				{"docs/telemetry.md", "a row", "(?m)^\\| .*`SHORT`"},
				{"docs/grafana.json", "a panel", `\bPROMETHEUS`},
			},
			also: "something that records it, in `doEverything` of the tests: `go test ./resilientotel` compares what is exported with `names.go`, the page and the panels",
		},
		{
			name: "a store", begins: "a module `…store` in `durable`, `idempotency` or `admission`", find: stores,
			needed: []needed{
				{"go.work", "the module", `(?m)^\s+\./NAME$`},
				{".golangci.yml", "the folder, in both lists of `depguard`", `(?s)/NAME/\*\*.*/NAME/\*\*`},
				{"NAME/", "the suite of the stores, in a test", `storetest\.(?:Suite|Run)`},
				{"NAME/", "an example", `(?m)^func Example`},
				{"PAGE", "its name and its limits", `\bBASE\b`},
				{"docs/maintainers/invariants.md", "the promises that its tests hold", "`NAME\\.Test"},
				{"CHANGELOG.md", "its name", `NAME\b`},
			},
			also: "its errors in `docs/errors.md` (`go test ./docs`); a store in SQL: `crashtest/ledger.go`; `bash .ci/run modules publish` tries its `go.mod`",
		},
	}
}

// changesTable is the table of docs/maintainers/architecture.md.
func changesTable() string {
	var table strings.Builder
	table.WriteString("| change | begins with | `places` finds what is missing here | look also at |\n|---|---|---|---|\n")
	for _, change := range usualChanges() {
		var places []string
		for _, n := range change.needed {
			places = append(places, fmt.Sprintf("%#q: %s", readable.Replace(n.file), n.what))
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", change.name, change.begins, strings.Join(places, "; "), change.also)
	}
	return table.String()
}

// readable replaces the words of files.
var readable = strings.NewReplacer("NAME", "…store", "PAGE", "docs/{durable,server-idempotency,admission}.md")

// places finds what a usual change has forgotten.
func places([]string) error {
	texts, err := textsOfPlaces()
	if err != nil {
		return err
	}
	missing, err := missingPlaces(texts)
	if err != nil {
		return err
	}
	return problems("places", append(missing, staleNames(texts)...))
}

// architecture is the page that names functions, types and files of the client.
const architecture = "docs/maintainers/architecture.md"

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^\w+$`)
	goFile     = regexp.MustCompile(`^[\w/]+\.go$`)
)

// staleNames are the names on the page of the architecture that the client's code no longer has: a reader believes a page that names
// functions. The table of the usual changes is left out, because it has other code, and missingPlaces looks for that.
func staleNames(texts map[string]string) (stale []string) {
	code := clientCode(texts)
	seen := map[string]bool{}
	page, _, _ := strings.Cut(texts[architecture], "\n## Usual changes\n")
	for _, found := range codeSpan.FindAllStringSubmatch(page, -1) {
		name := found[1]
		isGone := goFile.MatchString(name) && texts[name] == "" ||
			identifier.MatchString(name) && !regexp.MustCompile(`\b`+name+`\b`).MatchString(code)
		if isGone && !seen[name] {
			seen[name] = true
			stale = append(stale, fmt.Sprintf("%s: there is no %#q in the client", architecture, name))
		}
	}
	return stale
}

// clientCode is the code of the root and of its engines, and of the test that writes the page's cases.
func clientCode(texts map[string]string) string {
	var all strings.Builder
	for name, text := range texts {
		folder := path.Dir(name)
		isPage := strings.HasSuffix(name, "architecture_test.go")
		isTest := strings.HasSuffix(name, "_test.go") && !isPage
		isClient := folder == "." || strings.HasPrefix(folder, "internal/")
		if strings.HasSuffix(name, ".go") && isClient && !isTest {
			all.WriteString(text)
		}
	}
	return all.String()
}

func textsOfPlaces() (map[string]string, error) {
	return contents("*.go", "*.md", "*.json", "go.work", ".golangci.yml", "*go.mod", pageList, ":!*testdata/*", ":!.ci/check/*")
}

// missingPlaces prints how many of each kind there are. None at all is an error: the code has moved, and nothing would be found.
func missingPlaces(texts map[string]string) (missing []string, err error) {
	for _, change := range usualChanges() {
		found := change.find(texts)
		if len(found) == 0 {
			return nil, errors.New("places: " + change.name + ": there is none, so it begins no longer with " + change.begins)
		}
		fmt.Printf("%-25s %d\n", change.name, len(found))
		missing = append(missing, change.missing(found, texts)...)
	}
	slices.Sort(missing)
	return missing, nil
}

// missing returns the places that one of those found is not in.
func (c usualChange) missing(found []member, texts map[string]string) (missing []string) {
	for _, m := range found {
		for _, place := range c.needed {
			if !place.has(m, texts) {
				missing = append(missing, fmt.Sprintf("%s, %s: %s: want %s", c.name, m["NAME"], m.in(place.file), place.what))
			}
		}
	}
	return missing
}

// has reports whether a file of the place has the words.
func (p needed) has(m member, texts map[string]string) bool {
	file := m.in(p.file)
	pattern := regexp.MustCompile(m.quoted().in(p.pattern))
	for name, text := range texts {
		if isIn(name, file) && pattern.MatchString(text) {
			return true
		}
	}
	return false
}

// isIn reports whether name is the file of a needed place.
func isIn(name, file string) bool {
	if strings.HasSuffix(file, "/") {
		return strings.HasPrefix(name, file)
	}
	matches, err := path.Match(file, name)
	return err == nil && matches
}

// in returns text with the words in place of their names.
func (m member) in(text string) string {
	for name, word := range m {
		text = strings.ReplaceAll(text, name, word)
	}
	return text
}

// quoted returns the words for a pattern.
func (m member) quoted() member {
	quoted := member{}
	for name, word := range m {
		quoted[name] = regexp.QuoteMeta(word)
	}
	return quoted
}

// dialects are the beginnings of fields that meaningOf knows.
func dialects(texts map[string]string) (all []member) {
	file, err := parser.ParseFile(token.NewFileSet(), "", texts["internal/ratelimitheader/fields.go"], parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	for _, declared := range file.Decls {
		table, ok := declared.(*ast.FuncDecl)
		if !ok || table.Name.Name != "meaningOf" {
			continue
		}
		for _, statement := range table.Body.List {
			if cases, ok := statement.(*ast.SwitchStmt); ok {
				all = append(all, fieldsOf(cases)...)
			}
		}
	}
	return all
}

// fieldsOf returns the strings of a switch's cases, without those of a switch in it.
func fieldsOf(cases *ast.SwitchStmt) (all []member) {
	for _, statement := range cases.Body.List {
		clause, ok := statement.(*ast.CaseClause)
		if !ok {
			continue
		}
		for _, value := range clause.List {
			if literal, ok := value.(*ast.BasicLit); ok {
				field := strings.Trim(literal.Value, `"`)
				served := field
				if field == "X-User-Limit" { // X sends both, and one is enough for a server
					served = "X-App-Limit"
				}
				all = append(all, member{"NAME": field, "SERVED": served})
			}
		}
	}
	return all
}

// sentinel is an error of the root that may be a Reason.
var sentinel = regexp.MustCompile(`(?m)^\t(Err\w+)\s+= (?:neterr\.\w+|newReason)\("(\w+)"`)

// reasons are the values of Attempt.StopReason. The two errors of an attempt and of a Read stop nothing.
func reasons(texts map[string]string) (all []member) {
	for _, found := range sentinel.FindAllStringSubmatch(texts["errors.go"], -1) {
		if found[1] != "ErrAttemptTimeout" && found[1] != "ErrReadTimeout" {
			all = append(all, member{"NAME": found[1]})
		}
	}
	return all
}

// rejection is an error of a gate: it says when another call may come.
var rejection = regexp.MustCompile(`\bError\{Reason: (Err\w+), [^}]*\bNotBefore:`)

// gates are the reasons with which the root rejects an attempt that is not sent.
func gates(texts map[string]string) (all []member) {
	words := map[string]string{}
	for _, found := range sentinel.FindAllStringSubmatch(texts["errors.go"], -1) {
		words[found[1]] = found[2]
	}
	for name, text := range texts {
		if path.Dir(name) != "." || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, found := range rejection.FindAllStringSubmatch(text, -1) {
			all = append(all, member{"NAME": found[1], "WORD": words[found[1]]})
		}
	}
	return all
}

var metric = regexp.MustCompile(`(?m)^\t(metric\w+)\s+= "(resilienthttp\.([\w.]+))"`)

// metrics are the names of resilientotel.
func metrics(texts map[string]string) (all []member) {
	for _, found := range metric.FindAllStringSubmatch(texts["resilientotel/names.go"], -1) {
		all = append(all, member{"NAME": found[2], "CONSTANT": found[1], "SHORT": found[3], "PROMETHEUS": strings.ReplaceAll(found[2], ".", "_")})
	}
	return all
}

// stores are the modules of stores, with the page of the package that uses them.
func stores(texts map[string]string) (all []member) {
	pages := map[string]string{"durable": "docs/durable.md", "idempotency": "docs/server-idempotency.md", "admission": "docs/admission.md"}
	for name := range texts {
		folder, file := path.Split(name)
		folder = path.Clean(folder)
		page := pages[path.Dir(folder)]
		if file == "go.mod" && page != "" && strings.HasSuffix(folder, "store") {
			all = append(all, member{"NAME": folder, "BASE": path.Base(folder), "PAGE": page})
		}
	}
	return all
}
