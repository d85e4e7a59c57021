package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"
)

// matrix is an affine transformation of SVG.
type matrix [6]float64

func (m matrix) times(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[2]*n[1], m[1]*n[0] + m[3]*n[1], m[0]*n[2] + m[2]*n[3], m[1]*n[2] + m[3]*n[3],
		m[0]*n[4] + m[2]*n[5] + m[4], m[1]*n[4] + m[3]*n[5] + m[5],
	}
}

var function = regexp.MustCompile(`(\w+)\(([^)]*)\)`)

// transformed applies the functions that gonum uses.
func (m matrix) transformed(t *testing.T, functions string) matrix {
	t.Helper()
	for _, f := range function.FindAllStringSubmatch(functions, -1) {
		var v []float64
		for _, word := range strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' || r == ' ' }) {
			v = append(v, number(t, word))
		}
		switch f[1] {
		case "scale":
			m = m.times(matrix{v[0], 0, 0, v[1]})
		case "translate":
			m = m.times(matrix{1, 0, 0, 1, v[0], v[1]})
		case "rotate":
			sin, cos := math.Sincos(v[0] * math.Pi / 180)
			m = m.times(matrix{cos, sin, -sin, cos})
		default:
			t.Fatalf("what is %s?", f[0])
		}
	}
	return m
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

// cut returns the texts of an SVG that are partly outside its view box, or that have no
// textLength.
func cut(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	stack := []matrix{{1, 0, 0, 1}}
	var right, bottom float64
	texts := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			require.Positive(t, texts)
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			attribute := map[string]string{}
			for _, a := range token.Attr {
				attribute[a.Name.Local] = a.Value
			}
			m := stack[len(stack)-1].transformed(t, attribute["transform"])
			stack = append(stack, m)
			switch token.Name.Local {
			case "svg":
				_, err := fmt.Sscanf(attribute["viewBox"], "0 0 %f %f", &right, &bottom)
				require.NoError(t, err)
			case "text":
				texts++
				if !within(t, m, attribute, right, bottom) {
					all = append(all, fmt.Sprint(token.Attr))
				}
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
}

var fontSize = regexp.MustCompile(`font-family:[^;]*, sans-serif;.*font-size:([0-9.]+)px`)

func within(t *testing.T, m matrix, attribute map[string]string, right, bottom float64) bool {
	t.Helper()
	size := fontSize.FindStringSubmatch(attribute["style"])
	if attribute["textLength"] == "" || size == nil {
		return false
	}
	x, y := number(t, attribute["x"]), number(t, attribute["y"])
	for _, dx := range []float64{0, number(t, attribute["textLength"])} {
		for _, dy := range []float64{0.2, -0.75} { // below and above the baseline
			p := m.times(matrix{1, 0, 0, 1, x + dx, y + dy*number(t, size[1])})
			if p[4] < 0 || p[4] > right || p[5] < 0 || p[5] > bottom {
				return false
			}
		}
	}
	return true
}

// No text is cut off, in the plots of the documentation and with long names.
func TestPlots_cutNoText(t *testing.T) {
	long := strings.Repeat("a library with a long name & its configuration, ", 2)
	dir := t.TempDir()
	line := ramp(long, 3)
	require.NoError(t, Write(filepath.Join(dir, "lines.svg"), 900, 400, Panel{Title: "t", X: "x", Y: "y", Lines: []Line{line}}))
	require.NoError(t, WriteDots(filepath.Join(dir, "dots.svg"), 900, 300, []string{long}, Dots{Title: "t", Series: []string{"a", "b"}, Values: [][]float64{{1, 0}}}))
	files, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	docs, err := filepath.Glob(filepath.Join("..", "..", "..", "docs", "*.svg"))
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	for _, file := range append(files, docs...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if filepath.Base(file) != "lifecycle.svg" { // which tools/lifecycle draws
			t.Run(filepath.Base(file), func(t *testing.T) { require.Empty(t, cut(t, text)) })
		}
	}
}

// cut finds texts that are cut off.
func TestCut(t *testing.T) {
	picture := `<svg viewBox="0 0 100 50"><g transform="scale(1, -1) translate(0, -50)">%s</g></svg>`
	text := `<text textLength="%d" x="%d" y="-20" transform="scale(1, -1)" style="font-family:Arial, sans-serif;font-size:10px">a</text>`
	require.Empty(t, cut(t, fmt.Appendf(nil, picture, fmt.Sprintf(text, 50, 50))))
	require.Len(t, cut(t, fmt.Appendf(nil, picture, fmt.Sprintf(text, 51, 50))), 1)
	require.Len(t, cut(t, fmt.Appendf(nil, picture, fmt.Sprintf(text, 50, -1))), 1)
	require.Len(t, cut(t, fmt.Appendf(nil, picture, `<g transform="rotate(90)">`+fmt.Sprintf(text, 60, 0)+`</g>`)), 1)
	require.Len(t, cut(t, fmt.Appendf(nil, picture, `<text x="1" y="-20">a</text>`)), 1, "of any width")
}

// Lines differ without colours, too.
func TestMarkers_differ(t *testing.T) {
	seen := map[string]bool{}
	for i := 2; i < len(markers); i++ {
		look := fmt.Sprintf("%#v", markers[i])
		require.False(t, seen[look], look)
		seen[look] = true
		require.NotEmpty(t, marked(make(plotter.XYs, 3), i))
	}
}
