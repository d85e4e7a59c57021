package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func ramp(name string, to float64) Line {
	return Line{Name: name, X: []float64{0, 1, 2}, Y: []float64{0, to / 2, to}}
}

func drawn(t *testing.T, file string) {
	t.Helper()
	ours := ramp("ours", 3)
	ours.Thick = true
	other := ramp("another", 9)
	other.Dashed = true
	require.NoError(t, Write(file, 600, 400,
		Panel{Title: "above", Y: "load", Lines: []Line{ours, other}, Max: 5, Bands: [][2]float64{{0.5, 1.5}}, XStep: 1, YStep: 1},
		Panel{Title: "below", X: "seconds", Y: "goodput", Lines: []Line{ours, other}}))
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

func TestWriteSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines.svg")
	drawn(t, file)
	require.Subset(t, texts(t, file), []string{"above", "below", "load", "goodput", "seconds", "ours", "another"})
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(svg), darkStyle)
}

func TestWrite_errors(t *testing.T) {
	require.Error(t, Write(filepath.Join(t.TempDir(), "missing", "lines.svg"), 100, 100, Panel{Lines: []Line{ramp("a", 1)}}))
}

func TestEvery(t *testing.T) {
	var values []float64
	var labels []string
	for _, tick := range every(0.5).Ticks(-0.1, 1.2) {
		values, labels = append(values, tick.Value), append(labels, tick.Label)
	}
	require.Equal(t, []float64{0, 0.5, 1}, values)
	require.Equal(t, []string{"0", "0.5", "1"}, labels)
}

func TestDots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dots.svg")
	series := []string{"ours", "bare", "best"}
	require.NoError(t, WriteDots(file, 700, 300, []string{"one", "two"},
		Dots{Title: "left", X: "success", Series: series, Values: [][]float64{{0.9, 0.5, 0.8}, {0.1, 0.5, math.NaN()}}},
		Dots{Title: "right", X: "success", Series: series, Values: [][]float64{{math.NaN(), math.NaN(), math.NaN()}, {1, 1, 1}}}))
	require.Subset(t, texts(t, file), []string{"left", "right", "success", "one", "two", "ours", "bare", "best"})
}
