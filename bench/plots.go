package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Readable on a light and on a dark page: nothing is behind the plot.
var (
	ink     = color.RGBA{R: 0x80, G: 0x86, B: 0x8f, A: 0xff}
	palette = []color.RGBA{
		{R: 0x1f, G: 0x8f, B: 0xd6, A: 0xff}, {R: 0xe6, G: 0x7e, B: 0x22, A: 0xff}, {R: 0x1c, G: 0xa8, B: 0x73, A: 0xff},
		{R: 0xc0, G: 0x5c, B: 0xb8, A: 0xff}, {R: 0xb8, G: 0x95, B: 0x1a, A: 0xff}, {R: 0xd6, G: 0x4d, B: 0x4d, A: 0xff},
	}
)

// draw draws what there are figures of.
func (f figures) draw(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if len(f.Ratios) > 0 {
		if err := drawRatios(filepath.Join(folder, "ratios.svg"), f.Ratios); err != nil {
			return err
		}
	}
	if len(f.Growth) > 0 {
		return drawGrowth(filepath.Join(folder, "growth.svg"), f.Growth)
	}
	return nil
}

func drawRatios(file string, rows []row) error {
	p := newPlot("idem / written by hand: operations per second", "callers", "ratio")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var names []string
	var callers []float64
	for _, r := range rows {
		if !slices.Contains(names, r.Scenario) {
			names = append(names, r.Scenario)
		}
		if n := float64(r.Callers); !slices.Contains(callers, n) {
			callers = append(callers, n)
		}
	}
	slices.Sort(callers)
	even, err := plotter.NewLine(plotter.XYs{{X: callers[0] / 1.2, Y: 1}, {X: callers[len(callers)-1] * 1.2, Y: 1}})
	if err != nil {
		return err
	}
	even.Color, even.Dashes = ink, []vg.Length{2, 3}
	p.Add(even)
	low, high := .5, 2.
	for i, name := range names {
		var points spread
		for _, r := range rows {
			if r.Scenario == name {
				// Side by side, so that the bars are told apart.
				x := float64(r.Callers) * math.Pow(1.06, float64(i)-float64(len(names)-1)/2)
				points.XYs = append(points.XYs, plotter.XY{X: x, Y: r.Ratio})
				points.YErrors = append(points.YErrors, struct{ Low, High float64 }{r.Ratio - r.Low, r.High - r.Ratio})
				low, high = min(low, r.Low), max(high, r.High)
			}
		}
		if err := addLine(p, i, name, points); err != nil {
			return err
		}
	}
	p.X.Tick.Marker = ticksAt(callers...)
	p.Y.Tick.Marker = ticksAt(.25, .5, .75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
	p.Y.Min, p.Y.Max = low/1.05, high*math.Pow(high/low, .45) // room for the legend
	p.X.Min, p.X.Max = callers[0]/1.25, callers[len(callers)-1]*1.25
	return save(p, file)
}

func drawGrowth(file string, all []growth) error {
	p := newPlot("One caller, by the size of the table", "rows", "p50, microseconds")
	p.X.Scale = plot.LogScale{}
	var rows []float64
	for _, g := range all {
		rows = append(rows, float64(g.Rows))
	}
	for i, line := range []struct {
		name string
		of   func(growth) latency
	}{
		{"first run", func(g growth) latency { return g.FirstRun }},
		{"of it the claim", func(g growth) latency { return g.Claim }},
		{"replay of any record", func(g growth) latency { return g.Replay }},
		{"of a recent one", func(g growth) latency { return g.Retry }},
	} {
		var points spread
		for _, g := range all {
			points.XYs = append(points.XYs, plotter.XY{X: float64(g.Rows), Y: float64(line.of(g).P50.Microseconds())})
		}
		if err := addLine(p, i, line.name, points); err != nil {
			return err
		}
	}
	p.X.Tick.Marker = ticksAt(rows...)
	p.X.Min, p.X.Max = rows[0]/1.5, rows[len(rows)-1]*1.5
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.3 // room for the legend
	step := math.Pow(10, math.Floor(math.Log10(p.Y.Max)))
	if p.Y.Max/step < 3 {
		step /= 4
	}
	var ticks []float64
	for y := 0.; y <= p.Y.Max; y += step {
		ticks = append(ticks, y)
	}
	p.Y.Tick.Marker = ticksAt(ticks...)
	return save(p, file)
}

// A spread is points with or without error bars.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

func addLine(p *plot.Plot, i int, name string, points spread) error {
	line, dots, err := plotter.NewLinePoints(points.XYs)
	if err != nil {
		return err
	}
	c := palette[i%len(palette)]
	line.Color, line.Width = c, 1.5
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, 2.5
	p.Add(line, dots)
	p.Legend.Add(name, line)
	if points.YErrors == nil {
		return nil
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	bars.Color = c
	p.Add(bars)
	return nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Color, p.Title.Padding = ink, 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Color, a.Tick.Label.Color = ink, ink, ink, ink
	}
	p.Legend.TextStyle.Color = ink
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, 2
	p.Legend.XOffs = 8
	return p
}

func save(p *plot.Plot, file string) error {
	canvas := vgsvg.New(18*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(draw.Crop(draw.New(canvas), 4, -24, 4, -4))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func ticksAt(values ...float64) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		label := strconv.FormatFloat(v, 'g', -1, 64)
		switch {
		case v >= 1e6:
			label = fmt.Sprintf("%g million", v/1e6)
		case v >= 1e4:
			label = fmt.Sprintf("%g thousand", v/1e3)
		}
		ticks[i] = plot.Tick{Value: v, Label: label}
	}
	return ticks
}
