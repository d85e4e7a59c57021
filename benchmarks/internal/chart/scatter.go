package chart

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Point is a named point of a Scatter.
type Point struct {
	Name string
	X, Y float64
	Ours bool
}

// Scatter draws named points with a logarithmic y axis. Overlapping points share a label.
func Scatter(file string, width, height float64, title, x, y string, points []Point) error {
	p := blank()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Y.Scale, p.Y.Tick.Marker, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}, every(1)
	p.Add(plotter.NewGrid())
	var labels plotter.XYLabels
	for _, point := range points {
		s, err := plotter.NewScatter(plotter.XYs{{X: point.X, Y: point.Y}})
		if err != nil {
			return err
		}
		s.Shape, s.Radius, s.Color = draw.BoxGlyph{}, vg.Points(3), palette[2]
		if point.Ours {
			s.Shape, s.Radius, s.Color = draw.CircleGlyph{}, vg.Points(4), palette[0]
		}
		p.Add(s)
		if !named(point, &labels) {
			labels.XYs = append(labels.XYs, plotter.XY{X: point.X, Y: point.Y})
			labels.Labels = append(labels.Labels, point.Name)
		}
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	l.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(3)}
	for i := range l.TextStyle {
		setFont(&l.TextStyle[i], vg.Points(9))
	}
	p.Add(l)
	p.X.Min, p.X.Max = p.X.Min-0.4, p.X.Max+0.4
	p.Y.Min, p.Y.Max = p.Y.Min/1.5, p.Y.Max*1.5
	return save(file, width, height, [][]*plot.Plot{{p}}, nil)
}

// named adds the point's name to the label of an overlapping point.
func named(point Point, labels *plotter.XYLabels) bool {
	for i, at := range labels.XYs {
		if math.Abs(at.X-point.X) < 0.15 && math.Abs(math.Log(at.Y/point.Y)) < 0.1 {
			labels.Labels[i] += ", " + point.Name
			return true
		}
	}
	return false
}
