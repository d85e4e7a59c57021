// Suites runs the own tests of SDKs with all their HTTP through a zero Transport, and prints which of them fail that pass
// without it.
//
//	go run ./benchmarks/cmd/suites            # all: half an hour
//	go run ./benchmarks/cmd/suites godo minio # some
//	go run ./benchmarks/cmd/suites -v go-gh   # with the output of the tests that fail
//
// Run it in the root of the repository. A suite that the module proxy does not have is skipped with a word. The tests are
// unchanged: the program copies the module, adds one file with an init function, and replaces one file of net/http by a copy
// (go build -overlay). The Client of the copy asks that function for its Transport. Each suite runs twice with the same binary.
// docs/sdks.md explains the failures.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// suite is the module of an SDK.
type suite struct {
	name, module, version string
	packages              []string
	edits                 []edit // of an SDK that has no http.Client
}

// edit replaces a text of a file.
type edit struct{ file, from, to string }

func suites() []suite {
	return []suite{
		{name: "godo", module: "github.com/digitalocean/godo", version: "v1.240.0", packages: []string{"."}},
		{name: "gitlab", module: "gitlab.com/gitlab-org/api/client-go", version: "v1.46.0", packages: []string{"."}},
		{name: "minio", module: "github.com/minio/minio-go/v7", version: "v7.4.1", packages: []string{"."}},
		{name: "go-gh", module: "github.com/cli/go-gh/v2", version: "v2.17.0", packages: []string{"./pkg/api"}},
		{name: "resty", module: "github.com/go-resty/resty/v2", version: "v2.17.2", packages: []string{"."}},
		{
			name: "elastic-transport", module: "github.com/elastic/elastic-transport-go/v8", version: "v8.11.0", packages: []string{"./elastictransport"},
			edits: []edit{{"elastictransport/elastictransport.go", "transport: cfg.Transport,", "transport: http.TransportOfTest(cfg.Transport),"}},
		},
	}
}

const module = "github.com/resilienthttp/resilienthttp"

func main() {
	verbose := flag.Bool("v", false, "print the output of the tests that fail")
	flag.Parse()
	if err := run(context.Background(), flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, verbose bool) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "suites")
	if err != nil {
		return err
	}
	overlay, err := patchNetHTTP(ctx, dir)
	for _, s := range suites() {
		if err == nil && (len(names) == 0 || slices.Contains(names, s.name)) {
			err = s.compare(ctx, root, dir, overlay, verbose)
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// patchNetHTTP returns an overlay in which http.Client sends through http.TransportOfTest, which an init function may set.
func patchNetHTTP(ctx context.Context, dir string) (string, error) {
	goroot, err := goTool(ctx, dir, nil, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "net", "http", "client.go")
	changed := filepath.Join(dir, "client.go")
	source, err := os.ReadFile(original) //nolint:gosec // of this Go
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, source, 0o600); err != nil { //nolint:gosec // in our own directory
		return "", err
	}
	sends := edit{"client.go", "send(req, c.transport(), deadline)", "send(req, TransportOfTest(c.transport()), deadline)"}
	if err := sends.apply(dir); err != nil {
		return "", err
	}
	hook := edit{"client.go", "\nfunc (c *Client) transport()", "\n// TransportOfTest returns the RoundTripper with which a Client sends.\n" +
		"var TransportOfTest = func(t RoundTripper) RoundTripper { return t }\n\nfunc (c *Client) transport()"}
	if err := hook.apply(dir); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o600)
}

func (e edit) apply(dir string) error {
	name := filepath.Join(dir, filepath.FromSlash(e.file))
	source, err := os.ReadFile(name) //nolint:gosec // of our own copy
	if err != nil {
		return err
	}
	if bytes.Count(source, []byte(e.from)) != 1 {
		return fmt.Errorf("%s: want %q once", e.file, e.from)
	}
	changed := bytes.Replace(source, []byte(e.from), []byte(e.to), 1)
	return os.WriteFile(name, changed, 0o600) //nolint:gosec // in our own copy
}

// compare runs a suite with and without the Transport, and prints the tests that fail only with it.
func (s suite) compare(ctx context.Context, root, dir, overlay string, verbose bool) error {
	own := filepath.Join(dir, s.name)
	err := s.copyTo(ctx, own)
	if err == nil {
		err = s.prepare(ctx, root, own)
	}
	if err != nil {
		_, _ = fmt.Fprintf(os.Stdout, "%-18s skipped, because it cannot be built: %v\n", s.name, err)
		return nil
	}
	for _, e := range s.edits {
		if err := e.apply(own); err != nil {
			return err
		}
	}
	bare, err := s.test(ctx, own, overlay, "SUITES_BARE=1")
	if err != nil {
		return err
	}
	ours, err := s.test(ctx, own, overlay)
	if err != nil {
		return err
	}
	s.print(bare, ours, verbose)
	return nil
}

