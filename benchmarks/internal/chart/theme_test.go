package chart

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All colors of the documents' plots are legible on a light and on a dark page: WCAG 2.2 asks for a
// contrast of 3 for graphics (success criterion 1.4.11). Pale areas below dark marks are excepted.
func TestTheme(t *testing.T) {
	pale := map[string]bool{"#F0F0F0": true, "#A6CDE6": true, "#E69F00": true, "#56B4E9": true, "#CC79A7": true}
	dark := map[string]string{}
	for _, rule := range regexp.MustCompile(`(?:fill|stroke):(#[0-9A-F]{6})"\] \{ (?:fill|stroke): (#[0-9a-f]{6})`).FindAllStringSubmatch(darkStyle, -1) {
		dark[rule[1]] = rule[2]
	}
	files, err := filepath.Glob("../../../docs/*.svg")
	require.NoError(t, err)
	drawn := 0
	for _, file := range files {
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.Contains(string(svg), "SVGo") {
			require.Contains(t, string(svg), "prefers-color-scheme: dark", file) // drawn by hand
			continue
		}
		drawn++
		require.Equal(t, 1, strings.Count(string(svg), darkStyle), file)
		body := strings.Replace(string(svg), darkStyle, "", 1)
		for _, color := range regexp.MustCompile(`#[0-9A-F]{6}`).FindAllString(body, -1) {
			if color == "#FFFFFF" || color == "#F0F0F0" {
				continue
			}
			onDark := color
			if other, ok := dark[color]; ok {
				onDark = other
			}
			require.GreaterOrEqual(t, contrast(t, onDark, dark["#FFFFFF"]), 3.0, "%s: %s on a dark page", file, color)
			if !pale[color] {
				require.GreaterOrEqual(t, contrast(t, color, "#FFFFFF"), 3.0, "%s: %s on a light page", file, color)
			}
		}
	}
	require.Equal(t, 2, drawn)
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
