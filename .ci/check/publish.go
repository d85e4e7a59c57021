package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// home is the module path of the root.
const home = "github.com/resilienthttp/resilienthttp"

// publish makes a release of a copy of this checkout, under an invented version. It then installs each module into an empty
// module, as a user does, compiles its packages there, and runs README's program.
//
// tools/release prepares the release and its tags, and the go command makes a module cache from the tags. It is the user's: nothing
// is written to that of this machine. Other modules come from there, or from the usual proxy.
func publish([]string) error {
	dir, err := os.MkdirTemp("", "publish")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &madeUp{dir: dir}
	if err := r.copy(); err != nil {
		return err
	}
	if err := r.release(); err != nil {
		return err
	}
	if err := r.serve(); err != nil {
		return err
	}
	return errors.Join(r.installAll(), r.readme())
}

// madeUp is a release that only this machine has.
type madeUp struct {
	dir, version string
	modules      []string // their paths
	env          []string // of the user's commands
}

func (r *madeUp) source() string { return filepath.Join(r.dir, "source") }

// copy commits a copy of the checkout. The version is that of its content: what a run has compiled of it serves the next run.
func (r *madeUp) copy() error {
	files, err := tracked()
	if err != nil {
		return err
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := writeFile(r.source(), name, content); err != nil {
			return err
		}
	}
	if err := errors.Join(r.git("init", "--quiet"), r.git("add", "--all", "--force"), r.git("commit", "--quiet", "--message=before")); err != nil {
		return err
	}
	tree, err := output(r.source(), nil, "git", "rev-parse", "HEAD^{tree}")
	sum := sha256.Sum256([]byte(tree))
	r.version = fmt.Sprintf("v0.999999.0-ci.h%x", sum[:8])
	return err
}

// release runs tools/release in the copy, commits and tags.
func (r *madeUp) release() error {
	tool := filepath.Join(r.dir, "release")
	if _, err := output("tools", []string{"GOWORK=off"}, "go", "build", "-o", tool, "./release"); err != nil {
		return err
	}
	tags, err := output(r.source(), nil, tool, r.version)
	if err != nil {
		return err
	}
	return errors.Join(r.git("commit", "--quiet", "--all", "--message=release"), r.tag(lines(tags)...))
}

// tag tags the commit. Each tag belongs to a module.
func (r *madeUp) tag(tags ...string) error {
	for _, tag := range tags {
		if err := r.git("tag", tag); err != nil {
			return err
		}
		r.modules = append(r.modules, path.Join(home, path.Dir(tag)))
	}
	return nil
}

func (r *madeUp) git(args ...string) error {
	as := []string{"-c", "user.name=ci", "-c", "user.email=ci@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", "-c", "maintenance.auto=false", "-c", "gc.auto=0"}
	_, err := output(r.source(), nil, "git", append(as, args...)...)
	return err
}

// serve makes the go command download each module from the tags.
func (r *madeUp) serve() error {
	known, err := output(".", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	args := []string{"mod", "download"}
	for _, m := range r.modules {
		args = append(args, m+"@"+r.version)
	}
	r.env = []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -buildvcs=false -trimpath", "GOSUMDB=off", // the checkout's go.sum files hold other modules
		"GOMODCACHE=" + filepath.Join(r.dir, "modules"),
	}
	_, err = output(r.dir, append(slices.Clone(r.env), "GOPROXY=direct",
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(r.source())+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+home,
		"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*", "GIT_CONFIG_KEY_2=protocol.file.allow", "GIT_CONFIG_VALUE_2=always"),
		"go", args...)
	cache, usual := lines(known)[0], lines(known)[1]
	r.env = append(r.env, "GOPROXY=file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+usual)
	return err
}

// installAll installs each module into an empty module.
func (r *madeUp) installAll() error {
	var all []error
	for _, m := range r.modules {
		start := time.Now()
		n, err := r.install(m)
		if err != nil {
			all = append(all, fmt.Errorf("%s cannot be installed: %w", m, err))
			continue
		}
		fmt.Printf("go get %s, %d packages compile: %.1f s\n", m, n, time.Since(start).Seconds())
	}
	return errors.Join(all...)
}

func (r *madeUp) install(module string) (packages int, err error) {
	dir := filepath.Join(r.dir, "alone", strings.ReplaceAll(module, "/", "_"))
	if err := r.stranger(dir); err != nil {
		return 0, err
	}
	if _, err := output(dir, r.env, "go", "get", module+"@"+r.version); err != nil {
		return 0, err
	}
	all, err := r.importable(dir, module)
	if err != nil {
		return 0, err
	}
	imports := []byte("package imports\n") // not a program: those are linked
	for _, p := range all {
		imports = fmt.Appendf(imports, "import _ %q\n", p)
	}
	if err := writeFile(dir, "imports.go", imports); err != nil {
		return 0, err
	}
	// The tests have linked it already.
	_, err = output(dir, r.env, "go", "build", "./...")
	return len(all), err
}

// stranger makes an empty module in dir.
func (r *madeUp) stranger(dir string) error {
	return writeFile(dir, "go.mod", []byte("module stranger.example/program\n\ngo 1.26.0\n"))
}

// importable returns the packages of the module that users may import.
func (r *madeUp) importable(dir, module string) ([]string, error) {
	out, err := output(dir, r.env, "go", "list", "-f", `{{if and (eq .Module.Path "`+module+`") (ne .Name "main")}}{{.ImportPath}}{{end}}`, module+"/...")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lines(out), func(p string) bool { return slices.Contains(strings.Split(p, "/"), "internal") }), nil
}

// writeFile writes a file with a name relative to dir, and makes its directories.
func writeFile(dir, name string, content []byte) error {
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}

// runIn runs a command in dir and prints its output.
func runIn(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
