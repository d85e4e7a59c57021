package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// module is a go.mod of the repository, as `go mod edit -json` prints it.
type module struct {
	Dir    string // from the root, with slashes
	Module struct{ Path string }

	Go, Toolchain    string
	GoDebug, Exclude []any

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

// apart are the modules outside the workspace. The workspace has one module graph, and their requirements would change the
// versions that the library is tested with.
var apart = []string{"benchmarks/durable/sqlite", "tools"}

// printApart prints these modules for .ci/run.
func printApart([]string) error {
	fmt.Println(strings.Join(apart, "\n"))
	return nil
}

// modules checks that go.mod, go.sum, go.work and go.work.sum are complete and minimal.
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
	_, incomplete := output(".", nil, "go", "list", "-m", "all") // of go.work.sum: go list would add lines, and the step clean fails
	return errors.Join(
		problems("modules", inOrder(all, used, string(changelog))),
		problems("directives of go.mod", directives(all)),
		tidy(all), incomplete, requiresOnlyWhatItMay())
}

// workspace returns the directories that go.work uses.
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

// inOrder returns what is wrong with the modules. go.work must use all of them. The path of each must follow from its directory.
// A module that requires another one of the repository must replace it by its directory, and name the latest release.
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

// goVersion is the language version of all modules.
const goVersion = "1.26.0"

// directives returns what a go.mod must not have, because it would hold for the workspace only, or for this module alone. A module
// replaces only modules of the repository.
func directives(all []module) (wrong []string) {
	for _, m := range all {
		if m.Go != goVersion || m.Toolchain != "" || len(m.GoDebug) > 0 || len(m.Exclude) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod has go %s, want %s, and no toolchain, godebug or exclude", m.Dir, m.Go, goVersion))
		}
		for _, r := range m.Replace {
			if r.Old.Path != home && !strings.HasPrefix(r.Old.Path, home+"/") {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod replaces %s", m.Dir, r.Old.Path))
			}
		}
	}
	return wrong
}

// replaces reports whether the module replaces another one by dir.
func (m module) replaces(other, dir string) bool {
	for _, r := range m.Replace {
		if r.Old.Path == other {
			return path.Join(m.Dir, r.New.Path) == dir
		}
	}
	return false
}

// first is the version of the first release.
const first = "v0.1.0"

// latestRelease returns the version of the newest section of the changelog.
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

// requiresOnlyWhatItMay checks the requirements of the root module. Users get all but testify.
func requiresOnlyWhatItMay() error {
	out, err := output(".", []string{"GOWORK=off"}, "go", "list", "-m", "-f", "{{if not (or .Main .Indirect)}}{{.Path}}{{end}}", "all")
	if err != nil {
		return err
	}
	want := []string{"github.com/google/uuid", "github.com/hashicorp/go-retryablehttp", "github.com/stretchr/testify", "golang.org/x/time"}
	return errors.Join(problems("the root's go.mod requires more than it may", without(lines(out), want)),
		problems("the root's go.mod does not require", without(want, lines(out))))
}

// without returns the elements of all that are not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
