package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	_ "image/png"
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

// All lines are visible, this library on top, and none is under the legend.
func TestWritePNG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines.png")
	drawn(t, file)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	picture, _, err := image.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	bounds := picture.Bounds()
	legend := bounds.Max.X - legendWidth*bounds.Dx()/600
	count := func(from, to, i int) (n int) {
		r, g, b, _ := palette[i].RGBA()
		for x := from; x < to; x++ {
			for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
				if pr, pg, pb, _ := picture.At(x, y).RGBA(); pr == r && pg == g && pb == b {
					n++
				}
			}
		}
		return n
	}
	require.Greater(t, count(bounds.Min.X, legend, 0), 1000, "a thick line in our colour")
	samples := count(legend, bounds.Max.X, 0)
	require.Positive(t, samples, "its sample in the legend")
	require.Less(t, samples, 500, "and no more of it")
}

func TestBars(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bars.svg")
	require.NoError(t, Bars(file, 400, 300, "title", "ratio", []string{"one", "two"},
		[]Bar{{Name: "first", Values: []float64{1, 2}}, {Name: "second", Values: []float64{2, 3}}}))
	require.Subset(t, texts(t, file), []string{"title", "ratio", "one", "two", "first", "second"})
}

func TestScatter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "points.svg")
	require.NoError(t, Scatter(file, 400, 300, "title", "extra load, %", "p99, ms", []Point{
		{Name: "slow", X: 0, Y: 1000}, {Name: "slow too", X: 0.01, Y: 1000}, {Name: "hedged", X: 5, Y: 70, Ours: true},
	}))
	require.Subset(t, texts(t, file), []string{"title", "extra load, %", "p99, ms", "slow, slow too", "hedged"})
}

func TestWrite_errors(t *testing.T) {
	require.Error(t, Write(filepath.Join(t.TempDir(), "lines.bmp"), 100, 100, Panel{Lines: []Line{ramp("a", 1)}}))
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
