package overhead

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is a program that sends one GET with a library.
type Program struct {
	Name   string
	Import string // "": only net/http
	Client string // an expression of type *http.Client
}

// Programs returns the measured programs. The first one has no library.
func Programs() []Program {
	return []Program{
		{"net/http", "", "http.DefaultClient"},
		{"resilienthttp", "github.com/resilienthttp/resilienthttp", "resilienthttp.NewClient()"},
		{"go-retryablehttp", "github.com/hashicorp/go-retryablehttp", "retryablehttp.NewClient().StandardClient()"},
		{
			"failsafe-go", "github.com/failsafe-go/failsafe-go/failsafehttp",
			"&http.Client{Transport: failsafehttp.NewRoundTripper(nil, failsafehttp.NewRetryPolicyBuilder().Build())}",
		},
	}
}

// Size builds the program in a temporary directory and returns the size of the binary in
// bytes. It needs the go command and must run in this module.
func (p Program) Size(ctx context.Context) (int64, error) {
	dir, err := os.MkdirTemp("", "overhead")
	if err != nil {
		return 0, fmt.Errorf("binary: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	imports := ""
	if p.Import != "" {
		imports = fmt.Sprintf("\t%q\n", p.Import)
	}
	source := "package main\n\nimport (\n\t\"fmt\"\n\t\"net/http\"\n" + imports +
		")\n\nfunc main() {\n\tvar client *http.Client = " + p.Client + "\n\tfmt.Println(client.Get(\"http://api.example/\"))\n}\n"
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return 0, fmt.Errorf("binary: %w", err)
	}
	command := exec.CommandContext(ctx, "go", "build", "-o", binary, file) //nolint:gosec // both paths are of the directory made above
	if out, err := command.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("binary: go build: %w: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return 0, fmt.Errorf("binary: %w", err)
	}
	return info.Size(), nil
}