func (s suite) print(bare, ours map[string]result, verbose bool) {
	passed := 0
	var failed []string
	for name, r := range bare {
		if r.action != "pass" {
			continue
		}
		passed++
		if ours[name].action != "pass" {
			failed = append(failed, name)
		}
	}
	_, _ = fmt.Fprintf(os.Stdout, "%-18s %s: %d tests pass bare, %d of them fail with a Transport\n", s.name, s.version, passed, len(failed))
	for _, name := range slices.Sorted(slices.Values(failed)) {
		_, _ = fmt.Fprintf(os.Stdout, "\t%s: %s\n", name, cmp.Or(ours[name].action, "not run"))
		if verbose {
			_, _ = fmt.Fprint(os.Stdout, ours[name].output)
		}
	}
}

// copyTo copies the module, because files of the module cache cannot be replaced.
func (s suite) copyTo(ctx context.Context, dir string) error {
	out, err := goTool(ctx, filepath.Dir(dir), []string{"GOWORK=off"}, "mod", "download", "-json", s.module+"@"+s.version)
	if err != nil {
		return err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(downloaded.Dir)); err != nil {
		return err
	}
	return filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()|0o200) //nolint:gosec // in our own copy
	})
}

// prepare requires this module, and adds the file with the init function to each package that has tests.
func (s suite) prepare(ctx context.Context, root, dir string) error {
	if _, err := goTool(ctx, dir, nil, "mod", "edit", "-require="+module+"@v0.1.0", "-replace="+module+"="+root); err != nil {
		return err
	}
	list := append([]string{"list", "-mod=mod", "-f", "{{.Dir}}\t{{.Name}}\t{{len .TestGoFiles}}\t{{len .XTestGoFiles}}"}, s.packages...)
	out, err := goTool(ctx, dir, nil, list...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		name := fields[1]
		switch {
		case fields[2] != "0":
		case fields[3] != "0":
			name += "_test"
		default:
			continue
		}
		source := strings.Replace(hookFile, "package p", "package "+name, 1)
		if err := os.WriteFile(filepath.Join(fields[0], "zz_resilienthttp_test.go"), []byte(source), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hookFile gives each RoundTripper of the tests a zero Transport of its own.
const hookFile = `package p

import (
	zzhttp "net/http"
	zzos "os"
	zzsync "sync"

	zzresilient "` + module + `"
)

func init() {
	if zzos.Getenv("SUITES_BARE") != "" {
		return
	}
	var mu zzsync.Mutex
	transports := map[*zzhttp.Transport]*zzresilient.Transport{}
	zzhttp.TransportOfTest = func(base zzhttp.RoundTripper) zzhttp.RoundTripper {
		native, ok := base.(*zzhttp.Transport)
		if !ok { // a fake, which may not be comparable
			return &zzresilient.Transport{Base: base}
		}
		mu.Lock()
		defer mu.Unlock()
		if transports[native] == nil {
			transports[native] = &zzresilient.Transport{Base: native}
		}
		return transports[native]
	}
}
`

// result is how a test ended: pass, fail, skip, or aborted.
type result struct{ action, output string }

// test runs the suite. A test that panics, or takes too long, ends its whole binary. So the suite runs again without it.
func (s suite) test(ctx context.Context, dir, overlay string, env ...string) (map[string]result, error) {
	results := map[string]result{}
	var skipped []string
	for {
		aborted, err := s.testOnce(ctx, dir, overlay, env, skipped, results)
		if err != nil || aborted == "" {
			return results, err
		}
		skipped = append(skipped, "^"+aborted+"$")
	}
}

// testOnce adds the results of one run. It returns a test that aborted it.
func (s suite) testOnce(ctx context.Context, dir, overlay string, env, skipped []string, results map[string]result) (aborted string, err error) {
	args := []string{"test", "-mod=mod", "-overlay=" + overlay, "-vet=off", "-count=1", "-timeout=20m", "-json"}
	if len(skipped) > 0 {
		args = append(args, "-skip="+strings.Join(skipped, "|"))
	}
	out, err := goTool(ctx, dir, env, append(args, s.packages...)...)
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return "", err
	}
	began := map[string]string{} // name: test
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Package, Test, Output string }
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		name := strings.TrimPrefix(event.Package, s.module) + " " + event.Test
		switch {
		case event.Action == "build-output":
			fmt.Fprint(os.Stderr, event.Output)
		case event.Test == "":
		case event.Action == "run":
			began[name] = event.Test
			results[name] = result{action: "aborted"}
		case event.Action == "output":
			results[name] = result{results[name].action, results[name].output + event.Output}
		case slices.Contains([]string{"pass", "fail", "skip"}, event.Action):
			results[name] = result{event.Action, results[name].output}
		}
	}
	if len(began) == 0 && len(skipped) == 0 {
		return "", fmt.Errorf("%s: no test ran", s.name)
	}
	for name, test := range began {
		panicked := strings.Contains(results[name].output, "panic: ")
		if panicked && !strings.Contains(test, "/") {
			return test, nil
		}
	}
	return "", nil
}

// goTool runs the go command in a directory.
func goTool(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // with the arguments of this program
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}
