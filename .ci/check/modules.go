package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a go.mod of the repository, as `go mod edit -json` tells it.
type module struct {
	Dir    string // from the root, with slashes
	Module struct{ Path string }
	Go     string

	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func findModules() (all []module, err error) {
	files, err := tracked("go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := output(".", nil, "go", "mod", "edit", "-json", name)
		if err != nil {
			return nil, err
		}
		m := module{Dir: path.Dir(name)}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// apart are the modules that are not in the workspace, which has one module graph: their requirements would choose the versions
// that the library is tested with. tools has two hundred linters; benchmarks/durable/sqlite says itself why.
var apart = []string{"benchmarks/durable/sqlite", "tools"}

// printApart: for what .ci/run does in each.
func printApart([]string) error {
	fmt.Println(strings.Join(apart, "\n"))
	return nil
}

// modules: go.mod, go.sum, go.work and go.work.sum say what is needed, and no more.
func modules([]string) error {
	all, err := findModules()
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	used, err := workspace()
	if err != nil {
		return err
	}
	return errors.Join(
		problems("modules", inOrder(all, used, string(changelog))),
		tidy(all), sumsAreComplete(), inSync(used), requiresOnlyWhatItMay(), userGetsOnlyWhatIsNeeded())
}

// workspace are the directories that go.work uses.
func workspace() (dirs []string, err error) {
	text, err := output(".", nil, "go", "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal([]byte(text), &work); err != nil {
		return nil, err
	}
	for _, use := range work.Use {
		dirs = append(dirs, path.Clean(use.DiskPath))
	}
	return dirs, nil
}

// inOrder is what is wrong with how the modules stand to each other: go.work uses all of them; each has the path that its
// directory says; one that requires another has it beside itself, and names the version that was released last, so that
// strangers find it.
func inOrder(all []module, used []string, changelog string) (wrong []string) {
	dirs := map[string]string{} // by path
	for _, m := range all {
		dirs[m.Module.Path] = m.Dir
		if !slices.Contains(apart, m.Dir) && !slices.Contains(used, m.Dir) {
			wrong = append(wrong, "go.work does not use "+m.Dir)
		}
		if want := path.Join(home, m.Dir); m.Module.Path != want {
			wrong = append(wrong, fmt.Sprintf("the module in %s is %s, want %s", m.Dir, m.Module.Path, want))
		}
	}
	latest := latestRelease(changelog)
	for _, m := range all {
		for _, r := range m.Require {
			dir, ours := dirs[r.Path]
			if !ours {
				continue
			}
			if r.Version != latest {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s %s, want %s", m.Dir, r.Path, r.Version, latest))
			}
			if !m.replaces(r.Path, dir) {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod does not replace %s by the one in %s", m.Dir, r.Path, dir))
			}
		}
	}
	return wrong
}

// replaces tells whether the module uses what stands in dir, from the root, for path.
func (m module) replaces(other, dir string) bool {
	for _, r := range m.Replace {
		if r.Old.Path == other {
			return path.Join(m.Dir, r.New.Path) == dir
		}
	}
	return false
}

// first is the version that the first release will have.
const first = "v0.1.0"

// latestRelease is the version of the changelog's newest section.
func latestRelease(changelog string) string {
	if found := regexp.MustCompile(`(?m)^## (v\d\S*?),? `).FindStringSubmatch(changelog); found != nil {
		return found[1]
	}
	return first
}

func tidy(all []module) error {
	var wrong []error
	for _, m := range all {
		if _, err := output(m.Dir, []string{"GOWORK=off"}, "go", "mod", "tidy", "-diff"); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// sumsAreComplete: go.work.sum knows the whole graph, or the go commands that walk it (go list -m all, go mod download) would
// add to it in each checkout.
func sumsAreComplete() error {
	const name = "go.work.sum"
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if _, err := output(".", nil, "go", "list", "-m", "all"); err != nil {
		return err
	}
	after, err := os.ReadFile(name)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return errors.Join(errors.New("go.work.sum is not complete: go mod download completes it"), os.WriteFile(name, before, 0o644))
}

// inSync: a workspace has one module graph, and may choose newer versions than a module by itself. Each module is to be tested
// with what its go.mod says: the packages of its build and its tests come from the same versions with go.work as without.
// (`go work sync` asks for more. It would also write into the root's go.mod, and so into the builds of all users, what a peer
// of benchmarks/ raises in the graph and nothing in the root's build imports: golang.org/x/sys, say.)
func inSync(dirs []string) error {
	var wrong []error
	for _, dir := range dirs {
		alone, err := compiledFrom(dir, "GOWORK=off")
		if err != nil {
			return err
		}
		together, err := compiledFrom(dir)
		if err != nil {
			return err
		}
		wrong = append(wrong, problems("without go.work, and not with it, "+dir+" is compiled from", without(alone, together)),
			problems("with go.work, and not without it, "+dir+" is compiled from", without(together, alone)))
	}
	return errors.Join(wrong...)
}

// compiledFrom are the modules, and their versions, that the build and the tests of the one in dir take from elsewhere.
func compiledFrom(dir string, env ...string) ([]string, error) {
	out, err := output(dir, env, "go", "list", "-deps", "-test", "-f",
		"{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}", "./...")
	return set(lines(out)), err
}

// libraries are the modules that a user's build gets from here, and the packages of them that it imports (DESIGN §1).
var libraries = map[string]string{
	"github.com/google/uuid":                "github.com/google/uuid",
	"github.com/hashicorp/go-retryablehttp": "github.com/hashicorp/go-retryablehttp",
	"golang.org/x/time":                     "golang.org/x/time/rate",
}

// forTests are in go.mod for the root's own tests, and therefore in the module graph of its users; compiled into none of them.
var forTests = []string{"github.com/stretchr/testify", "go.yaml.in/yaml/v3"}

func requiresOnlyWhatItMay() error {
	out, err := output(".", []string{"GOWORK=off"}, "go", "list", "-m", "-f", "{{if not (or .Main .Indirect)}}{{.Path}}{{end}}", "all")
	if err != nil {
		return err
	}
	want := append(slices.Collect(maps.Keys(libraries)), forTests[0])
	return errors.Join(problems("the root's go.mod requires more than it may", without(lines(out), want)),
		problems("the root's go.mod does not require", without(want, lines(out))))
}

// userGetsOnlyWhatIsNeeded compares a module that imports the root alone with one that imports the libraries instead.
func userGetsOnlyWhatIsNeeded() error {
	tmp, err := os.MkdirTemp("", "user")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	versions, err := output(".", []string{"GOWORK=off"}, "go",
		append([]string{"list", "-m", "-f", "-require={{.Path}}@{{.Version}}"}, slices.Sorted(maps.Keys(libraries))...)...)
	if err != nil {
		return err
	}
	user, compiled, err := graph(filepath.Join(tmp, "with"), []string{"-require=" + home + "@" + first, "-replace=" + home + "=" + root}, home)
	if err != nil {
		return err
	}
	other, _, err := graph(filepath.Join(tmp, "without"), lines(versions), slices.Sorted(maps.Values(libraries))...)
	if err != nil {
		return err
	}
	more := without(user, slices.Concat(other, forTests, []string{home}))
	tested := slices.DeleteFunc(compiled, func(p string) bool {
		return !slices.ContainsFunc(forTests, func(m string) bool { return strings.HasPrefix(p, m) })
	})
	return errors.Join(problems("a user of the root gets more than its libraries need", more),
		problems("a user of the root compiles what is for its tests", tested))
}

// graph makes a module in dir that requires and imports these, and tells its module graph and its packages.
func graph(dir string, edits []string, imports ...string) (modules, packages []string, err error) {
	if err := errors.Join(writeFile(dir, "go.mod", []byte("module user\n\ngo 1.26.0\n")),
		writeFile(dir, "main.go", importing(imports))); err != nil {
		return nil, nil, err
	}
	var out [4]string
	for i, args := range [][]string{
		append([]string{"mod", "edit"}, edits...), {"mod", "tidy"}, {"list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all"}, {"list", "-deps", "."},
	} {
		if out[i], err = output(dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false"}, "go", args...); err != nil {
			return nil, nil, err
		}
	}
	return lines(out[2]), lines(out[3]), nil
}

// importing is a program that imports these packages and does nothing.
func importing(packages []string) []byte {
	program := []byte("package main\n")
	for _, p := range packages {
		program = fmt.Appendf(program, "import _ %q\n", p)
	}
	return append(program, "func main() {}\n"...)
}

// without are those of all that are not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

func set(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
