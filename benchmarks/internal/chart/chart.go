// Package chart draws the plots of the lab with gonum/plot, as SVG. Their colors follow the reader's
// theme.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Line is one line of a panel.
type Line struct {
	Name   string
	Points []Point
	Thick  bool // for this library
}

// Point is a point of a line.
type Point = plotter.XY

// Panel is a diagram.
type Panel struct {
	X     string // the name of the x axis
	Lines []Line
	Band  [2]float64 // a shaded period of the x axis; both 0: none

	LogY     bool
	Min, Max float64 // of the y axis
}

// palette are the colours of the lines: those of Okabe and Ito for colour-blind readers
// (https://jfly.uni-koeln.de/color), without their pale yellow. Lines also differ by markers.
var palette = []color.Color{ //nolint:gochecknoglobals // a table
	color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0x00, 0x72, 0xb2, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0x70, 0x70, 0x70, 0xff},
}

// markers are the markers of the lines. The first line is thick and the second one black, so
// they have none.
var markers = []draw.GlyphDrawer{ //nolint:gochecknoglobals // a table
	nil, nil, draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.BoxGlyph{},
	draw.RingGlyph{}, draw.PyramidGlyph{}, draw.PlusGlyph{},
}

// marked returns the points of a line with a marker: about ten, at different places for each
// line, so that markers of overlapping lines are visible.
func marked(points plotter.XYs, i int) (some plotter.XYs) {
	step := max(len(points)/10, 1)
	for at := i * step / len(markers); at < len(points); at += step {
		some = append(some, points[at])
	}
	return some
}

// SVG draws a panel without a legend: a page names the lines in the colors of [Color].
func SVG(width, height float64, panel Panel) ([]byte, error) {
	p, err := panel.plot()
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(vg.Length(width), vg.Length(height))
	dc := draw.New(canvas)
	dc.FillPolygon(color.White, []vg.Point{{}, {X: dc.Max.X}, dc.Max, {Y: dc.Max.Y}}) // themed changes it on dark pages
	pad := vg.Points(6)
	tiles := draw.Tiles{Rows: 1, Cols: 1, PadTop: pad, PadBottom: pad, PadLeft: pad, PadRight: pad}
	p.Draw(plot.Align([][]*plot.Plot{{p}}, tiles, dc)[0][0]) // with room for the last label of the x axis
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return themed(portable(out.Bytes())), nil
}

// Color returns the color of line i as #rrggbb.
func Color(i int) string {
	r, g, b, _ := palette[i%len(palette)].RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

func (panel Panel) plot() (*plot.Plot, error) {
	p := blank()
	p.X.Label.Text = panel.X
	if panel.Band[1] > panel.Band[0] {
		if err := panel.shade(p); err != nil {
			return nil, err
		}
	}
	p.Add(plotter.NewGrid())
	if panel.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	// The first line is drawn last, so that it is on top.
	for i, line := range slices.Backward(panel.Lines) {
		if len(line.Points) == 0 {
			continue // it has no values
		}
		l, err := plotter.NewLine(plotter.XYs(line.Points))
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = palette[i%len(palette)], vg.Points(0.9)
		if line.Thick {
			l.Width = vg.Points(2.8)
		}
		p.Add(l)
		if shape := markers[i%len(markers)]; shape != nil {
			style := draw.GlyphStyle{Color: l.Color, Radius: vg.Points(2.6), Shape: shape}
			p.Add(&plotter.Scatter{XYs: marked(l.XYs, i), GlyphStyle: style})
		}
	}
	p.Y.Min, p.Y.Max = panel.Min, panel.Max
	return p, nil
}

// shade shades the Band.
func (panel Panel) shade(p *plot.Plot) error {
	from, to, bottom, top := panel.Band[0], panel.Band[1], panel.Min, panel.Max
	area, err := plotter.NewPolygon(plotter.XYs{{X: from, Y: bottom}, {X: to, Y: bottom}, {X: to, Y: top}, {X: from, Y: top}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.RGBA{0xf0, 0xf0, 0xf0, 0xff}, 0
	p.Add(area)
	return nil
}

// families are fonts of equal widths, with a generic fallback.
const families = "Liberation Sans, Arimo, Arial, Helvetica, sans-serif"

// sans is the font of all texts.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"} //nolint:gochecknoglobals // a constant

// blank returns an empty plot.
func blank() *plot.Plot {
	p := plot.New()
	for _, style := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font = font.From(sans, style.Font.Size)
	}
	return p
}

// textElement matches a text of gonum: attributes, family, size, content.
var textElement = regexp.MustCompile(`<text ([^>]*)font-family:[^;]*;([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// portable adds fallback fonts and the computed width to each text of an SVG, so that it has
// the same width in all fonts.
func portable(svg []byte) []byte {
	return textElement.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := textElement.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(part[3]), 64)
		if err != nil || len(bytes.TrimSpace(part[4])) == 0 {
			return element
		}
		face := font.DefaultCache.Lookup(sans, vg.Length(size))
		width := face.Width(html.UnescapeString(string(part[4])))
		return fmt.Appendf(nil, `<text textLength="%.2f" lengthAdjust="spacingAndGlyphs" %sfont-family:%s;%s>%s</text>`,
			width.Points(), part[1], families, part[2], part[4])
	})
}

// darkStyle changes what is neutral, for readers with a dark theme: white, black and the gray of a
// phase. The palette is legible on both. An SVG in an <img> follows the reader's theme too.
const darkStyle = `<style>@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
[style*="fill:#FFFFFF"] { fill: #0d1117 !important }
[style*="fill:#F0F0F0"] { fill: #21262d !important }
[style*="fill:#000000"] { fill: #e6edf3 !important }
[style*="stroke:#000000"] { stroke: #e6edf3 !important }
}</style>
`

// themed adds darkStyle to an SVG.
func themed(svg []byte) []byte {
	return bytes.Replace(svg, []byte("<g transform="), []byte(darkStyle+"<g transform="), 1)
}
