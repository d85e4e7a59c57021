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

func ramp(name string, to float64) Line {
	return Line{Name: name, Points: []Point{{X: 0, Y: 0}, {X: 1, Y: to / 2}, {X: 2, Y: to}}}
}

// texts returns the texts of an SVG.
func texts(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	decoder := xml.NewDecoder(bytes.NewReader(text))
	inText := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.CharData:
			if inText {
				all = append(all, string(token))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

func TestSVG(t *testing.T) {
	ours := ramp("ours", 3)
	ours.Thick = true
	svg, err := SVG(600, 400, Panel{X: "seconds", Lines: []Line{ours, ramp("another", 9)}, Max: 10, Band: [2]float64{0.5, 1.5}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "lines.svg")
	require.NoError(t, os.WriteFile(file, svg, 0o600))
	require.Contains(t, texts(t, file), "seconds")
	require.Contains(t, string(svg), darkStyle)
}

// The documents' pictures are drawn by hand, for both themes.
func TestDocuments_dark(t *testing.T) {
	files, err := filepath.Glob("../../../docs/*.svg")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(svg), "prefers-color-scheme: dark", file)
	}
}

// All colors of the lab's plots are legible on a light and on a dark page: WCAG 2.2 asks for a
// contrast of 3 for graphics (success criterion 1.4.11). Pale areas below dark marks are excepted.
func TestTheme(t *testing.T) {
	pale := map[string]bool{"#F0F0F0": true, "#E69F00": true, "#56B4E9": true, "#CC79A7": true}
	dark := map[string]string{}
	for _, rule := range regexp.MustCompile(`(?:fill|stroke):(#[0-9A-F]{6})"\] \{ (?:fill|stroke): (#[0-9a-f]{6})`).FindAllStringSubmatch(darkStyle, -1) {
		dark[rule[1]] = rule[2]
	}
	all := Panel{Max: 1}
	for range palette {
		all.Lines = append(all.Lines, ramp("a", 1))
	}
	svg, err := SVG(600, 400, all)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(svg), darkStyle))
	body := strings.Replace(string(svg), darkStyle, "", 1)
	for _, color := range regexp.MustCompile(`#[0-9A-F]{6}`).FindAllString(body, -1) {
		if color == "#FFFFFF" || color == "#F0F0F0" {
			continue
		}
		onDark := color
		if other, ok := dark[color]; ok {
			onDark = other
		}
		require.GreaterOrEqual(t, contrast(t, onDark, dark["#FFFFFF"]), 3.0, "%s on a dark page", color)
		if !pale[color] {
			require.GreaterOrEqual(t, contrast(t, color, "#FFFFFF"), 3.0, "%s on a light page", color)
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, color string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
		require.NoError(t, err)
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
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
