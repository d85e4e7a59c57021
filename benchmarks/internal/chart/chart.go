// Package chart draws the plots of the documentation with gonum/plot: SVG for the
// repository, or PNG for a look at them, as the file's name ends.
package chart

import (
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG
)

// Line is one line of a panel.
type Line struct {
	Name  string
	X, Y  []float64
	Thick bool // the one that the reader looks for
	// Dashed is for those that shall be told from the others at a glance.
	Dashed bool
}

// Panel is one diagram of an image.
type Panel struct {
	Title, X, Y  string
	Lines        []Line
	Max          float64      // of the y axis; 0: what the lines need
	Bands        [][2]float64 // stretches of the x axis that are marked
	XStep, YStep float64      // between two ticks; 0: whatever fits
	LogY         bool
}

// palette are the colours, in the order of the lines.
var palette = []color.Color{ //nolint:gochecknoglobals // a table
	color.RGBA{0xd6, 0x27, 0x28, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0x1f, 0x77, 0xb4, 0xff},
	color.RGBA{0x2c, 0xa0, 0x2c, 0xff}, color.RGBA{0x94, 0x67, 0xbd, 0xff}, color.RGBA{0xff, 0x7f, 0x0e, 0xff},
	color.RGBA{0x8c, 0x56, 0x4b, 0xff}, color.RGBA{0xe3, 0x77, 0xc2, 0xff}, color.RGBA{0x17, 0xbe, 0xcf, 0xff},
	color.RGBA{0xbc, 0xbd, 0x22, 0xff}, color.RGBA{0x7f, 0x7f, 0x7f, 0xff}, color.RGBA{0x39, 0x3b, 0x79, 0xff},
}

func lineStyle(line Line, i int) draw.LineStyle {
	style := draw.LineStyle{Color: palette[i%len(palette)], Width: vg.Points(0.9)}
	if line.Thick {
		style.Width = vg.Points(2.8)
	}
	if line.Dashed {
		style.Dashes = []vg.Length{vg.Points(4), vg.Points(1.5)}
	}
	return style
}

// legendWidth is the margin to the right, for the legend that all panels share.
const legendWidth = 190

// Write draws the panels below each other, which have lines of the same names.
func Write(file string, width, height float64, panels ...Panel) error {
	plots := make([][]*plot.Plot, len(panels))
	for i, panel := range panels {
		p, err := panel.plot()
		if err != nil {
			return err
		}
		plots[i] = []*plot.Plot{p}
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.TextStyle.Font.Size = true, true, vg.Points(9)
	legend.Padding = vg.Points(2)
	for i, line := range panels[0].Lines {
		legend.Add(line.Name, &plotter.Line{LineStyle: lineStyle(line, i)})
	}
	return save(file, width, height, plots, &legend)
}

func save(file string, width, height float64, plots [][]*plot.Plot, legend *plot.Legend) error {
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	canvas, err := draw.NewFormattedCanvas(vg.Length(width), vg.Length(height), format)
	if err != nil {
		return err
	}
	dc := draw.New(canvas)
	dc.FillPolygon(color.White, []vg.Point{{}, {X: dc.Max.X}, dc.Max, {Y: dc.Max.Y}}) // readable on a dark page, too
	pad := vg.Points(6)
	if legend != nil {
		legend.Draw(draw.Crop(dc, dc.Max.X-legendWidth, 0, pad, -4*pad))
		dc = draw.Crop(dc, 0, -legendWidth, 0, 0)
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: len(plots[0]), PadX: pad, PadY: pad, PadTop: pad, PadBottom: pad, PadLeft: pad, PadRight: pad}
	for row, canvases := range plot.Align(plots, tiles, dc) {
		for column, c := range canvases {
			plots[row][column].Draw(c) //nolint:gosec // Align gives as many canvases as there are plots
		}
	}
	out, err := os.Create(file) //nolint:gosec // the caller's file
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

func (panel Panel) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = panel.Title, panel.X, panel.Y
	for _, band := range panel.Bands {
		if err := shade(p, band, panel.Max); err != nil {
			return nil, err
		}
	}
	p.Add(plotter.NewGrid())
	if panel.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	// The first one last, so that it is on top.
	for i, line := range slices.Backward(panel.Lines) {
		l, err := plotter.NewLine(panel.points(line))
		if err != nil {
			return nil, err
		}
		l.LineStyle = lineStyle(line, i)
		p.Add(l)
	}
	if !panel.LogY {
		p.Y.Min = 0
	}
	if panel.Max > 0 {
		p.Y.Max = panel.Max
	}
	if panel.XStep > 0 {
		p.X.Tick.Marker = every(panel.XStep)
	}
	if panel.YStep > 0 {
		p.Y.Tick.Marker = every(panel.YStep)
	}
	return p, nil
}

func (panel Panel) points(line Line) plotter.XYs {
	points := make(plotter.XYs, len(line.X))
	for i := range line.X {
		points[i].X, points[i].Y = line.X[i], line.Y[i]
		if panel.Max > 0 {
			points[i].Y = min(points[i].Y, panel.Max)
		}
	}
	return points
}

// every makes a tick at each multiple of the step.
func every(step float64) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for i := math.Ceil(low / step); i*step <= high+step/1e6; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step+0, 'g', 4, 64)})
		}
		return ticks
	})
}

// shade marks a stretch of the x axis.
func shade(p *plot.Plot, band [2]float64, top float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{{X: band[0]}, {X: band[1]}, {X: band[1], Y: top}, {X: band[0], Y: top}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.RGBA{0xf0, 0xf0, 0xf0, 0xff}, 0
	p.Add(area)
	return nil
}
