// Constants shows what each numeric constant of a package is worth: it halves and doubles them one at a time, and prints which
// figures of fixed draws change by more than the noise.
//
//	go run ./benchmarks/cmd/constants                           # all boards, the root and each folder of internal: hours
//	go run ./benchmarks/cmd/constants -boards=zoo internal/quota
//	go run ./benchmarks/cmd/constants -boards=tests internal/quota
//
// The board tests names the first test of the folder that fails. The others are 60 drawn rate limiters (zoo), 60 random
// compositions (random), and the targets of a sample of the ride and of the small calls of crons (ride). The noise is what six
// runs without a change differ by, to either side of them. Run it in the root of the repository. A constant takes a minute,
// because each change is a build.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// board is a run of the command fleet.
type board struct {
	name    string
	args    []string
	figures map[string]string // name: pattern of its line, with the figure as a group
}

func boards() []board {
	return []board{
		{"zoo", []string{"-zoo=60", "-seed=777"}, map[string]string{
			"misses": `draws, (\d+) with a miss`, "below bare": `served/bare +(\d+) of +\d+ missed`,
			"gain": `([+-][\d.]+) of the calls served`, "rejections": `([\d.]+) of its rejections`,
		}},
		{"random", []string{"-random=60", "-seed=777", "-peer=ours"}, map[string]string{
			"harmed": `compositions: (\d+) harmed`, "gain": `mean ([+-][\d.]+)`,
		}},
		{"ride", []string{"-group=ride-quick,crons", "-peer=ours"}, map[string]string{"targets": `all +(\d+) of \d+ targets`}},
	}
}

// constant is one number of the source.
type constant struct {
	file, name, text string
	from, to         int // its place in the file
}

func main() {
	names := flag.String("boards", "zoo,random,ride", "comma-separated: zoo, random, ride, tests")
	flag.Parse()
	folders := flag.Args()
	if len(folders) == 0 {
		folders, _ = filepath.Glob("internal/*") // the pattern is right
		folders = append(folders, ".")
	}
	if err := run(strings.Split(*names, ","), folders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

func run(names, folders []string) error {
	chosen := slices.DeleteFunc(boards(), func(b board) bool { return !slices.Contains(names, b.name) })
	tests := slices.Contains(names, "tests")
	if len(chosen) == 0 && !tests {
		return errors.New("usage: constants [-boards=zoo,random,ride] [FOLDER…]")
	}
	dir, err := os.MkdirTemp("", "constants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	usual := map[string][]float64{}
	for range 6 {
		figures, err := measure(dir, "{}", chosen)
		if err != nil {
			return err
		}
		for name, x := range figures {
			usual[name] = append(usual[name], x)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(usual)) {
		say("as it is:", name, usual[name])
	}
	say("\n| constant | value | half | double |\n|---|---|---|---|")
	for _, folder := range folders {
		list, err := constants(folder)
		if err != nil {
			return err
		}
		for _, c := range list {
			half, double := c.change(dir, "/ 2", chosen, usual, tests), c.change(dir, "* 2", chosen, usual, tests)
			say("| `"+c.name+"` of", folder, "| `"+c.text+"` |", half, "|", double, "|")
		}
	}
	return nil
}

// constants returns the constants of a folder that contain a number, and neither a text nor iota.
func constants(folder string) (list []constant, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				return true
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.ValueSpec)
				for i := 0; ok && i < len(spec.Values); i++ {
					if from, to := set.Position(spec.Values[i].Pos()).Offset, set.Position(spec.Values[i].End()).Offset; isNumber(spec.Values[i]) {
						list = append(list, constant{file, spec.Names[i].Name, string(text[from:to]), from, to})
					}
				}
			}
			return false
		})
	}
	return list, err
}

func isNumber(value ast.Expr) bool {
	number, other := false, false
	ast.Inspect(value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			isNumber := n.Kind == token.INT || n.Kind == token.FLOAT
			number, other = number || isNumber, other || !isNumber
		case *ast.Ident:
			other = other || n.Name == "iota"
			number = number || slices.Contains([]string{"Millisecond", "Second", "Minute", "Hour"}, n.Name) // time.Second
		}
		return true
	})
	return number && !other
}

// change says what differs from the usual figures if the constant is changed.
func (c constant) change(dir, operation string, chosen []board, usual map[string][]float64, tests bool) string {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err.Error()
	}
	changed := filepath.Join(dir, filepath.Base(c.file))
	text = slices.Concat(text[:c.from], []byte("("+c.text+") "+operation), text[c.to:])
	if err := os.WriteFile(changed, text, 0o600); err != nil { //nolint:gosec // in a temporary directory
		return err.Error()
	}
	path, err := filepath.Abs(c.file)
	if err != nil {
		return err.Error()
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return err.Error()
	}
	figures, err := measure(dir, string(overlay), chosen)
	if err != nil {
		return err.Error()
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		least, most := slices.Min(usual[name]), slices.Max(usual[name])
		if noise, x := most-least, figures[name]; x < least-noise || x > most+noise {
			differences = append(differences, fmt.Sprintf("%s %v → %v", name, usual[name][0], x))
		}
	}
	if tests {
		differences = append(differences, failing(filepath.Join(dir, "overlay.json"), filepath.Dir(c.file))...)
	}
	if differences == nil {
		return "none"
	}
	return strings.Join(differences, "; ")
}

// failing returns the first test of a folder that fails with the overlay, if one does.
func failing(overlay, folder string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "test", "-short", "-failfast", "-overlay", overlay, "./"+folder).CombinedOutput() //nolint:gosec // our own tests
	if err == nil {
		return nil
	}
	if found := regexp.MustCompile(`--- FAIL: (\w+)`).FindSubmatch(output); found != nil {
		return []string{string(found[1])}
	}
	return []string{"the tests end: " + err.Error()}
}

// measure builds the command fleet with the overlay (go help build), and returns the figures of the boards.
func measure(dir, overlay string, chosen []board) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a changed constant may make a board endless
	defer cancel()
	file, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "fleet")
	if err := os.WriteFile(file, []byte(overlay), 0o600); err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return map[string]float64{}, nil
	}
	if err := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", program, "./benchmarks/cmd/fleet").Run(); err != nil { //nolint:gosec // our own command
		return nil, errors.New("does not build")
	}
	figures := map[string]float64{}
	for _, b := range chosen {
		output, err := exec.CommandContext(ctx, program, b.args...).Output() //nolint:gosec // our own program
		if err != nil {
			return nil, errors.New(b.name + " fails")
		}
		for name, pattern := range b.figures {
			found := regexp.MustCompile(pattern).FindSubmatch(output)
			if found == nil {
				return nil, fmt.Errorf("%s prints no %s", b.name, name)
			}
			x, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				return nil, err
			}
			figures[b.name+" "+name] = x
		}
	}
	return figures, nil
}
