package chart

import (
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Dots is a panel with a line for each name and a dot for each series.
type Dots struct {
	Title, X string
	Series   []string    // the first is this library
	Values   [][]float64 // of each name, by series; NaN: none
}

// dotGlyph is the style of the dots of a series.
func dotGlyph(series int) draw.GlyphStyle {
	style := draw.GlyphStyle{Color: palette[series%len(palette)], Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	switch series {
	case 0:
		style.Radius = vg.Points(4)
	case 1:
		style.Shape = draw.PlusGlyph{}
		style.Radius = vg.Points(4)
	case 2:
		style.Shape = draw.RingGlyph{}
		style.Radius = vg.Points(4.5)
	}
	return style
}

// WriteDots draws the panels side by side. They share the names; the first name is at the
// top. Each line has a bar from its second dot to its first.
func WriteDots(file string, width, height float64, names []string, panels ...Dots) error {
	row := make([]*plot.Plot, len(panels))
	for i, panel := range panels {
		p, err := panel.plot(names, i == 0)
		if err != nil {
			return err
		}
		row[i] = p
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding, legend.ThumbnailWidth = true, true, vg.Points(2), vg.Points(26)
	setFont(&legend.TextStyle, vg.Points(9))
	for i, name := range panels[0].Series {
		legend.Add(name, &plotter.Scatter{GlyphStyle: dotGlyph(i)})
	}
	picture, err := render(width, height, row, &legend)
	if err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644) //nolint:gosec // documentation
}

func (d Dots) plot(names []string, named bool) (*plot.Plot, error) {
	p := blank()
	p.Title.Text, p.X.Label.Text = d.Title, d.X
	p.X.Tick.Marker = fifths()
	p.Add(plotter.NewGrid())
	labels := make([]string, len(names))
	for i, name := range names {
		if named {
			labels[len(names)-1-i] = name
		}
	}
	for i, values := range d.Values {
		if err := bar(p, float64(len(names)-1-i), values); err != nil {
			return nil, err
		}
	}
	for series := range slices.Backward(d.Series) { // the first one is on top
		s, err := plotter.NewScatter(d.points(series, len(names)))
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = dotGlyph(series)
		p.Add(s)
	}
	p.NominalY(labels...)
	setFont(&p.Y.Tick.Label, vg.Points(8))
	p.X.Min, p.X.Max = 0, 1.02
	p.Y.Min, p.Y.Max = -0.7, float64(len(names))-0.3
	return p, nil
}

// fifths has a tick at each fifth of a ratio.
func fifths() (ticks plot.ConstantTicks) {
	for i := range 6 {
		ratio := float64(i) / 5
		ticks = append(ticks, plot.Tick{Value: ratio, Label: strconv.FormatFloat(ratio, 'g', -1, 64)})
	}
	return ticks
}

func (d Dots) points(series, lines int) (points plotter.XYs) {
	for i, values := range d.Values {
		if !math.IsNaN(values[series]) {
			points = append(points, plotter.XY{X: values[series], Y: float64(lines - 1 - i)})
		}
	}
	return points
}

// bar is blue and wide if the first value exceeds the second, and orange and thin if it is
// less.
func bar(p *plot.Plot, y float64, values []float64) error {
	if math.IsNaN(values[0]) || math.IsNaN(values[1]) {
		return nil
	}
	line, err := plotter.NewLine(plotter.XYs{{X: values[1], Y: y}, {X: values[0], Y: y}})
	if err != nil {
		return err
	}
	line.Width, line.Color = vg.Points(4), color.RGBA{0xa6, 0xcd, 0xe6, 0xff}
	if values[0] < values[1] {
		line.Width, line.Color = vg.Points(1.5), palette[5]
	}
	p.Add(line)
	return nil
}
