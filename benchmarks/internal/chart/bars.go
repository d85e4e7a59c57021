package chart

import (
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

// Bars draws horizontal bars, the first on top.
func Bars(file string, width, height float64, title, x string, series []string, bars []Bar) error {
	bars = slices.Clone(bars)
	slices.Reverse(bars)
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, x
	p.Add(plotter.NewGrid())
	thickness := vg.Length(height) * 0.7 / vg.Length(len(bars)*len(series))
	var names []string
	for i, name := range series {
		values := make(plotter.Values, len(bars))
		for j, b := range bars {
			values[j] = b.Values[i]
		}
		chart, err := plotter.NewBarChart(values, thickness)
		if err != nil {
			return err
		}
		chart.Horizontal, chart.LineStyle.Width = true, 0
		chart.Color = palette[1+i]
		chart.Offset = thickness * (vg.Length(len(series)-1)/2 - vg.Length(i))
		p.Add(chart)
		p.Legend.Add(name, chart)
	}
	for _, b := range bars {
		names = append(names, b.Name)
	}
	p.NominalY(names...)
	p.X.Min = 0
	p.Legend.Top = true
	return save(file, width, height, [][]*plot.Plot{{p}}, nil)
}
