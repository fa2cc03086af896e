package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Curves is a chart with a line for each subject. Both axes are logarithmic.
type Curves struct {
	X, Y  string // what the axes show
	Lines []Line
}

// Line is a subject.
type Line struct {
	Subject string
	Role    Role
	Points  []Point
	Failure string // why the line ends, or is missing
}

// Point is a measurement.
type Point struct{ X, Y float64 }

// axis is a logarithmic scale from low to high, which are powers of base.
type axis struct {
	base, low, high float64
	start, end      float64 // on the picture
}

// newAxis returns the axis that shows the values. Values that are not positive
// have no place on it.
func newAxis(base float64, values []float64, start, end float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if high < low {
		low, high = 1, 1
	}
	step := func(v float64) float64 { return math.Log(v) / math.Log(base) }
	a := axis{base, math.Floor(step(low) + 1e-9), math.Ceil(step(high) - 1e-9), start, end}
	if a.high == a.low {
		a.high++
	}
	return a
}

func (a axis) at(v float64) float64 {
	share := (math.Log(v)/math.Log(a.base) - a.low) / (a.high - a.low)
	return a.start + share*(a.end-a.start)
}

// ticks returns the powers of the base, at most about eight of them.
func (a axis) ticks() (values []float64) {
	every := math.Ceil((a.high - a.low) / 8)
	for n := a.low; n <= a.high; n += every {
		values = append(values, math.Pow(a.base, n))
	}
	return values
}

// Draw returns the axes, the lines, and a legend below them.
func (c Curves) Draw() (elements string, height float64) {
	const left, right, top, bottom = 40, Width - 16, 18, 190
	var xs, ys []float64
	for _, line := range c.Lines {
		for _, p := range line.Points {
			if p.Y > 0 {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	base := 2.0
	for _, x := range xs {
		if x > 64 {
			base = 10
		}
	}
	x, y := newAxis(base, xs, left, right), newAxis(10, ys, bottom, top)
	var d drawing
	d.text(0, 10, "faint", "start", 10.5, c.Y)
	for _, v := range y.ticks() {
		d.add(`<path d="M%d %.1fH%d" class="grid"/>`, left, y.at(v), right)
		d.text(left-5, y.at(v)+3.5, "faint", "end", 10, Short(v))
	}
	for _, v := range x.ticks() {
		d.text(x.at(v), bottom+14, "faint", "middle", 10, Short(v))
	}
	d.text((left+right)/2, bottom+28, "faint", "middle", 10.5, c.X)
	peers := 0
	for i, line := range c.Lines {
		stroke, class, width, label := colour(line.Role, peers), "faint", 1.6, line.Subject
		switch line.Role {
		case Peer:
			peers++
		case Dlock:
			class, width = "ink", 2.6
		}
		if line.Failure != "" {
			label += " (failed)"
		}
		path := "M"
		for _, p := range line.Points {
			if p.X <= 0 || p.Y <= 0 {
				continue
			}
			path += fmt.Sprintf("%.1f %.1fL", x.at(p.X), y.at(p.Y))
			d.add(`<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`, x.at(p.X), y.at(p.Y), width, stroke)
		}
		if path = strings.TrimSuffix(path, "L"); path != "M" {
			d.add(`<path d="%s" fill="none" stroke="%s" stroke-width="%.1f"/>`, path, stroke, width)
		}
		legendX, legendY := float64(left+i%2*160), float64(bottom+48+i/2*16)
		d.add(`<path d="M%.1f %.1fh16" stroke="%s" stroke-width="3"/>`, legendX, legendY-4, stroke)
		d.text(legendX+22, legendY, class, "start", 11, label)
	}
	return d.String(), float64(bottom + 48 + (len(c.Lines)+1)/2*16)
}

// Short formats a value with three significant digits at most, as 12.3k.
func Short(v float64) string {
	unit := ""
	for _, larger := range []string{"k", "M", "G"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, unit = v/1000, larger
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + unit
}
