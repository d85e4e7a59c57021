package chart

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Bar is one name with a value for each series.
type Bar struct {
	Name   string
	Values []float64
	Ours   bool
}

// Bars draws horizontal bars, the first at the top.
func Bars(file string, width, height float64, title, x string, series []string, bars []Bar) error {
	bars = slices.Clone(bars)
	slices.Reverse(bars)
	p := blank()
	p.Title.Text, p.X.Label.Text = title, x
	p.X.Tick.Marker = every(0.25)
	p.Add(plotter.NewGrid())
	legend := newLegend()
	thickness := vg.Length(height) * 0.7 / vg.Length(len(bars)*len(series))
	for i, name := range series {
		offset := thickness * (vg.Length(len(series)-1)/2 - vg.Length(i))
		for _, ours := range []bool{false, true} {
			chart, err := plotter.NewBarChart(values(bars, i, ours), thickness)
			if err != nil {
				return err
			}
			chart.Horizontal, chart.LineStyle.Width, chart.Offset = true, 0, offset
			chart.Color = barColour(i, ours)
			p.Add(chart)
			if !ours {
				legend.Add(name, chart)
			}
		}
	}
	names := make([]string, len(bars))
	for i, b := range bars {
		names[i] = b.Name
	}
	p.NominalY(names...)
	p.X.Min = 0
	return save(file, width, height, [][]*plot.Plot{{p}}, &legend)
}

// values are the values of one series: of this library, or of all others; the rest is 0.
func values(bars []Bar, series int, ours bool) plotter.Values {
	v := make(plotter.Values, len(bars))
	for i, b := range bars {
		if b.Ours == ours {
			v[i] = b.Values[series]
		}
	}
	return v
}

// barColour is blue, or vermilion for this library, and paler for the second series.
func barColour(series int, ours bool) color.Color {
	switch {
	case ours && series == 0:
		return palette[0]
	case ours:
		return color.RGBA{0xf5, 0xb9, 0x8c, 0xff}
	case series == 0:
		return palette[2]
	}
	return color.RGBA{0xa6, 0xcd, 0xe6, 0xff}
}
